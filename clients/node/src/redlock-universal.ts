/**
 * The locks of redlock-universal over these: `import { createLock } from 'leasehold/redlock-universal'`. Whoever waits has a
 * place in the server's queue, for as long as the retries would take. Several adapters are a quorum, as there.
 */
import type { Client, Glide, Ioredis, IoredisCluster, NodeRedis, NodeRedisCluster } from './adapters/shapes.js';
import { BusyError } from './errors.js';
import type { Lease } from './lease.js';
import { Leasehold } from './leasehold.js';
import type { Question } from './questions.js';
import { locksOf } from './redlock.js';

class Adapter<C extends Client> {
  constructor(readonly client: C) {}
}

export class IoredisAdapter extends Adapter<Ioredis | IoredisCluster> {}
export class NodeRedisAdapter extends Adapter<NodeRedis | NodeRedisCluster> {}
export class GlideAdapter extends Adapter<Glide> {}

interface Options {
  readonly key: string;
  readonly ttl?: number | undefined;
  /** A wait lasts so many times `retryDelay`. */
  readonly retryAttempts?: number | undefined;
  readonly retryDelay?: number | undefined;
}

export interface CreateLockConfig extends Options {
  readonly adapter: Adapter<Client>;
}

export interface CreateRedlockConfig extends Options {
  readonly adapters: readonly Adapter<Client>[];
}

export interface LockHandle {
  readonly id: string;
  readonly key: string;
  readonly value: string;
  readonly acquiredAt: number;
  readonly ttl: number;
  /** A number larger than that of every earlier grant, which redlock-universal does not have. */
  readonly fence: bigint;
}

export type ExtendedAbortSignal = AbortSignal & { readonly error?: Error };

export class LockAcquisitionError extends Error {
  override readonly name = 'LockAcquisitionError';
  readonly code = 'LOCK_ACQUISITION_FAILED';
  constructor(
    readonly key: string,
    cause: unknown,
  ) {
    super(`Failed to acquire lock "${key}"`, { cause });
  }
}

export class Lock {
  readonly #locks: ReturnType<typeof locksOf>;
  readonly #options: Required<{ [name in keyof Options]: NonNullable<Options[name]> }>;
  /** What was acquired and not released, by the value of its handle. */
  readonly #leases = new Map<string, Lease>();

  /** @internal */
  constructor(adapters: readonly Adapter<Client>[], options: Options) {
    const { key, ttl = 30_000, retryAttempts = 3, retryDelay = 100 } = options;
    this.#locks = locksOf(adapters.map(({ client }) => client));
    this.#options = { key, ttl, retryAttempts, retryDelay };
  }

  async acquire(): Promise<LockHandle> {
    const { key, ttl } = this.#options;
    const lease = await this.#acquire(false);
    const { owner, fence } = lease;
    this.#leases.set(owner, lease);
    void lease.lost.then(() => this.#leases.delete(owner));
    return { id: owner, key, value: owner, acquiredAt: Date.now(), ttl, fence };
  }

  /** False: it was lost before. */
  async release(handle: LockHandle): Promise<boolean> {
    const lease = this.#leases.get(handle.value);
    return lease === undefined ? this.#asked(handle, { ask: 'release' }) : (await lease.release()) !== 'late';
  }

  /** False: it is lost. */
  async extend(handle: LockHandle, ttl: number): Promise<boolean> {
    const lease = this.#leases.get(handle.value);
    return lease === undefined ? this.#asked(handle, { ask: 'extend', ttl }) : (await lease.extend(ttl)) === 'extended';
  }

  /** Of a handle that another `Lock` has acquired, perhaps in another process. */
  async #asked({ key, value }: LockHandle, question: Question): Promise<boolean> {
    return (await this.#locks.asked([key], value, question)) === 1;
  }

  async isLocked(key: string): Promise<boolean> {
    if (!(this.#locks instanceof Leasehold)) throw new Error('isLocked is not supported on several servers.');
    return (await this.#locks.info(key)) !== null;
  }

  /** Does the work under the lock, which is renewed after each third of its ttl. The signal is aborted when it is lost. */
  async using<T>(routine: (signal: ExtendedAbortSignal) => Promise<T>): Promise<T> {
    const lease = await this.#acquire(true);
    const { signal } = lease;
    Object.defineProperty(signal, 'error', { get: () => (signal.aborted ? signal.reason : undefined) });
    try {
      return await routine(signal);
    } finally {
      // As there, what became of the work counts.
      await lease.release().catch(() => {});
    }
  }

  #acquire(renew: boolean): Promise<Lease> {
    const { key, ttl, retryAttempts, retryDelay } = this.#options;
    return this.#locks.acquire(key, { ttl, renew, wait: retryAttempts * retryDelay }).catch((error) => {
      throw error instanceof BusyError ? new LockAcquisitionError(key, error) : error;
    });
  }
}

export function createLock({ adapter, ...options }: CreateLockConfig): Lock {
  return new Lock([adapter], options);
}

export function createRedlock({ adapters, ...options }: CreateRedlockConfig): Lock {
  return new Lock(adapters, options);
}
