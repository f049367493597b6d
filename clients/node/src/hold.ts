/**
 * A lock that is held, from its grant until it is released, kept or lost. Programs have a `Lease`, which refers to this; it
 * does not refer to the lease, so that the garbage collector tells when the program has none any more.
 */
import { type Answer, ask } from './asking.js';
import { type Moment, now } from './clock.js';
import { LeaseholdError, LostError, type Loss, RefusedError } from './errors.js';
import { Extensions } from './extensions.js';
import type { Server } from './server.js';
import { checkDuration } from './settings.js';
import { RETRY, rest, sleep, Unanswered } from './timers.js';
import type { Tell } from './trouble.js';
import { patienceForAnswer, renewAt, validUntil } from './validity.js';
import { isRefused } from './verdict.js';

/** What a release came to. */
export type Released =
  /** It was held until now, and is free or the next one's. */
  | 'released'
  /** It was lost before. Somebody else may have had it while the work was going on. */
  | 'late'
  /** It was held until now, and the server frees it when the time of `holdAtLeast` is over. */
  | 'later';

/** What an extension came to. */
export type Extended = 'extended' | 'lost';

export interface Held {
  readonly server: Server;
  /** As errors show it. */
  readonly name: string;
  readonly key: Buffer;
  readonly owner: string;
  readonly fence: bigint;
  readonly ttl: number;
  readonly asked: Moment;
  readonly response: number;
  readonly within: number;
  /** Until when it is renewed. */
  readonly renewUntil: Moment;
  readonly holdUntil: Moment;
  readonly tell: Tell;
  /** It is held no more. */
  readonly ended: (hold: Hold) => void;
  /** Nobody counts on it any more, and it is not to stay. */
  readonly over: () => void;
  /** Its release is under way. If that fails, it stays until then. */
  readonly releasing: (release: Promise<unknown>, end: Moment) => void;
}

export class Hold {
  readonly #held: Held;
  readonly #over = new AbortController();
  readonly #extensions = new Extensions();
  readonly #tells: ((loss: Loss, reason?: LeaseholdError) => void)[] = [];
  #ttl: number;
  /** What the server has agreed to. */
  #agreed: number;
  #validUntil: Moment;
  #loss: Loss | undefined;
  #reason: LeaseholdError | undefined;
  /** How many extensions are under way. */
  #asking = 0;
  /** What the last renewal failed with. */
  #failure: LeaseholdError | undefined;
  #released: Promise<Released> | undefined;
  #ending: NodeJS.Timeout | undefined;
  #renewing: NodeJS.Timeout | undefined;

  constructor(held: Held) {
    this.#held = held;
    this.#ttl = held.ttl;
    this.#agreed = held.ttl;
    this.#validUntil = validUntil(held.asked, held.ttl);
    this.#schedule(held.asked);
  }

  /** The name of the lock, its owner and its fence. */
  get granted(): Held {
    return this.#held;
  }

