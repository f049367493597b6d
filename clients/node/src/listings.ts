/** What the server lists of locks: who holds and who waits, which are contended, and what went wrong. */
import type { Word } from './connection.js';
import { NeedsModuleError } from './errors.js';
import { printable } from './info.js';
import { fields, integer, surprise, text } from './reply.js';
import type { Server } from './server.js';
import { verdict } from './verdict.js';

export interface HolderInfo {
  readonly owner: string;
  readonly fence: bigint;
  /** What is left of its lease, in milliseconds; null if it has no end. */
  readonly ttl: number | null;
  /** How many holders at a time it tolerates: 1 for an exclusive hold, 0 for no limit. */
  readonly share: number;
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

const TEXTS = new Set(['owner', 'key', 'kind', 'event']);
const ENDS = new Set(['ttl', 'deadline', 'patience']);

/** What a command lists: fields by their names, with those that later versions of the module have. */
export async function listed<T>(server: Server, key: Word, command: readonly Word[]): Promise<T[]> {
  const reply = await server.read(key, command).catch((error) => {
    throw verdict(error) === 'unknown command' ? new NeedsModuleError(String(command[0])) : error;
  });
  if (!Array.isArray(reply)) throw surprise();
  return reply.map((row) => {
    const named = [...fields(row)].map(([field, value]) => [nameOf(field), typed(field, value)]);
    return printable(Object.fromEntries(named)) as T;
  });
}

function nameOf(field: string): string {
  return field === 'key' ? 'name' : field.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

function typed(field: string, value: unknown): unknown {
  if (TEXTS.has(field)) return text(value);
  const number = integer(value) ?? 0;
  if (field === 'fence') return BigInt(number);
  if (field === 'time') return new Date(number);
  return ENDS.has(field) && number < 0 ? null : number;
}
