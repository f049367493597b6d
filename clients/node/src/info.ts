/** A look at a lock, without asking for it. */
import type { Word } from './connection.js';
import { UnreachableError } from './errors.js';
import { bytes, fields, integer, surprise, text } from './reply.js';
import type { Server } from './server.js';
import { verdict } from './verdict.js';

/**
 * What is known of a lock that is held. It may be over when it arrives: whoever wants to hold it asks for it. In JSON the
 * fence is text.
 */
export interface LockInfo {
  /** Who holds it: the `owner` of the lease. Bytes that are no text are replaced. */
  readonly holder: string;
  /** The fence of the grant; 0 for a lock that neither Leasehold nor this package wrote. */
  readonly fence: bigint;
  /** What is left of the lease, in milliseconds; null if it has no end. */
  readonly ttl: number | null;
  /** How many hold it. The other fields are about the oldest of them. */
  readonly holders: number;
  /** How many holders at a time they tolerate: 1 for an exclusive lock, 0 for no limit. */
  readonly share: number;
  /** How many wait in the server's queue; null where the server keeps no queue. */
  readonly waiters: number | null;
}

/** How often a server without the module is asked at most while the lock changes hands. */
const MOST_LOOKS = 5;

/** Null: it is free. */
export async function look(server: Server, key: Word): Promise<LockInfo | null> {
  if (!server.isPlain()) {
    try {
      return ofModule(await server.read(key, ['LOCK.INFO', key]));
    } catch (error) {
      if (verdict(error) !== 'unknown command') throw error;
    }
  }
  for (let looks = 0; looks < MOST_LOOKS; looks++) {
    // The value once more, to see that the time belongs to it.
    const commands = ['GET', 'PTTL', 'GET'].map((command) => server.read(key, [command, key]));
    const [before, left, after] = await Promise.all(commands);
    const [value, same] = [bytes(before), bytes(after)];
    if (value === null) return null;
    if (same !== null && value.equals(same)) return ofKey(value, integer(left) ?? 0);
  }
  throw new UnreachableError('the lock changes hands all the time');
}

function ofModule(reply: unknown): LockInfo | null {
  if (reply === null || reply === undefined) return null;
  const found = fields(reply);
  const count = (name: string, otherwise: number) => integer(found.get(name)) ?? otherwise;
  const fence = integer(found.get('fence'));
  if (fence === null) throw surprise();
  const ttl = count('ttl', -1);
  return printable({
    holder: text(found.get('owner')),
    fence: BigInt(fence),
    ttl: ttl < 0 ? null : ttl,
    holders: count('holders', 1),
    share: count('share', 1),
    waiters: count('waiters', 0),
  });
}

function ofKey(value: Buffer, left: number): LockInfo | null {
  if (left === -2) return null;
  const written = text(value);
  const [, fence, owner] = /^(\d{16}):(.*)$/s.exec(written) ?? [];
  return printable({
    holder: owner ?? written,
    fence: BigInt(fence ?? 0),
    ttl: left < 0 ? null : left,
    holders: 1,
    share: 1,
    waiters: null,
  });
}

/** JSON has no whole numbers of 64 bits: there the fence is text. */
export function printable<T extends { readonly fence?: bigint }>(found: T): T {
  if (found.fence === undefined) return found;
  const toJSON = () => ({ ...found, fence: String(found.fence) });
  return Object.defineProperty(found, 'toJSON', { value: toJSON });
}
