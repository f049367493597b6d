/** A lock by its name, which many may hold at a time or one; or several, which are held all or none. */
import type { Lease } from './lease.js';
import type { Share } from './questions.js';
import { type AcquireOptions, checkFunction, type Name, type TryOptions } from './settings.js';

/** How a lock is asked for. They throw at once what makes no sense. */
export interface Locking {
  tryAcquire(names: readonly Name[], share: Share, options: TryOptions): Promise<Lease | null>;
  acquire(names: readonly Name[], share: Share, options: AcquireOptions): Promise<Lease>;
}

export type Work<T> = (lease: Lease) => T | PromiseLike<T>;

export class Lock {
  readonly #locking: Locking;
  readonly #names: readonly Name[];
  readonly #share: Share;

  /** @internal */
  constructor(locking: Locking, names: readonly Name[], share: Share) {
    this.#locking = locking;
    this.#names = names;
    this.#share = share;
  }

  /** Null if it is not to be had at once. */
  async tryAcquire(options: TryOptions = {}): Promise<Lease | null> {
    return this.#locking.tryAcquire(this.#names, this.#share, options);
  }

  /** Waits for it, in the order of coming. */
  acquire(options: AcquireOptions = {}): Promise<Lease> {
    try {
      return this.#locking.acquire(this.#names, this.#share, options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Waits for it, does the work, and releases it however the work ends. What the work comes to is what this comes to: a
   * release that fails is told as trouble, and takes no longer than `within`. The work is told of a loss by `lease.signal`.
   */
  async with<T>(work: Work<T>): Promise<T>;
  async with<T>(options: AcquireOptions, work: Work<T>): Promise<T>;
  async with<T>(first: AcquireOptions | Work<T>, second?: Work<T>): Promise<T> {
    const [options, work] = second === undefined ? [{}, first as Work<T>] : [first as AcquireOptions, second];
    checkFunction('work', work);
    const lease = await this.#locking.acquire(this.#names, this.#share, options);
    try {
      return await work(lease);
    } finally {
      try {
        await lease.release();
      } catch {
        // It was told.
      }
    }
  }
}
