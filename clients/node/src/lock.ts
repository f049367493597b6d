/** A lock by its name, which many may hold at a time or one; or several, which are held all or none. */
import { BusyError, SettingError } from './errors.js';
import type { Lease } from './lease.js';
import type { Share } from './questions.js';
import type { Reentries } from './reentries.js';
import { type AcquireOptions, checkFlag, checkFunction, type Name, type TryOptions } from './settings.js';

/** Asks for the lock, and throws at once what makes no sense. What it comes to when others have the lock is up to `busy`. */
type Ask = <T>(options: AcquireOptions, busy: (lock: string, waited: number) => T) => Promise<Lease | T>;

export type Work<T> = (lease: Lease) => T | PromiseLike<T>;

export type WorkWith<T, Options> = [work: Work<T>] | [options: Options, work: Work<T>];

export interface WithOptions extends AcquireOptions {
  /**
   * Whether work inside the work has the same lease if it asks for the same lock, with this option, too: it does not ask the
   * server. What is begun inside belongs to it, and whoever ends last releases the lock.
   */
  reentrant?: boolean | undefined;
}

export class Lock {
  readonly #ask: Ask;
  readonly #names: readonly Name[];
  readonly #share: Share;
  readonly #reentries: Reentries;

  /** @internal */
  constructor(ask: Ask, names: readonly Name[], share: Share, reentries: Reentries) {
    this.#ask = ask;
    this.#names = names;
    this.#share = share;
    this.#reentries = reentries;
  }

  /** Null if it is not to be had at once. */
  async tryAcquire(options: TryOptions = {}): Promise<Lease | null> {
    const { wait } = (options ?? {}) as AcquireOptions;
    if (wait !== undefined) throw new SettingError('wait', 'tryAcquire does not wait: acquire does');
    return this.#ask({ ...options, wait: 0 }, () => null);
  }

  /** Waits for it, in the order of coming. */
  acquire(options: AcquireOptions = {}): Promise<Lease> {
    try {
      return this.#ask(options, busy);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Waits for it, does the work, and releases it however the work ends. What the work comes to is what this comes to: a
   * release that fails is told as trouble, and takes no longer than `within`. The work is told of a loss by `lease.signal`.
   */
  async with<T>(...given: WorkWith<T, WithOptions>): Promise<T> {
    const [all, work] = given.length === 1 ? [{}, given[0]] : given;
    checkFunction('work', work);
    const { reentrant = false, ...options }: WithOptions = all ?? {};
    checkFlag('reentrant', reentrant);
    if (reentrant) return this.#reentries.run(this.#names, this.#share, () => this.#ask(options, busy), work);
    const lease = await this.#ask(options, busy);
    try {
      return await work(lease);
    } finally {
      await lease[Symbol.asyncDispose]();
    }
  }
}

function busy(lock: string, waited: number): never {
  throw new BusyError(lock, waited);
}
