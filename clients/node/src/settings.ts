/** What a `Leasehold` does unless a request says otherwise. */
import type { Word } from './connection.js';
import { SettingError } from './errors.js';
import type { LockEvent } from './events.js';
import type { Replicas } from './replicas.js';
import type { Trouble } from './trouble.js';

/** The name of a lock: text, or bytes of anything. */
export type Name = string | Uint8Array;

/** All durations are milliseconds. */
export interface Settings {
  /** What the name of every lock begins with on the server: `''`. The `keyPrefix` of the client is of no account. */
  prefix?: Name | undefined;
  /** How long a lease lasts unless it is renewed: 30,000. */
  ttl?: number | undefined;
  /** How long `acquire` waits; `Infinity` unless this says something else. */
  wait?: number | undefined;
  /** How long to wait for each answer of a server: 1,000. For a short ttl it is less: a fifth of that. */
  response?: number | undefined;
  /** How long a request that does not wait goes on trying when servers fail, and a release: 3,000. */
  within?: number | undefined;
  /** How long a request that waits goes on while no server answers: 30,000. */
  unreachableAfter?: number | undefined;
  /**
   * Whether a grant that a message tells is confirmed by the server before the work begins: `false`. Unless it is, whoever
   * may publish on the channels `leasehold:*` and knows an owner can have a program believe that it holds a lock.
   */
  confirm?: boolean | undefined;
  /**
   * Whether a wait takes a place in the server's queue: `true`. Otherwise it tries again and again, and shares the lock with
   * clients that do the same.
   */
  queue?: boolean | undefined;
  /** How often a place in the queue is asked for again: 5,000. It is kept for three times as long. */
  slice?: number | undefined;
  /** How many connections may wait where the server tells this user of no grants: 16. */
  waitConnections?: number | undefined;
  /** Told of what nobody awaits. Unless this is set, it is told as a warning of the process. */
  onTrouble?: ((trouble: Trouble) => void) | undefined;
  /** Told of each step that a lock takes: asked, queued, granted, renewed, lost, released, refused. */
  onEvent?: ((event: LockEvent) => void) | undefined;
}

export interface AcquireOptions {
  /** How long the lease lasts unless it is renewed, in milliseconds. */
  ttl?: number | undefined;
  /** How long to wait, in milliseconds: a hard deadline. `Infinity` is without limit. */
  wait?: number | undefined;
  /** Ends the wait. No place in the queue and no grant stays behind. */
  signal?: AbortSignal | undefined;
  /** Whether the lease is renewed until it is released: `true`; or for how long at the most, in milliseconds. */
  renew?: boolean | number | undefined;
  /** Whether the server confirms the grant before the work begins: see `Settings`. */
  confirm?: boolean | undefined;
  /** A release before that many milliseconds leaves the lock held until then. */
  holdAtLeast?: number | undefined;
  /**
   * The lock ends with a connection to the server that the package keeps for this, and so many milliseconds after that: so
   * that others need not wait for the lease of a program that was killed. It needs the module.
   */
  ephemeral?: number | undefined;
  /** That so many replicas have the grant before the work begins: else `TooFewReplicasError`, and it is given back. */
  replicas?: Replicas | undefined;
  /**
   * As whom it is held, at most 255 bytes: each lease has an owner of its own unless this is set. Whoever asks with the owner
   * that holds the lock has it, too; so no two requests may have the same owner at a time.
   */
  owner?: string | undefined;
}

export type TryOptions = Omit<AcquireOptions, 'wait' | 'confirm'>;

const DEFAULTS = {
  prefix: '' as Name,
  ttl: 30_000,
  wait: Number.POSITIVE_INFINITY,
  response: 1_000,
  within: 3_000,
  unreachableAfter: 30_000,
  queue: true,
  slice: 5_000,
  waitConnections: 16,
  confirm: false,
};

export type Checked = Readonly<Omit<typeof DEFAULTS, 'prefix'>> & { readonly prefix: Word };

const SETTINGS = [...Object.keys(DEFAULTS), 'onTrouble', 'onEvent'];
const ACQUIRE_OPTIONS = 'ttl wait signal renew confirm holdAtLeast owner ephemeral replicas'.split(' ');

/** The longest owner that a server takes, in bytes. */
export const LONGEST_OWNER = 255;

/** Nothing is left of a shorter lease when the drift is taken off. */
const LEAST_TTL = 3;

/** Of whatever is counted: as many holders as a server takes. */
const MOST = 99_999;

/** A server takes 128 beside the first one. */
const MOST_NAMES = 129;

const LONGEST = 100 * 365 * 24 * 3_600_000;

const LEAST = { ttl: LEAST_TTL, response: 1, within: 0, unreachableAfter: 0, slice: 1 } as const;

export function checked(settings: Settings): Checked {
  checkNames(settings, SETTINGS);
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  const all: typeof DEFAULTS = { ...DEFAULTS, ...Object.fromEntries(given) };
  for (const [name, least] of Object.entries(LEAST)) checkDuration(name, all[name as keyof typeof LEAST], least);
  checkWait(all.wait);
  checkCount('waitConnections', all.waitConnections);
  if (settings.onEvent !== undefined) checkFunction('onEvent', settings.onEvent);
  if (settings.onTrouble !== undefined) checkFunction('onTrouble', settings.onTrouble);
  checkFlag('confirm', all.confirm);
  checkFlag('queue', all.queue);
  return { ...all, prefix: keyOf('', all.prefix) };
}

