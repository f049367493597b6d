/** What one request waits for: each step ends with an answer or a moment, whichever comes first, or when it is stopped. */
import { type Moment, now } from './clock.js';
import { cancel, Deadline, set } from './deadlines.js';

/** Nobody answered in time. */
export class Unanswered extends Error {
  override name = 'Unanswered';
}

/** One of them, under way. Those of one request are in a list. */
export class Step<T> extends Deadline {
  previous: Step<never> | undefined;
  next: Step<never> | undefined;

  constructor(
    at: Moment,
    readonly steps: Steps,
    readonly resolve: (value: T) => void,
    readonly reject: (reason: unknown) => void,
    /** Whether it fails at that moment. */
    readonly isLimit: boolean,
  ) {
    super(at, steps.keepsAlive);
  }

  due(): void {
    if (this.isLimit) this.fail(new Unanswered('no answer in time'));
    else this.arrive(undefined as T);
  }

  arrive(value: T): void {
    this.steps.over(this as Step<never>);
    this.resolve(value);
  }

  fail(reason: unknown): void {
    this.steps.over(this as Step<never>);
    this.reject(reason);
  }
}

export class Steps {
  #first: Step<never> | undefined;
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
    while (this.#first !== undefined) this.#first.fail(reason);
  }

  throwIfStopped(): void {
    if (this.#stopped !== undefined) throw this.#stopped.reason;
  }

  sleep(ms: number): Promise<void> {
    return this.asleep<void>(now() + ms);
  }

  /** Sleeps until the step that is handed on arrives, with what it arrives with. Undefined: it did not. */
  asleep<T>(until: Moment, handOn?: (step: Step<T | undefined>) => void): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const step = this.#begin(until, resolve, reject, false);
      if (step !== undefined) handOn?.(step);
    });
  }

  /** Rejects with `Unanswered` if the answer takes longer. */
  within<T>(ms: number, answer: Promise<T>): Promise<T> {
    return this.by(now() + ms, answer);
  }

  by<T>(moment: Moment, answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const step = this.#begin<T>(moment, resolve, reject, true);
      // Whoever stops waiting for it has nothing to do with how it fails.
      if (step === undefined) return answer.catch(() => {});
      return answer.then(
        (value) => step.arrive(value),
        (error) => step.fail(error),
      );
    });
  }

  /** Undefined: they are stopped. */
  #begin<T>(
    moment: Moment,
    resolve: (value: T) => void,
    reject: (reason: unknown) => void,
    isLimit: boolean,
  ): Step<T> | undefined {
    if (this.#stopped !== undefined) {
      reject(this.#stopped.reason);
      return undefined;
    }
    const step = new Step<T>(moment, this, resolve, reject, isLimit);
    if (moment !== Number.POSITIVE_INFINITY) set(step);
    const first = this.#first;
    step.next = first;
    this.#first = step as Step<never>;
    if (first !== undefined) first.previous = this.#first;
    return step;
  }

  /** @internal */
  over(step: Step<never>): void {
    cancel(step);
    const { previous, next } = step;
    if (this.#first === step) this.#first = next;
    if (previous !== undefined) previous.next = next;
    if (next !== undefined) next.previous = previous;
    step.previous = undefined;
    step.next = undefined;
  }
}

/** Where nothing stops it but the time. */
export function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  return new Steps().within(ms, answer);
}
