/** What one request waits for: each step ends with an answer or a moment, whichever comes first, or when it is stopped. */
import { type Moment, now } from './clock.js';
import { cancel, Deadline, set } from './deadlines.js';

export class Unanswered extends Error {
  override name = 'Unanswered';
}

export class Step<T> extends Deadline {
  isOver = false;

  constructor(
    readonly steps: Steps,
    at: Moment,
    public isLimit: boolean,
    readonly resolve: (value: T) => void,
    readonly reject: (reason: unknown) => void,
  ) {
    super(at, steps.keepsAlive);
  }

  override due(): void {
    if (this.isLimit) this.fail(new Unanswered('no answer in time'));
    else this.arrive(undefined as T);
  }

  arrive(value: T): void {
    if (this.#ends()) this.resolve(value);
  }

  fail(reason: unknown): void {
    if (this.#ends()) this.reject(reason);
  }

  #ends(): boolean {
    if (this.isOver) return false;
    this.isOver = true;
    cancel(this);
    const { open } = this.steps;
    open.splice(open.indexOf(this as Step<never>), 1);
    return true;
  }

  rest(until: Moment): void {
    cancel(this);
    this.at = until;
    this.isLimit = false;
    if (until !== Number.POSITIVE_INFINITY) set(this);
  }
}

export class Steps {
  readonly open: Step<never>[] = [];
  #stopped: { readonly reason: unknown } | undefined;

  /** Whether a program whose connections are closed waits for them before it ends. */
  constructor(readonly keepsAlive = true) {}

  get areStopped(): boolean {
    return this.#stopped !== undefined;
  }

  /** Ends those under way and those that come, with this reason. */
  stop(reason?: unknown): void {
    if (this.#stopped !== undefined) return;
    this.#stopped = { reason };
    for (const step of [...this.open]) step.fail(reason);
  }

  throwIfStopped(): void {
    if (this.#stopped !== undefined) throw this.#stopped.reason;
  }

  sleep(ms: number): Promise<void> {
    return this.asleep<void>(now() + ms, () => {});
  }

  /** Sleeps until the step that is handed on arrives, with what it arrives with. Undefined: it did not. */
  asleep<T>(until: Moment, handOn: (step: Step<T | undefined>) => void): Promise<T | undefined> {
    return this.limited<T | undefined>(until, handOn, false);
  }

  within<T>(ms: number, answer: Promise<T>): Promise<T> {
    return this.limited<T>(now() + ms, (step) => {
      answer.then((value) => step.arrive(value)).catch((error) => step.fail(error));
    });
  }

  /** The same, but it rejects with `Unanswered` at that moment. */
  limited<T>(until: Moment, handOn: (step: Step<T>) => void, isLimit = true): Promise<T> {
    return new Promise((resolve, reject) => {
      const step = new Step<T>(this, until, isLimit, resolve, reject);
      this.open.push(step as Step<never>);
      if (until !== Number.POSITIVE_INFINITY) set(step);
      if (this.#stopped !== undefined) step.fail(this.#stopped.reason);
      handOn(step);
    });
  }
}
