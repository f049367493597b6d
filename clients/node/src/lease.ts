/** A lock that is held, as a program has it. */
import { Detached } from './detached.js';
import { asText, type CommandWord, type Reply } from './guard.js';
import type { Extended, Hold, Released } from './hold.js';
import type { Loss } from './errors.js';
import { ANY, EXCLUSIVE, type Share } from './questions.js';

/** Nobody releases a lease that nobody has. */
const dropped = new FinalizationRegistry<Hold>((hold) => hold.forgotten());

export class Lease implements AsyncDisposable {
  readonly #hold: Hold;
  /** How it is shared after a downgrade. */
  readonly #shared: Share;
  #signal: AbortSignal | undefined;
  #lost: Promise<Loss> | undefined;

  /** @internal */
  constructor(hold: Hold) {
    this.#hold = hold;
    const { share } = hold.claim;
    this.#shared = share === EXCLUSIVE ? ANY : share;
    // To watch each of them costs more than all the rest of a lease that is released in a moment.
    hold.whenSettled(() => dropped.register(this, hold));
  }

  /** The name that it was acquired by; several are listed. */
  get name(): string {
    return this.#hold.name;
  }

  /** Who holds it, as the server knows it: nobody else has the same. */
  get owner(): string {
    return this.#hold.claim.owner;
  }

  /** A number larger than that of every earlier grant of this lock, below 2^53. A store refuses what is smaller. */
  get fence(): bigint {
    return BigInt(this.#hold.fence);
  }

  /** Aborted when the lock is lost: at the latest when its lease is over, also when the server is silent. */
  get signal(): AbortSignal {
    if (this.#signal !== undefined) return this.#signal;
    const controller = new AbortController();
    // Whoever has the signal counts on the lock. So this refers to the lease until that is over.
    this.#hold.whenOver((_, reason) => {
      if (reason !== undefined) controller.abort(reason);
      return this;
    });
    this.#signal = truthful(controller.signal, this.#hold);
    return this.#signal;
  }

  /** Resolves when it is held no more. */
  get lost(): Promise<Loss> {
    this.#lost ??= new Promise((resolve) => {
      this.#hold.whenOver((loss) => {
        resolve(loss);
        return this;
      });
    });
    return this.#lost;
  }

  /** @internal How it is shared: an upgrade or a downgrade changes that. */
  get share(): Share {
    return this.#hold.claim.share;
  }

  /** For how many milliseconds it is certainly held; 0 if it is lost, or released. */
  validFor(): number {
    return this.#hold.validFor();
  }

  /**
   * Has the lease end so many milliseconds from now, and renews it by as much from now on. Rejects if nobody answers:
   * the lease is as it was then, or extended. It counts for the shorter of the two.
   */
  extend(ttl?: number): Promise<Extended> {
    return this.#hold.extend(ttl);
  }

  /** Adds so many milliseconds to what is left of the lease, and renews it by the sum from now on: see `extend`. */
  extendBy(ms: number): Promise<Extended> {
    return this.#hold.extendBy(ms);
  }

  /**
   * Has a lock that was shared alone from now on, by a new fence. Null, and nothing has changed: others hold it, too.
   * Nobody waits for that: two who did would wait for each other.
   */
  async upgrade(): Promise<bigint | null> {
    const fence = await this.#hold.share(EXCLUSIVE);
    return fence === null ? null : BigInt(fence);
  }

  /** Lets those in who share it: as before an upgrade, or else other readers. The fence stays. */
  async downgrade(): Promise<bigint> {
    await this.#hold.share(this.#shared);
    return this.fence;
  }

  /**
   * Has the server run a command of its own, such as `'SET', key, value`, if this lease holds the lock at that moment; if
   * not, rejects with `LostError`, and nothing was run. It is sent once, on a connection beside the client: after
   * `UnansweredError` it may have been run. Texts are strings; `guardBuffer` has them as bytes. Of several locks the server
   * checks the first alone, and does not look at the others. It needs the module.
   */
  async guard(...command: CommandWord[]): Promise<Reply<string>> {
    return asText(await this.#hold.guard(command));
  }

  async guardBuffer(...command: CommandWord[]): Promise<Reply<Buffer>> {
    return (await this.#hold.guard(command)) as Reply<Buffer>;
  }

  /** Gives the lock back. Takes no longer than `within`, and rejects if nobody has answered by then. */
  release(): Promise<Released> {
    return this.#hold.release();
  }

  /**
   * Stops the renewal, and leaves the lock held until its lease ends: for work that is to be done once in a while by one of
   * many. Whoever is given what this returns can `adopt` the lock, to renew and to release it. An ephemeral one still ends with
   * the connection of this program.
   */
  detach(): Detached {
    this.#hold.leave();
    const { key, also, owner } = this.#hold.claim;
    return new Detached([key, ...also], owner, this.fence);
  }

  /** A release that never rejects: what fails is told as trouble. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.release();
    } catch {
      // It was told.
    }
  }
}

/** Whoever reads `aborted` after a pause is told the truth before any timer has been served. */
function truthful(signal: AbortSignal, hold: Hold): AbortSignal {
  const isAborted = () => {
    hold.look();
    return Reflect.get(AbortSignal.prototype, 'aborted', signal) as boolean;
  };
  const throwIfAborted = () => {
    if (isAborted()) throw signal.reason;
  };
  return Object.defineProperties(signal, { aborted: { get: isAborted }, throwIfAborted: { value: throwIfAborted } });
}
