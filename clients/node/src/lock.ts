/** A lock by its name, which many may hold at a time or one. */
import type { Lease } from './lease.js';
import type { Share } from './questions.js';
import { type AcquireOptions, checkFunction, type Name, type TryOptions } from './settings.js';

/** How a lock is asked for. They throw at once what makes no sense. */
export interface Locking {
  tryAcquire(name: Name, share: Share, options: TryOptions): Promise<Lease | null>;
  acquire(name: Name, share: Share, options: AcquireOptions): Promise<Lease>;
}

export type Work<T> = (lease: Lease) => T | PromiseLike<T>;

export class Lock {
  readonly #locking: Locking;
  readonly #name: Name;
  readonly #share: Share;

  /** @internal */
  constructor(locking: Locking, name: Name, share: Share) {
    this.#locking = locking;
    this.#name = name;
    this.#share = share;
  }

  /** Null if it is not to be had at once. */
  async tryAcquire(options: TryOptions = {}): Promise<Lease | null> {
    return this.#locking.tryAcquire(this.#name, this.#share, options);
  }

  /** Waits for it, in the order of coming. */
  acquire(options: AcquireOptions = {}): Promise<Lease> {
    try {
      return this.#locking.acquire(this.#name, this.#share, options);
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
    const lease = await this.#locking.acquire(this.#name, this.#share, options);
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
