/**
 * A server without the module, and a user without scripts: `SET … IFEQ`, of Redis 8.4 and Valkey 8.1 and newer, on the same
 * keys with the same values.
 *
 *   SET lock 0:owner NX   ──►   INCR fence   ──►   SET lock fence:owner IFEQ 0:owner
 *
 * The number is counted while nobody else can have the lock, so fences grow as with scripts, which they are ahead of or
 * follow; at first it is the server's clock. If the lease runs out meanwhile, the last step fails, and the number is nobody's.
 * There is no such thing for several locks. And a lock that is granted while the server is given the module passes by the
 * queue, for as long as the server is taken to have none.
 */
import type { Line, Word } from './connection.js';
import { NeedsModuleError } from './errors.js';
import { beside, DAY, MARGIN_MICROS, refuseShares, value } from './plain.js';
import { type Claim, millis, type Question } from './questions.js';
import { bytes, integer, text } from './reply.js';
import { codeOf, messageOf, verdict } from './verdict.js';

/** Smaller ones are no clocks: the last fence was forgotten. */
const LEAST_CLOCK = 1e15;

const MOST_LOOKS = 3;

/** Whether a script was refused for what it is, and not for what it does. */
export function isWithoutScripts(error: unknown): boolean {
  const isRefused = codeOf(error) === 'NOPERM' || verdict(error) === 'unknown command';
  return isRefused && /\b(eval|evalsha)\b/i.test(messageOf(error));
}

export async function barely(line: Line, claim: Claim, question: Question): Promise<number | null> {
  const { key, also, owner } = claim;
  if (also.length > 0) throw new NeedsModuleError('several locks without scripts');
  if (question.ask === 'raise') throw new NeedsModuleError('one of several servers without scripts');
  if (question.ask === 'extend') {
    const held = value(question.fence ?? 0, owner);
    return Number(await setIf(line, key, held, held, millis(question.ttl)));
  }
  if (question.ask === 'release') {
    const held = question.fence === undefined ? await heldBy(line, key, owner) : value(question.fence, owner);
    return held === null ? 0 : remove(line, key, held);
  }
  refuseShares(claim);
  return acquire(line, key, owner, millis(question.ttl));
}

async function acquire(line: Line, key: Word, owner: string, ttl: string): Promise<number | null> {
  const pending = `${'0'.repeat(16)}:${owner}`;
  for (let looks = 0; looks < MOST_LOOKS; looks++) {
    const isSet = (await line.send(key, ['SET', key, pending, 'NX', 'PX', ttl])) !== null;
    const held = isSet ? pending : await heldBy(line, key, owner);
    if (held === owner) return 0;
    if (held === pending) {
      const fence = await count(line, key);
      return (await setIf(line, key, value(fence, owner), pending, ttl)) ? fence : null;
    }
    if (held !== null) return (await setIf(line, key, held, held, ttl)) ? Number(held.slice(0, 16)) : null;
    if ((await line.send(key, ['GET', key])) !== null) return null;
  }
  return null;
}

/** A number larger than all before, unless the last one was a day ago: then the clock is ahead of it. */
async function count(line: Line, key: Word): Promise<number> {
  const last = beside(key);
  for (;;) {
    const number = integer(await line.send(key, ['INCR', last])) ?? 0;
    if (number >= LEAST_CLOCK) return number;
    const [seconds, micros] = (await line.send(key, ['TIME'])) as unknown[];
    const clock = (integer(seconds) ?? 0) * 1e6 + (integer(micros) ?? 0) + Number(MARGIN_MICROS);
    if (await setIf(line, last, String(clock), String(number), DAY, key)) return clock;
  }
}

async function setIf(line: Line, key: Word, to: string, from: string, ttl: string, routed = key): Promise<boolean> {
  return (await line.send(routed, ['SET', key, to, 'IFEQ', from, 'PX', ttl])) !== null;
}

/** What the key holds, if that is a lock of this owner. */
async function heldBy(line: Line, key: Word, owner: string): Promise<string | null> {
  const held = bytes(await line.send(key, ['GET', key]));
  const written = held === null ? null : text(held);
  const isIts = written === owner || (/^\d{16}:/.test(written ?? '') && written?.slice(17) === owner);
  return isIts ? written : null;
}

/** By the word that this server has for it, and this user may use; or else it ends in a moment. */
async function remove(line: Line, key: Word, held: string): Promise<number> {
  for (const command of [
    ['DELEX', key, 'IFEQ', held],
    ['DELIFEQ', key, held],
  ]) {
    try {
      return integer(await line.send(key, command)) ?? 0;
    } catch (error) {
      if (verdict(error) !== 'unknown command' && codeOf(error) !== 'NOPERM') throw error;
    }
  }
  return Number(await setIf(line, key, held, held, '1'));
}
