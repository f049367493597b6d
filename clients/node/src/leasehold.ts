/** Locks on Redis and Valkey, over a client that the program has. */
import { randomUUID } from 'node:crypto';
import { whenAborted } from './aborts.js';
import { Acquiring } from './acquiring.js';
import { connectionOf } from './adapters/choose.js';
import type { Client } from './adapters/shapes.js';
import { Attempt, type Granted, type Wanted } from './attempt.js';
import { ask } from './asking.js';
import { type Moment, now } from './clock.js';
import { Election } from './election.js';
import { BusyError, ClosedError, SettingError, SurpriseError } from './errors.js';
import { type LockInfo, look } from './info.js';
import { Hold } from './hold.js';
import { Lease } from './lease.js';
import { Lock, type Locking, type Work } from './lock.js';
import { EXCLUSIVE, type Share } from './questions.js';
import { Server } from './server.js';
import {
  type AcquireOptions,
  bytesOf,
  type Checked,
  checkCount,
  checkDuration,
  checkOptions,
  checkTryOptions,
  checked,
  checkWait,
  LEAST_TTL,
  type Name,
  type Settings,
  shown,
  type TryOptions,
} from './settings.js';
import { sleep, within } from './timers.js';
import { type Tell, telling, warn } from './trouble.js';
import { patienceForAnswer } from './validity.js';
import { Grants } from './waiting/grants.js';
import { Room } from './waiting/room.js';

/** As many readers as want to. */
const ANY: Share = 0;
const MOST_HOLDERS = 99_999;

export class Leasehold implements AsyncDisposable {
  readonly #settings: Checked;
  readonly #server: Server;
  readonly #grants: Grants;
  readonly #acquiring: Acquiring;
  readonly #tell: Tell;
  readonly #closed = new AbortController();
  readonly #holds = new Set<Hold>();
  readonly #asking = new Set<AbortController>();
  /** What is being released, and what may have been granted to those who gave up, by the names of the locks. */
  readonly #givingBack = new Map<Promise<void>, string>();
  /** The names of the locks whose release has failed, and until when they stay. */
  readonly #staying = new Map<string, Moment>();
  readonly #locking: Locking;
  #closing: Promise<string[]> | undefined;

