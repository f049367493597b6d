/** A lock by its name, which many may hold at a time or one. */
import type { Hold } from './hold.js';
import { Lease } from './lease.js';
import type { Share } from './questions.js';
import { type AcquireOptions, checkFunction, type Name, type TryOptions } from './settings.js';

/** How a lock is asked for. They throw at once what makes no sense. */
export interface Locking {
  tryHold(name: Name, share: Share, options: TryOptions): Promise<Hold | null>;
  hold(name: Name, share: Share, options: AcquireOptions): Promise<Hold>;
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
    const hold = await this.#locking.tryHold(this.#name, this.#share, options);
    return hold && Lease.of(hold);
  }

  /** Waits for it, in the order of coming. */
  acquire(options: AcquireOptions = {}): Promise<Lease> {
    try {
      return this.#locking.hold(this.#name, this.#share, options).then(Lease.of);
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
  async with<T>(...given: [Work<T>] | [AcquireOptions, Work<T>]): Promise<T> {
    const [options, work] = given.length === 1 ? [{}, given[0]] : given;
    checkFunction('work', work);
    const hold = await this.#locking.hold(this.#name, this.#share, options);
    try {
      return await work(new Lease(hold));
    } finally {
      await hold.release().catch(wasTold);
    }
  }
}

/** As trouble. */
function wasTold(): void {}
