/** A command that the server runs only for the holder of a lock, and at most once. */
import { RETRY, rest } from './backoff.js';
import type { Word } from './connection.js';
import { NeedsModuleError, SettingError, UnansweredError } from './errors.js';
import type { Hold } from './hold.js';
import type { Server } from './server.js';
import { Steps } from './steps.js';
import { codeOf, messageOf, verdict } from './verdict.js';

export type CommandWord = string | Uint8Array | number | bigint;

/** What a command came to, with texts as `T`. */
export type Reply<T> = T | number | bigint | boolean | null | Reply<T>[] | Map<T, Reply<T>>;

/** How often it follows its lock to another node. */
const MOST_MOVES = 8;

export async function guard(
  hold: Hold,
  server: Server,
  command: readonly CommandWord[],
  limit: number,
): Promise<unknown> {
  const { fence } = hold;
  const { own } = server;
  if (own === undefined) throw new SettingError('guard', 'there is no one server that could run it');
  const { key, owner } = hold.claim;
  const words: Word[] = ['LOCK.GUARD', key, owner, String(fence), ...command.map(wordOf)];
  if (command.length === 0) throw new SettingError('command', 'it must have at least one word');
  const steps = new Steps();
  for (let tries = 0; ; tries++) {
    hold.throwIfLost();
    const line = await steps.within(limit, own.line(key)).catch((error) => {
      throw server.told(error);
    });
    try {
      return await steps.within(limit, line.send(key, words));
    } catch (error) {
      const means = verdict(error);
      if (means === 'broken') {
        line.close();
        const message = `nobody has answered, and the command may have been run: ${messageOf(error)}`;
        throw new UnansweredError(message, { cause: error });
      }
      if (codeOf(error) === 'NOTHOLDER') hold.lose('taken');
      hold.throwIfLost();
      if (means === 'unknown command' && /lock\.guard/i.test(messageOf(error))) throw new NeedsModuleError('guard');
      // Nothing was run: the slot of the lock is elsewhere, or on its way.
      const mayMove = (means === 'again' || means === 'elsewhere') && tries < MOST_MOVES;
      if (!mayMove) throw server.told(error);
      await steps.sleep(rest(RETRY, tries));
      await own.failed(line, key, error);
    }
  }
}

function wordOf(word: CommandWord): Word {
  if (typeof word === 'string') return word;
  if (word instanceof Uint8Array) return Buffer.from(word);
  if (typeof word === 'number' || typeof word === 'bigint') return String(word);
  throw new SettingError('command', 'its words must be strings, bytes or numbers');
}

/** Bytes that are no text are replaced. */
export function asText(reply: unknown): Reply<string> {
  if (reply instanceof Uint8Array) return Buffer.from(reply).toString('utf8');
  if (Array.isArray(reply)) return reply.map(asText);
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [asText(name) as string, asText(value)]));
  return reply as Reply<string>;
}
