/** Being told of changes of a key by the server's own key events, where they are on. */
import type { Ear, Listening, Word } from './connection.js';
import { fields, text } from './reply.js';
import type { Server } from './server.js';

/** Those of the module, of `SET`, of `DEL`, and of leases that end. */
const NEEDED = ['d', '$', 'g', 'x'];
const SETTING = 'notify-keyspace-events';

/** Undefined: they are off, or this user may not hear of them, or the name is bytes. */
export async function listenForChanges(
  server: Server,
  key: Word,
  limit: number,
  ear: Ear,
): Promise<Listening | undefined> {
  if (typeof key !== 'string') return undefined;
  const flags = text(fields(await server.read(key, ['CONFIG', 'GET', SETTING])).get(SETTING));
  const isOn = flags.includes('K') && (flags.includes('A') || NEEDED.every((flag) => flags.includes(flag)));
  if (!isOn) return undefined;
  const [, db] = /\bdb=(\d+)/.exec(text(await server.read(key, ['CLIENT', 'INFO']))) ?? [];
  return server.connection.listen(key, `__keyspace@${db}__:${key}`, limit, ear);
}
