/**
 * The interface of redlock 5 over these locks: `import Redlock from 'leasehold/redlock'`. Whoever waits has a place in the
 * server's queue, for as long as redlock's tries would take, and gets the locks in the step that frees them. Several
 * clients are a quorum, as there.
 */
import { EventEmitter } from 'node:events';
import type { Client } from './adapters/shapes.js';
import { BusyError } from './errors.js';
import type { Lease } from './lease.js';
import { Leasehold } from './leasehold.js';
import { grantOf, value as keptValue } from './plain.js';
import { Quorum } from './quorum.js';
import type { Question } from './questions.js';
import type { AcquireOptions } from './settings.js';

export interface Settings {
  /** Has no meaning here: a lease is counted from before it was asked for, less a hundredth. */
  readonly driftFactor: number;
  /** `-1`: without limit. A wait lasts so many times `retryDelay`. */
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  /** Has no meaning here: a lease is renewed when a third of it is over. */
  readonly automaticExtensionThreshold: number;
}

export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<Client>;
  readonly votesAgainst: Map<Client, Error>;
}

export interface ExecutionResult {
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

export type RedlockAbortSignal = AbortSignal & { error?: Error };

const DEFAULTS: Settings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

export class ResourceLockedError extends Error {
  override readonly name = 'ResourceLockedError';
}

export class ExecutionError extends Error {
  override readonly name = 'ExecutionError';
  constructor(
    message: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

export class Lock {
  /** What its keys hold: the fence and the owner. */
  readonly value: string;

  /** Undefined of a lock that was made by hand, of the value of another. */
  readonly lease: Lease | undefined;

  /** When it ends, by the clock of `Date`: 0 if it was released or extended. */
  expiration: number;

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
  );
  /** @internal */
  constructor(redlock: Redlock, resources: string[], value: Lease, attempts: ReadonlyArray<Promise<ExecutionStats>>);
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    value: string | Lease,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration = 0,
  ) {
    this.lease = typeof value === 'string' ? undefined : value;
    this.value = typeof value === 'string' ? value : keptValue(Number(value.fence), value.owner);
    this.expiration = typeof value === 'string' ? expiration : Date.now() + value.validFor();
  }

  /** A number larger than that of every earlier grant, which redlock does not have. 0n of a lock of redlock itself. */
  get fence(): bigint {
    return BigInt(grantOf(this.value).fence);
  }

  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;

export default class Redlock extends EventEmitter {
  readonly clients: Set<Client>;
  readonly settings: Settings;
  readonly #locks: Leasehold | Quorum;
  readonly #acquired: Set<Lease>;