  /** Told once when it is held no more, and with the reason for a signal, unless the program has given it up itself. */
  whenOver(tell: (loss: Loss, reason?: LeaseholdError) => void): void {
    if (this.look()) this.#tells.push(tell);
    else tell(this.#loss ?? 'expired', this.#reason);
  }

  /** For how many milliseconds it is certainly held; 0 if it is lost, or released. */
  validFor(): number {
    return this.look() ? this.#validUntil - now() : 0;
  }

  /**
   * Has the lease end so many milliseconds from now, and renews it by as much from now on. Rejects if nobody answers:
   * the lease is as it was then, or extended. It counts for the shorter of the two.
   */
  async extend(ttl = this.#ttl): Promise<Extended> {
    checkDuration('ttl', ttl, 1);
    if (!this.look()) return 'lost';
    this.#ttl = ttl;
    clearTimeout(this.#renewing);
    try {
      return await this.#extend(ttl, Math.min(this.#validUntil, now() + this.#held.within));
    } catch (error) {
      // To renew it by as much would be refused each time.
      if (error instanceof RefusedError && this.#ttl === ttl) this.#ttl = this.#agreed;
      // It is held on, and may have little time left.
      if (now() < this.#held.renewUntil) void this.#renew();
      throw error;
    }
  }

  /** Gives the lock back. Takes no longer than `within`, and rejects if nobody has answered by then. */
  release(): Promise<Released> {
    if (this.#released === undefined) {
      this.#released = this.#release();
      this.#held.releasing(this.#released, this.#validUntil);
    }
    return this.#released;
  }

  /** Stops the renewal, and leaves the lock to its lease: for work that is to be done once in a while by one of many. */
  keep(): void {
    if (!this.look()) return;
    this.#released ??= Promise.resolve('later');
    this.#end('released');
  }

  close(reason: LeaseholdError): Promise<Released> {
    if (this.look()) this.#end('closed', reason);
    return this.release();
  }

  /** The program has lost hold of its lease. */
  forgotten(): void {
    if (!this.look()) return;
    const { name, owner, tell } = this.#held;
    const error = new LeaseholdError(`the lease of the lock ${name} was dropped, and not released before`);
    tell({ kind: 'forgotten', name, owner, error });
    this.release().catch(() => {});
  }

  async #release(): Promise<Released> {
    const { server, key, owner, fence, holdUntil, within, response, tell, name } = this.#held;
    const isHeld = this.look();
    const wasLost = this.#loss === 'expired' || this.#loss === 'taken';
    const end = this.#validUntil;
    if (isHeld) this.#end('released');
    // The server has said so.
    if (this.#loss === 'taken') return 'late';
    const begun = now();
    const until = begun + within;
    const limits = { each: patienceForAnswer(response, this.#ttl), until };
    try {
      const left = holdUntil - begun;
      if (left > 0 && !wasLost) {
        const answer = await ask(server, key, { ask: 'extend', owner, fence, ttl: left }, limits);
        return isInTime(answer, end) ? 'later' : 'late';
      }
      this.#held.over();
      const answer = await ask(server, key, { ask: 'release', owner, fence }, limits);
      return !wasLost && isInTime(answer, end) ? 'released' : 'late';
    } catch (error) {
      const failure = this.#held.server.told(error);
      tell({ kind: 'release failed', name, owner, error: failure });
      throw failure;
    }
  }

  async #extend(ttl: number, until: Moment): Promise<Extended> {
    const { server, key, owner, fence, response } = this.#held;
    const limits = { each: patienceForAnswer(response, ttl), until, signal: this.#over.signal };
    const number = this.#extensions.begin(ttl);
    this.#expect(validUntil(now(), ttl));
    let answer: Answer;
    this.#asking += 1;
    try {
      answer = await ask(server, key, { ask: 'extend', owner, fence, ttl }, limits);
    } catch (error) {
      if (this.#over.signal.aborted) return 'lost';
      throw error;
    } finally {
      this.#asking -= 1;
    }
    if (!this.look()) return 'lost';
    if (answer.number !== 1n) {
      this.#lose('taken');
      return 'lost';
    }
    this.#agreed = ttl;
    this.#failure = undefined;
    const counted = this.#extensions.counted(number, answer, ttl);
    if (counted !== undefined) this.#validUntil = validUntil(answer.asked, counted);
    if (!this.look()) return 'lost';
    this.#schedule(answer.asked);
    return 'extended';
  }

  async #renew(): Promise<void> {
    const ttl = this.#ttl;
    for (let tries = 0; this.look() && ttl === this.#ttl; tries++) {
      try {
        await this.#extend(ttl, this.#validUntil);
        return;
      } catch (error) {
        this.#failure = this.#held.server.told(error);
        // Each further one would come to the same. The program may need what is left of the lease.
        if (isRefused(this.#failure)) {
          const { name, owner, tell } = this.#held;
          tell({ kind: 'renewal refused', name, owner, error: this.#failure });
          return;
        }
        await sleep(rest(RETRY, tries), this.#over.signal, { keepsAlive: false }).catch(() => {});
      }
    }
  }

  /** The server may have it end as early as that from now on, whether or not that is heard of. */
  #expect(end: Moment): void {
    if (end >= this.#validUntil) return;
    this.#validUntil = end;
    this.#watch();
  }

  /** Sees it end. */
  #watch(): void {
    clearTimeout(this.#ending);
    const look = () => {
      if (this.look()) this.#ending = later(look, this.#validUntil);
    };
    this.#ending = later(look, this.#validUntil);
  }

  /** When to look at it next. */
  #schedule(asked: Moment): void {
    this.#watch();
    clearTimeout(this.#renewing);
    const at = renewAt(asked, this.#ttl);
    const renew = () => {
      if (now() < at) this.#renewing = later(renew, at);
      else void this.#renew();
    };
    if (at < this.#held.renewUntil) this.#renewing = later(renew, at);
  }

  /** Whether it is held: it looks at the clock. */
  look(): boolean {
    if (this.#loss === undefined && now() >= this.#validUntil) this.#lose('expired');
    return this.#loss === undefined;
  }

  #lose(loss: Loss): void {
    const { name, owner, tell } = this.#held;
    const error = new LostError(name, loss, loss === 'expired' ? this.#whyNotRenewed() : undefined);
    this.#end(loss, error);
    this.#held.over();
    tell({ kind: 'lost', name, owner, error });
  }

  /** It may be under way, and nobody has answered. */
  #whyNotRenewed(): LeaseholdError | undefined {
    return this.#failure ?? (this.#asking > 0 ? this.#held.server.told(new Unanswered('no answer')) : undefined);
  }

  #end(loss: Loss, reason?: LeaseholdError): void {
    this.#loss = loss;
    this.#reason = reason;
    clearTimeout(this.#ending);
    clearTimeout(this.#renewing);
    this.#over.abort();
    this.#held.ended(this);
    for (const tell of this.#tells.splice(0)) tell(loss, reason);
  }
}

/** No timer is longer: one that was set before the machine went to sleep is late by as long as it slept. */
const LONGEST_REST = 1_000;

/** A program whose connections are closed may end before. */
function later(what: () => void, moment: Moment): NodeJS.Timeout {
  return setTimeout(what, Math.min(Math.max(0, moment - now()), LONGEST_REST)).unref();
}

/** An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had the lock. */
function isInTime({ number, asked, repeated }: Answer, end: Moment): boolean {
  return number === 1n || (repeated && asked < end);
}
