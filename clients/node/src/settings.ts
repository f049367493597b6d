/** What a `Leasehold` does unless a request says otherwise. */
import { SettingError } from './errors.js';
import type { Trouble } from './trouble.js';

/** The name of a lock: text, or bytes of anything. */
export type Name = string | Uint8Array;

/** All durations are milliseconds. */
export interface Settings {
  /** What the name of every lock begins with on the server: `''`. The `keyPrefix` of the client is of no account. */
  prefix?: Name;
  /** How long a lease lasts unless it is renewed: 30,000. */
  ttl?: number;
  /** How long `acquire` waits; `Infinity` unless this says something else. */
  wait?: number;
  /** How long to wait for each answer of a server: 1,000. For a short ttl it is less: a fifth of that. */
  response?: number;
  /** How long a request that does not wait goes on trying when servers fail, and a release: 3,000. */
  within?: number;
  /** How long a request that waits goes on while no server answers: 30,000. */
  unreachableAfter?: number;
  /** How often a place in the queue is asked for again: 5,000. It is kept for three times as long. */
  slice?: number;
  /** How many connections may wait where the server gives no tickets: 16. */
  waitConnections?: number;
  /** Told of what nobody awaits. Unless this is set, it is told as a warning of the process. */
  onTrouble?: (trouble: Trouble) => void;
}

export interface AcquireOptions {
  /** How long the lease lasts unless it is renewed, in milliseconds. */
  ttl?: number;
  /** How long to wait, in milliseconds: a hard deadline. `Infinity` is without limit. */
  wait?: number;
  /** Ends the wait. No place in the queue and no grant stays behind. */
  signal?: AbortSignal;
  /** Whether the lease is renewed until it is released: `true`; or for how long at the most, in milliseconds. */
  renew?: boolean | number;
  /** A release before that many milliseconds leaves the lock held until then. */
  holdAtLeast?: number;
}

export type TryOptions = Omit<AcquireOptions, 'wait'>;

export type Checked = Required<Omit<Settings, 'onTrouble' | 'prefix'>> & { prefix: Buffer };

/** Nothing is left of a shorter lease when the drift is taken off. */
export const LEAST_TTL = 3;

const LONGEST = 100 * 365 * 24 * 3_600_000;

export function checked(settings: Settings): Checked {
  const {
    prefix = '',
    ttl = 30_000,
    wait = Number.POSITIVE_INFINITY,
    response = 1_000,
    within = 3_000,
    unreachableAfter = 30_000,
    slice = 5_000,
    waitConnections = 16,
  } = settings;
  checkDuration('ttl', ttl, LEAST_TTL);
  checkDuration('response', response, 1);
  checkDuration('within', within, 0);
  checkDuration('unreachableAfter', unreachableAfter, 0);
  checkDuration('slice', slice, 1);
  checkWait(wait);
  checkCount('waitConnections', waitConnections);
  return { prefix: bytesOf(prefix), ttl, wait, response, within, unreachableAfter, slice, waitConnections };
}

export function checkDuration(setting: string, ms: number, least: number): void {
  const isOne = typeof ms === 'number' && ms >= least && ms <= LONGEST;
  if (!isOne) throw new SettingError(setting, `it must be a number of milliseconds, at least ${least}`);
}

export function checkWait(wait: number): void {
  if (wait !== Number.POSITIVE_INFINITY) checkDuration('wait', wait, 0);
}

export function checkCount(setting: string, count: number): void {
  if (!Number.isInteger(count) || count < 1) throw new SettingError(setting, 'it must be a whole number, at least 1');
}

export function bytesOf(name: Name): Buffer {
  if (typeof name === 'string') return Buffer.from(name);
  if (name instanceof Uint8Array) return Buffer.from(name);
  throw new SettingError('name', 'it must be a string or bytes');
}

/** A name as errors and warnings show it. */
export function shown(name: Name): string {
  return typeof name === 'string' ? name : JSON.stringify(Buffer.from(name).toString('latin1'));
}
