/** Locks on most of several servers. */
import { connectionOf } from './adapters/choose.js';
import type { Client } from './adapters/shapes.js';
import type { Detached } from './detached.js';
import { SettingError } from './errors.js';
import type { Lease } from './lease.js';
import { Leasehold } from './leasehold.js';
import type { WorkWith } from './lock.js';
import { Most } from './most.js';
import { type AcquireOptions, checked, type Name, type Settings } from './settings.js';

/** What needs one server: a queue, a connection, replicas. The owner is another one in each try. */
type Excluded = 'confirm' | 'owner' | 'ephemeral' | 'replicas';
export type QuorumOptions = Omit<AcquireOptions, Excluded>;
export type QuorumTryOptions = Omit<QuorumOptions, 'wait'>;

/**
 * A lock on most of several independent servers, three or five: it outlives the loss of a few of them. It has one fence,
 * larger than that of every earlier grant. Whoever waits asks again and again: there is no queue. Each client is of another
 * server, and none of these is a replica of another. `docs/redlock.md` says what that rests on.
 */
export class Quorum implements AsyncDisposable {
  readonly #locks: Leasehold;

  constructor(clients: readonly Client[], settings: Settings = {}) {
    if (!Array.isArray(clients) || clients.length === 0)
      throw new SettingError('clients', 'there must be at least one');
    this.#locks = new Leasehold(new Most(clients.map(connectionOf), checked(settings)), settings);
  }

  /** Null if others have the lock, or too many servers. */
  tryAcquire(name: Name, options: QuorumTryOptions = {}): Promise<Lease | null> {
    return this.#locks.tryAcquire(name, onlyOf(options));
  }

  /** Waits for the lock. Rejects with `BusyError` when `wait` is over. */
  acquire(name: Name, options: QuorumOptions = {}): Promise<Lease> {
    return this.#locks.acquire(name, onlyOf(options));
  }

  /** Waits for the lock, does the work, and releases it however the work ends. */
  async with<T>(name: Name, ...given: WorkWith<T, QuorumOptions>): Promise<T> {
    if (given.length > 1) onlyOf(given[0] as QuorumOptions);
    return this.#locks.with(name, ...given);
  }

  /** Goes on with a lock that was left held. */
  adopt(detached: Detached | string): Promise<Lease> {
    return this.#locks.adopt(detached);
  }

  /** @internal */
  asked(...given: Parameters<Leasehold['asked']>): ReturnType<Leasehold['asked']> {
    return this.#locks.asked(...given);
  }

  /** Ends all waits and releases what is held: the names of the locks that stay. */
  close(limit?: number): Promise<string[]> {
    return this.#locks.close(limit);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function onlyOf(options: AcquireOptions): AcquireOptions {
  for (const name of ['confirm', 'owner', 'ephemeral', 'replicas'] as const) {
    if (options?.[name] !== undefined) throw new SettingError(name, 'a quorum does not have this option');
  }
  return options;
}