  constructor(client: Client, settings: Settings = {}) {
    this.#settings = checked(settings);
    this.#tell = telling(settings.onTrouble ?? warn);
    const connection = connectionOf(client);
    this.#server = new Server(connection);
    this.#grants = new Grants(connection);
    this.#acquiring = new Acquiring(this.#settings, this.#grants, new Room(this.#settings.waitConnections));
    this.#locking = {
      tryAcquire: async (name, share, options) => {
        checkTryOptions(options);
        return this.#lease(name, share, { ...options, wait: 0 });
      },
      acquire: (name, share, options) => this.#acquire(name, share, options),
    };
  }

  /** Null if somebody else has the lock. */
  tryAcquire(name: Name, options: TryOptions = {}): Promise<Lease | null> {
    return this.#locking.tryAcquire(name, EXCLUSIVE, options);
  }

  /** Waits for the lock, in the order of coming. Rejects with `BusyError` when `wait` is over. */
  acquire(name: Name, options: AcquireOptions = {}): Promise<Lease> {
    return this.#locking.acquire(name, EXCLUSIVE, options);
  }

  /** Waits for the lock, does the work, and releases it however the work ends: see `Lock.with`. */
  with<T>(name: Name, work: Work<T>): Promise<T>;
  with<T>(name: Name, options: AcquireOptions, work: Work<T>): Promise<T>;
  with<T>(name: Name, ...given: [Work<T>] | [AcquireOptions, Work<T>]): Promise<T> {
    const lock = this.write(name);
    return given.length === 1 ? lock.with(given[0]) : lock.with(given[0], given[1]);
  }

  /** Held beside any number of other readers. It needs the module. */
  read(name: Name): Lock {
    return new Lock(this.#locking, name, ANY);
  }

  /** Held alone. */
  write(name: Name): Lock {
    return new Lock(this.#locking, name, EXCLUSIVE);
  }

  /** Held by so many at a time. It needs the module. */
  semaphore(name: Name, permits: number): Lock {
    checkCount('permits', permits);
    if (permits > MOST_HOLDERS) throw new SettingError('permits', `it must be at most ${MOST_HOLDERS}`);
    return new Lock(this.#locking, name, permits);
  }

  /** An election of this name, in which this program goes by the name of `candidate`. */
  election(name: Name, candidate: string): Election {
    const voting = {
      acquire: (owner: string, options: AcquireOptions) => this.#acquire(name, EXCLUSIVE, options, owner),
      info: () => this.info(name),
      closed: this.#closed.signal,
    };
    return new Election(voting, candidate);
  }

  /** Who holds the lock at this moment, and how many wait for it: null if it is free. */
  async info(name: Name): Promise<LockInfo | null> {
    this.#checkOpen();
    try {
      return await within(this.#settings.within, look(this.#server, this.#key(name)), this.#closed.signal);
    } catch (error) {
      throw this.#server.told(error);
    }
  }

  /**
   * Ends all waits, releases what is held, and closes the connections that were opened beside the client, which is the
   * program's. Takes no longer than that many milliseconds. Resolves with the names of the locks that stay until their
   * leases end: none, unless the server did not answer.
   */
  async close(limit = 5_000): Promise<string[]> {
    checkDuration('limit', limit, 0);
    this.#closing ??= this.#close(limit);
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(limit: number): Promise<string[]> {
    const reason = new ClosedError();
    this.#closed.abort(reason);
    for (const asking of this.#asking) asking.abort(reason);
    const left = new Set(this.#holds);
    const releases = [...left].map(async (hold) => {
      await hold.close(reason);
      left.delete(hold);
    });
    // Those who wait leave the queue in the next turn.
    await new Promise((resolve) => setImmediate(resolve));
    const all = Promise.allSettled([...releases, ...this.#givingBack.keys()]);
    await within(limit, all).catch(() => {});
    const names = new Set([...[...left].map(({ granted }) => granted.name), ...this.#givingBack.values()]);
    for (const [name, end] of this.#staying) if (end > now()) names.add(name);
    this.#grants.close();
    this.#server.connection.close();
    return [...names];
  }

  async #acquire(name: Name, share: Share, options: AcquireOptions, owner?: string): Promise<Lease> {
    const begun = now();
    const lease = await this.#lease(name, share, options, owner);
    if (lease === null) throw new BusyError(shown(name), now() - begun);
    return lease;
  }

  async #lease(name: Name, share: Share, options: AcquireOptions, owner = newOwner()): Promise<Lease | null> {
    checkOptions(options);
    const { ttl = this.#settings.ttl, wait = this.#settings.wait, signal, renew = true, holdAtLeast = 0 } = options;
    checkDuration('ttl', ttl, LEAST_TTL);
    checkDuration('holdAtLeast', holdAtLeast, 0);
    checkWait(wait);
    signal?.throwIfAborted();
    this.#checkOpen();
    const wanted: Wanted = { key: this.#key(name), name: shown(name), ttl: Math.ceil(ttl), share, wait };
    const attempt = new Attempt(this.#server, wanted, owner, (key, given, after) =>
      this.#giveBack(key, given, after, wanted),
    );
    const stop = new AbortController();
    const forget = whenAborted(signal, () => stop.abort(signal?.reason));
    this.#asking.add(stop);
    let granted: Granted | null;
    try {
      granted = await this.#acquiring.acquire(attempt, stop.signal);
    } finally {
      this.#asking.delete(stop);
      forget();
    }
    if (granted === null) return null;
    if (stop.signal.aborted) {
      // In the same moment as it was granted. Nobody would release it.
      attempt.giveUp();
      throw stop.signal.reason;
    }
    return this.#hold(attempt, granted, { renew, holdAtLeast });
  }

  #hold(
    attempt: Attempt,
    { fence, asked }: Granted,
    { renew, holdAtLeast }: { renew: boolean | number; holdAtLeast: number },
  ): Lease {
    const { owner } = attempt;
    const { name, key, ttl } = attempt.wanted;
    const renewFor = typeof renew === 'number' ? renew : renew ? Number.POSITIVE_INFINITY : 0;
    const { response, within: limit } = this.#settings;
    const hold = new Hold({
      ...{ server: this.#server, name, key, owner, fence, ttl, asked, response, within: limit },
      renewUntil: asked + renewFor,
      holdUntil: holdAtLeast === 0 ? Number.NEGATIVE_INFINITY : now() + holdAtLeast,
      tell: this.#tell,
      ended: (over) => this.#holds.delete(over),
      over: () => attempt.over(),
      releasing: (release, end) => this.#await(release, name, end),
    });
    this.#holds.add(hold);
    return new Lease(hold);
  }

  /** In the background: whoever gave up does not wait for it. `close` does. */
  #giveBack(key: Buffer, owner: string, after: number, { ttl, name }: Wanted): void {
    const { response, within: limit } = this.#settings;
    const limits = { each: patienceForAnswer(response, ttl), until: now() + after + limit };
    const release = () => ask(this.#server, key, { ask: 'release', owner }, limits);
    // At once is in order behind what was asked before.
    const giving = (after === 0 ? release() : sleep(after).then(release)).catch((error) => {
      this.#tell({ kind: 'release failed', name, owner, error: this.#server.told(error) });
      throw error;
    });
    this.#await(giving, name, now() + ttl);
  }

  /** `close` waits for it, and names the lock if it takes too long, or has failed and the lock stays until then. */
  #await(giving: Promise<unknown>, name: string, until: Moment): void {
    const over = () => {
      this.#givingBack.delete(given);
    };
    const failed = (error: unknown) => {
      over();
      // In a transaction of the program it is carried out with that.
      if (error instanceof SurpriseError) return;
      for (const [other, end] of this.#staying) if (end <= now()) this.#staying.delete(other);
      this.#staying.set(name, Math.max(until, this.#staying.get(name) ?? until));
    };
    const given: Promise<void> = giving.then(over, failed);
    this.#givingBack.set(given, name);
  }

  #key(name: Name): Buffer {
    return Buffer.concat([this.#settings.prefix, bytesOf(name)]);
  }

  #checkOpen(): void {
    if (this.#closed.signal.aborted) throw new ClosedError();
  }
}

function newOwner(): string {
  return `${process.pid}:${randomUUID()}`;
}