  constructor(clients: Iterable<Client>, settings: Partial<Settings> = {}) {
    super();
    // Without a listener, an error would end the program.
    this.on('error', () => {});
    this.clients = new Set(clients);
    this.settings = merged(DEFAULTS, settings);
    this.#locks = locksOf([...this.clients]);
    this.#acquired = acquired.get(this.#locks) ?? new Set();
    acquired.set(this.#locks, this.#acquired);
  }

  /** Ends all connections, of the clients, too. Locks that were acquired stay until their ends, as there. */
  async quit(): Promise<void> {
    for (const lease of this.#acquired) lease.detach();
    await this.#locks.close();
    const ending = [...this.clients].map((client) => (client as { quit?: () => Promise<unknown> }).quit?.());
    await Promise.all(ending);
  }

  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return new Lock(this, resources, await this.#lease(resources, duration, settings, false), [this.#stats()]);
  }

  async release(lock: Lock, _settings: Partial<Settings> = {}): Promise<ExecutionResult> {
    lock.expiration = 0;
    const { lease } = lock;
    if (lease === undefined) return this.#byValue(lock, { ask: 'release' });
    // What was released before is not there any more, as there.
    const isHeld = lease.validFor() > 0;
    const outcome = await lease.release().catch((error: Error) => this.#failed(error));
    if (outcome === 'late' || !isHeld)
      throw this.#failed(new ResourceLockedError('The lock was lost before it was released.'));
    return { attempts: [this.#stats()] };
  }

  async extend(existing: Lock, duration: number, _settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    if (existing.expiration < Date.now()) throw new ExecutionError('Cannot extend an already-expired lock.', []);
    const { lease, resources, value } = existing;
    if (lease === undefined) {
      const begun = Date.now();
      const { attempts } = await this.#byValue(existing, { ask: 'extend', ttl: duration });
      existing.expiration = 0;
      return new Lock(this, resources, value, attempts, begun + duration);
    }
    const outcome = await lease.extend(duration).catch((error: Error) => this.#failed(error));
    if (outcome === 'lost') throw this.#failed(new ResourceLockedError('The lock was lost.'));
    existing.expiration = 0;
    return new Lock(this, resources, lease, [this.#stats()]);
  }

  /** For a lock of which only the value is known. */
  async #byValue(
    { resources, value }: Lock,
    question: Extract<Question, { ask: 'extend' | 'release' }>,
  ): Promise<ExecutionResult> {
    const { owner, fence } = grantOf(value);
    const asking = this.#locks.asked(resources, owner, { ...question, fence: fence || undefined });
    const number = await asking.catch((error: Error) => this.#failed(error));
    const isAll = number === (question.ask === 'release' ? resources.length : 1);
    if (!isAll) throw this.#failed(new ResourceLockedError('The lock was lost.'));
    return { attempts: [this.#stats()] };
  }

  using<T>(resources: string[], duration: number, settings: Partial<Settings>, routine: Routine<T>): Promise<T>;
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  async using<T>(resources: string[], duration: number, ...given: [Partial<Settings>, Routine<T>] | [Routine<T>]) {
    const [settings, routine] = given.length === 1 ? [{}, given[0]] : given;
    if (typeof routine !== 'function') throw new Error('INVARIANT: routine is not a function.');
    const lease = await this.#lease(resources, duration, settings, true);
    const signal: RedlockAbortSignal = lease.signal;
    Object.defineProperty(signal, 'error', { get: () => (signal.aborted ? (signal.reason as Error) : undefined) });
    try {
      return await routine(signal);
    } finally {
      await this.release(new Lock(this, resources, lease, []));
    }
  }

  async #lease(resources: string[], duration: number, given: Partial<Settings>, renew: boolean): Promise<Lease> {
    checkDuration(duration);
    if (resources.length > 1 && this.clients.size > 1) {
      throw new Error('Several resources on several servers are not supported.');
    }
    if (resources.length === 0) throw new Error('There must be at least one resource.');
    const { retryCount, retryDelay } = merged(this.settings, given);
    const isEndless = retryCount === -1 || retryCount === Number.POSITIVE_INFINITY;
    const wait = isEndless ? Number.POSITIVE_INFINITY : retryCount * retryDelay;
    const options: AcquireOptions = { ttl: duration, renew, wait };
    try {
      const lease = await this.#ask(resources, options);
      if (!renew) {
        this.#acquired.add(lease);
        // One that the program drops stays held until its end: the lease is referred to until then.
        void lease.lost.then(() => this.#acquired.delete(lease));
      }
      return lease;
    } catch (error) {
      const isBusy = error instanceof BusyError;
      const none = `The operation was applied to: 0 of the ${resources.length} requested resources.`;
      const told = isBusy ? new ResourceLockedError(none, { cause: error }) : (error as Error);
      throw this.#failed(told, isEndless ? 1 : retryCount + 1);
    }
  }

  #ask(resources: string[], options: AcquireOptions): Promise<Lease> {
    const { [0]: first = '', length } = resources;
    return length > 1 && this.#locks instanceof Leasehold
      ? this.#locks.several(resources).acquire(options)
      : this.#locks.acquire(first, options);
  }

  /** One wait stands for all tries that redlock would have made, of which a hundred are listed at most. */
  #failed(error: Error, tries = 1): never {
    this.emit('error', error);
    const message = 'The operation was unable to achieve a quorum during its retry window.';
    const stats = this.#stats(error);
    const attempts = Array.from({ length: Math.min(tries, 100) }, () => stats);
    throw new ExecutionError(message, attempts, { cause: error });
  }

  async #stats(error?: Error): Promise<ExecutionStats> {
    const clients = [...this.clients];
    return {
      membershipSize: clients.length,
      quorumSize: Math.floor(clients.length / 2) + 1,
      votesFor: new Set(error === undefined ? clients : []),
      votesAgainst: new Map(error === undefined ? [] : clients.map((client) => [client, error])),
    };
  }
}

/** What is undefined is left out. */
function merged(settings: Settings, given: Partial<Settings>): Settings {
  const isGiven = ([, value]: [string, unknown]) => typeof value === 'number';
  return { ...settings, ...Object.fromEntries(Object.entries(given).filter(isGiven)) };
}

/** A program may have a Redlock for each request: the connections beside its client are the same. */
const alone = new WeakMap<Client, Leasehold>();

/** What each Redlock of the same connections leaves when one of them quits. */
const acquired = new WeakMap<Leasehold | Quorum, Set<Lease>>();

/** A lock that runs out is none of their business, and what is refused is told to whoever asked. */
const onTrouble = () => {};

/** @internal */
export function locksOf(clients: Client[]): Leasehold | Quorum {
  const [first, ...others] = clients;
  if (first === undefined) {
    throw new Error('Redlock must be instantiated with at least one redis client.');
  }
  const prefix = prefixOf(first);
  if (others.some((client) => prefixOf(client) !== prefix))
    throw new Error('The clients have several values of keyPrefix.');
  if (others.length > 0) return new Quorum(clients, { prefix, onTrouble });
  const known = alone.get(first);
  if (known?.isClosed === false) return known;
  const locks = new Leasehold(first, { prefix, onTrouble });
  alone.set(first, locks);
  return locks;
}

/** redlock's scripts are sent by the client, which puts this before the key. */
function prefixOf(client: Client): string {
  const { options } = client as { options?: { keyPrefix?: string; redisOptions?: { keyPrefix?: string } } };
  return options?.keyPrefix ?? options?.redisOptions?.keyPrefix ?? '';
}

function checkDuration(duration: number): void {
  if (Math.floor(duration) !== duration) throw new Error('Duration must be an integer value in milliseconds.');
}
