/** What the server knows of locks: who holds and who waits, which are contended, and what went wrong. */
import type { Word } from './connection.js';
import { NeedsModuleError, SurpriseError, UnreachableError } from './errors.js';
import { grantOf } from './plain.js';
import { bytes, fields, integer, text } from './reply.js';
import type { Server } from './server.js';
import { verdict } from './verdict.js';

export interface HolderInfo {
  readonly owner: string;
  /** The fence of the grant; 0 for a lock that neither Leasehold nor this package wrote. In JSON it is text. */
  readonly fence: bigint;
  /** What is left of the lease, in milliseconds; null if it has no end. */
  readonly ttl: number | null;
  /** How many holders at a time it tolerates: 1 for an exclusive hold, 0 for no limit. */
  readonly share: number;
}

/**
 * What is known of a lock that is held, and of the oldest of its holders. It may be over when it arrives: whoever wants to
 * hold it asks for it.
 */
export interface LockInfo extends Omit<HolderInfo, 'owner'> {
  /** The `owner` of the lease. Bytes that are no text are replaced. */
  readonly holder: string;
  readonly holders: number;
  /** How many wait in the server's queue; null where the server keeps no queue. */
  readonly waiters: number | null;
}

export interface WaiterInfo {
  readonly owner: string;
  /** How long it has waited, in milliseconds, and how much longer it will; null: without limit. */
  readonly waited: number;
  readonly patience: number | null;
  readonly share: number;
  /** Whether a connection waits, or there is a ticket. */
  readonly kind: string;
  /** How many locks it waits for at once. */
  readonly locks: number;
}

/** A lock for which there was contention since the server has started. */
export interface Contention {
  readonly name: string;
  readonly db: number;
  readonly waits: number;
  readonly refused: number;
  /** Of the waits that are over, in milliseconds. */
  readonly waitTotal: number;
  readonly waitLongest: number;
  /** How many waits and refused requests may be missing. */
  readonly missed: number;
}

/** What went wrong, as `late-release` or `deleted`: the page of `LOCK.LOG` has all of them. */
export interface LogEntry {
  readonly id: number;
  readonly time: Date;
  readonly event: string;
  readonly db: number;
  readonly name: string;
  readonly owner: string;
  /** What it means depends on the event. */
  readonly ms: number;
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

type Known = HolderInfo & LockInfo;

function ofModule(reply: unknown): LockInfo | null {
  if (reply === null || reply === undefined) return null;
  const { owner, fence, ttl = null, holders = 1, share = 1, waiters = 0 }: Partial<Known> = named(reply);
  if (owner === undefined || fence === undefined) throw new SurpriseError();
  return printable({ holder: owner, fence, ttl, holders, share, waiters });
}

function ofKey(value: Buffer, left: number): LockInfo | null {
  if (left === -2) return null;
  const { owner, fence } = grantOf(text(value));
  const lock = { holder: owner, fence: BigInt(fence), ttl: left < 0 ? null : left };
  return printable({ ...lock, holders: 1, share: 1, waiters: null });
}

/** JSON has no whole numbers of 64 bits: there the fence is text. */
export function printable<T extends { readonly fence?: bigint }>(found: T): T {
  if (found.fence === undefined) return found;
  const toJSON = () => ({ ...found, fence: String(found.fence) });
  return Object.defineProperty(found, 'toJSON', { value: toJSON });
}

const TEXTS = new Set(['owner', 'key', 'kind', 'event']);
const ENDS = new Set(['ttl', 'deadline', 'patience']);

/** What a command lists: fields by their names, with those that later versions of the module have. */
export async function listed<T>(server: Server, key: Word, command: readonly Word[]): Promise<T[]> {
  const reply = await server.read(key, command).catch((error) => {
    throw verdict(error) === 'unknown command' ? new NeedsModuleError(String(command[0])) : error;
  });
  if (!Array.isArray(reply)) throw new SurpriseError();
  return reply.map((row) => printable(named(row)) as T);
}

function named(row: unknown): { readonly fence?: bigint } {
  const nameOf = (field: string) => field.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  const all = [...fields(row)].map(([field, value]) => [field === 'key' ? 'name' : nameOf(field), typed(field, value)]);
  return Object.fromEntries(all);
}

function typed(field: string, value: unknown): unknown {
  if (TEXTS.has(field)) return text(value);
  const number = integer(value) ?? 0;
  if (field === 'fence') return BigInt(number);
  if (field === 'time') return new Date(number);
  return ENDS.has(field) && number < 0 ? null : number;
}