export function checkOptions(options: AcquireOptions): void {
  checkNames(options, ACQUIRE_OPTIONS);
  const { ttl, wait, holdAtLeast, signal, renew, confirm, owner, ephemeral, replicas } = options;
  if (ttl !== undefined) checkDuration('ttl', ttl, LEAST_TTL);
  if (wait !== undefined) checkWait(wait);
  if (holdAtLeast !== undefined) checkDuration('holdAtLeast', holdAtLeast, 0);
  if (replicas !== undefined) {
    checkNames(replicas, ['count', 'within', 'durable']);
    checkCount('replicas.count', replicas.count);
    checkDuration('replicas.within', replicas.within, 1);
    if (replicas.durable !== undefined) checkFlag('replicas.durable', replicas.durable);
  }
  if (ephemeral !== undefined) checkDuration('ephemeral', ephemeral, 0);
  if (confirm !== undefined) checkFlag('confirm', confirm);
  if (signal !== undefined) checkSignal(signal);
  if (owner !== undefined && (typeof owner !== 'string' || owner === '' || Buffer.byteLength(owner) > LONGEST_OWNER)) {
    throw new SettingError('owner', `it must be a string of 1 to ${LONGEST_OWNER} bytes`);
  }
  if (renew !== undefined && typeof renew !== 'boolean') checkDuration('renew', renew, 0);
}

export function checkSignal(signal: AbortSignal): void {
  const isOne = typeof signal?.aborted === 'boolean' && typeof signal.addEventListener === 'function';
  if (!isOne) throw new SettingError('signal', 'it must be an AbortSignal');
}

export function checkFunction(setting: string, given: unknown): void {
  if (typeof given !== 'function') throw new SettingError(setting, 'it must be a function');
}

/** As other libraries call them. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  wait: 'timeout waittimeout acquiretimeout blockingtimeout patience retrycount retries maxwait blocking waitfor',
  ttl: 'lease leasetime duration expiry expire expires px ex locktimeout',
  renew: 'autorenew autoextend extend',
  holdAtLeast: 'minhold lockatleastfor',
  prefix: 'keyprefix namespace',
  signal: 'abortsignal',
  ephemeral: 'grace',
  owner: 'token value secret identity',
  response: 'commandtimeout',
  slice: 'retrydelay',
  lookEvery: 'interval',
  onTrouble: 'onerror',
};

/** An option with another name would do nothing, and nobody would notice. */
export function checkNames(given: object, known: readonly string[]): void {
  if (typeof given !== 'object' || given === null) throw new SettingError('options', 'they must be an object');
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || known.includes(name)) continue;
    const meant = meantBy(name, known);
    const hint = meant === undefined ? `there are ${known.join(', ')}` : `did you mean ${meant}?`;
    throw new SettingError(name, `there is no such option: ${hint}`);
  }
}

function meantBy(name: string, known: readonly string[]): string | undefined {
  const plain = name.replace(/[-_]|ms$|millis$/gi, '').toLowerCase();
  const elsewhere = known.find((one) => ELSEWHERE[one]?.split(' ').includes(plain));
  return elsewhere ?? known.find((one) => isTypo(plain, one.toLowerCase()));
}

/** Whether one letter is missing, superfluous or wrong, or two are swapped. */
function isTypo(typed: string, meant: string): boolean {
  let [begin, end] = [0, 0];
  while (begin < meant.length && typed[begin] === meant[begin]) begin++;
  while (end < meant.length - begin && typed.at(-1 - end) === meant.at(-1 - end)) end++;
  const [here, there] = [typed.slice(begin, typed.length - end), meant.slice(begin, meant.length - end)];
  if (here.length <= 1 && there.length <= 1) return true;
  return here.length === 2 && there.length === 2 && here[0] === there[1] && here[1] === there[0];
}

export function checkDuration(setting: string, ms: number, least: number): void {
  if (typeof ms === 'number' && ms >= least && ms <= LONGEST) return;
  const bounds = `at least ${least} and at most ${LONGEST} (a hundred years)`;
  throw new SettingError(setting, `it must be a number of milliseconds, ${bounds}`);
}

function checkWait(wait: number): void {
  if (wait !== Number.POSITIVE_INFINITY) checkDuration('wait', wait, 0);
}

export function checkCount(setting: string, count: number): void {
  const isOne = Number.isInteger(count) && count >= 1 && count <= MOST;
  if (!isOne) throw new SettingError(setting, `it must be a whole number, at least 1 and at most ${MOST}`);
}

/** Each once, and no more than a server takes. */
export function checkSeveral(names: readonly Name[]): readonly Name[] {
  const isList = Array.isArray(names) && names.length > 0 && names.length <= MOST_NAMES;
  if (!isList) throw new SettingError('names', `they must be a list of 1 to ${MOST_NAMES} names`);
  const keys = names.map((name) => Buffer.from(keyOf('', name) as string).toString('latin1'));
  if (new Set(keys).size < keys.length) throw new SettingError('names', 'each must be named once');
  return [...names];
}

export function checkFlag(setting: string, flag: boolean): void {
  if (typeof flag !== 'boolean') throw new SettingError(setting, 'it must be true or false');
}

/** As a string if both are: client libraries write strings faster. */
export function keyOf(prefix: Word, name: Name): Word {
  if (typeof name === 'string' && typeof prefix === 'string') return prefix + name;
  if (typeof name !== 'string' && !(name instanceof Uint8Array)) {
    throw new SettingError('name', 'it must be a string or bytes');
  }
  return Buffer.concat([prefix, name].map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));
}

/** A name as errors and warnings show it. */
export function shown(name: Name): string {
  return typeof name === 'string' ? name : JSON.stringify(Buffer.from(name).toString('latin1'));
}
