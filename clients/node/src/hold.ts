/**
 * A lock that is held, from its grant until it is released, detached or lost. Programs have a `Lease`, which refers to this; it
 * does not refer to the lease, so that the garbage collector tells when the program has none any more.
 */
import { type Answer, ask } from './asking.js';
import type { Attempt, Granted } from './attempt.js';
import { RETRY, rest } from './backoff.js';
import { type Moment, now } from './clock.js';
import { cancel, Deadline, set } from './deadlines.js';
import { LeaseholdError, LostError, type Loss, RefusedError } from './errors.js';
import { type CommandWord, guard } from './guard.js';
import type { LockEvent } from './events.js';
import { Extensions } from './extensions.js';
import { type Claim, EXCLUSIVE, type Share } from './questions.js';
import { checkDuration } from './settings.js';
import { Steps, Unanswered } from './steps.js';
import type { Tell } from './trouble.js';
import { drift, patienceForAnswer, renewAt, validUntil } from './validity.js';
import { isRefused } from './verdict.js';

export type Released =
  /** It was held until now, and is free or the next one's. */
  | 'released'
  /** It was lost before. Somebody else may have had it while the work was going on. */
  | 'late'
  /** It was held until now, and the server frees it when the time of `holdAtLeast` is over. */
  | 'later';

export type Extended = 'extended' | 'lost';

/** Most are released before, and cost less for it. */
const SETTLES_WITHIN = 1_000;

/** What is the same for all holds of a `Leasehold`. */
export interface Holder {
  readonly settings: { readonly response: number; readonly within: number };
  /** Those that are held, or whose release is under way. */
  readonly holds: Set<Hold>;
  readonly tell: Tell;
  /** A request about a lock is under way. If that fails, it stays until then. */
  readonly await: (request: Promise<unknown>, name: string, end: Moment) => void;
}

type How = 'extend' | 'acquire';

export interface Terms {
  readonly renewUntil: Moment;
  readonly holdUntil: Moment;
}

export class Hold extends Deadline {
  fence: number;
  #ttl: number;
  #agreed: number;
  #validUntil: Moment;
  /** The server does not know yet that somebody has heard of the grant. */
  #isUnclaimed: boolean;
  /** An upgrade is not answered: the server may have it by another fence. */
  #isUnsure = false;
  #renewAt: Moment = Number.POSITIVE_INFINITY;
  /** Of extensions, of which `#asking` are under way. */
  #steps: Steps | undefined;
  #asking = 0;
  #extensions: Extensions | undefined;
  #failure: LeaseholdError | undefined;
  #loss: Loss | undefined;
  #reason: LeaseholdError | undefined;
  #tells: ((loss: Loss, reason?: LeaseholdError) => void)[] | undefined;
  #released: Promise<Released> | undefined;
  #unbind = () => {};
  /** Undefined once it has been held for a while. */
  #settled: (() => void) | undefined = () => {};

  constructor(
    readonly holder: Holder,
    readonly attempt: Attempt,
    { fence, asked, lasts, isUnclaimed = false }: Granted,
    readonly terms: Terms,
  ) {
    super(Number.POSITIVE_INFINITY, false);
    this.fence = fence;
    this.#ttl = attempt.wanted.ttl;
    if (attempt.emit !== undefined) attempt.since = now();
    this.#agreed = this.#ttl;
    this.#validUntil = validUntil(asked, lasts);
    this.#isUnclaimed = isUnclaimed;
    this.#bind();
    holder.holds.add(this);
    // Who does not renew it claims it all the same, to have it for its ttl.
    const isClaimedAtOnce = isUnclaimed && terms.renewUntil < asked + this.#ttl;
    this.#schedule(isClaimedAtOnce ? now() : renewAt(asked, lasts));
  }

  /** Told once when it has been held for a while, if it is then. What is told stays referred to until then. */
  whenSettled(tell: () => void): void {
    this.#settled = tell;
  }

  get name(): string {
    return this.attempt.wanted.name;
  }

  get #sureFence(): number | undefined {
    return this.#isUnsure ? undefined : this.fence;
  }

  get claim(): Claim {
    return this.attempt.claim;
  }

  /** Told once when it is held no more, and with the reason for a signal, unless the program has given it up itself. */
  whenOver(tell: (loss: Loss, reason?: LeaseholdError) => void): void {
    if (!this.look()) tell(this.#loss ?? 'expired', this.#reason);
    else if (this.#tells === undefined) this.#tells = [tell];
    else this.#tells.push(tell);
  }

  /** Whether it is held: it looks at the clock. */
  look(here = now()): boolean {
    if (this.#loss === undefined && here >= this.#validUntil) this.lose('expired');
    return this.#loss === undefined;
  }

  validFor(): number {
    return this.look() ? this.#validUntil - now() : 0;
  }

  async extend(ttl = this.#ttl): Promise<Extended> {
    checkDuration('ttl', ttl, 1);
    if (!this.look()) return 'lost';
    this.#ttl = ttl;
    this.#watch();
    try {
      return await this.#extend(ttl, Math.min(this.#validUntil, now() + this.holder.settings.within));
    } catch (error) {
      // To renew it by as much would be refused each time.
      if (error instanceof RefusedError && this.#ttl === ttl) this.#ttl = this.#agreed;
      // It is held on, and may have little time left.
      if (now() < this.terms.renewUntil) void this.#renew();
      throw error;
    }
  }

  throwIfLost(): void {
    if (!this.look()) throw new LostError(this.name, this.#loss ?? 'expired', this.#failure);
  }

  async guard(command: readonly CommandWord[]): Promise<unknown> {
    return guard(this, this.attempt.server, command, this.holder.settings.response);
  }

  /** Has another share of it: by a new fence if that is tighter, and null if there are too many others for that. */
  async share(share: Share): Promise<number | null> {
    this.throwIfLost();
    const as = { ...this.claim, share };
    const isUpgrade = share === EXCLUSIVE;
    if (isUpgrade) this.#isUnsure = true;
    this.#steps ??= new Steps(false);
    const until = Math.min(this.#validUntil, now() + this.holder.settings.within);
    const asking = this.#ask(this.#ttl, until, this.#steps, 'acquire', as);
    const { number } = await asking.finally(() => this.throwIfLost());
    this.#isUnsure = false;
    if (number === null && isUpgrade) return null;
    if (number === null || (!isUpgrade && number !== this.fence)) {
      this.lose('taken');
      this.attempt.late();
      this.throwIfLost();
    }
    this.fence = number ?? this.fence;
    this.attempt.claim = as;
    this.#isUnclaimed = false;
    return this.fence;
  }

  release(): Promise<Released> {
    if (this.#released !== undefined) return this.#released;
    this.#released = this.#release();
    if (this.attempt.emit !== undefined) {
      const failed = (error: LeaseholdError) => this.#emit('released', { error });
      this.#released.then((outcome) => this.#emit('released', { outcome }), failed);
    }
    return this.#released;
  }

  async extendBy(ms: number): Promise<Extended> {
    checkDuration('ms', ms, 0);
    return this.extend(this.validFor() + drift(this.#ttl) + ms);
  }

  leave(): void {
    if (!this.look()) return;
    this.#released ??= Promise.resolve('later');
    this.#emit('released', { outcome: 'later' });
    this.#end('released');
    this.holder.holds.delete(this);
    if (!this.#isUnclaimed) return;
    // Otherwise it would not stay for its ttl.
    const claimed = this.#ask(this.#ttl, now() + this.holder.settings.within);
    claimed.catch(() => {});
    this.holder.await(claimed, this.name, this.#validUntil);
  }

  close(reason: LeaseholdError): Promise<Released> {
    if (this.look()) this.#end('closed', reason);
    return this.release();
  }

  forgotten(): void {
    if (!this.look()) return;
    this.#tell(
      'forgotten',
      new LeaseholdError(`the lease of the lock ${this.name} was dropped, and not released before`),
    );
    this.release().catch(() => {});
  }

  async #release(): Promise<Released> {
    const { server, claim } = this.attempt;
    const begun = now();
    const isHeld = this.look(begun);
    const wasLost = this.#loss === 'expired' || this.#loss === 'taken';
    const end = this.#validUntil;
    if (isHeld) this.#end('released');
    // The server has said so: of one of them, if there are several.
    if (this.#loss === 'taken' && claim.also.length === 0) return 'late';
    const until = begun + this.holder.settings.within;
    if (wasLost) this.holder.holds.add(this);
    try {
      const left = this.terms.holdUntil - begun;
      if (left > 0 && !wasLost) return isInTime(await this.#ask(left, until), end) ? 'later' : 'late';
      this.attempt.over();
      // A message may have been forged: then the owner has a place in the queue, which only this gives back.
      const fence = this.#isUnclaimed ? undefined : this.#sureFence;
      const answer = await ask(server, claim, { ask: 'release', fence }, this.#limits(until, new Steps()));
      return !wasLost && isInTime(answer, end, claim.also.length + 1) ? 'released' : 'late';
    } catch (error) {
      const failure = server.told(error);
      this.#tell('release failed', failure);
      this.holder.await(Promise.reject(error), this.name, end);
      // It was told, also if nobody awaits it.
      this.#released?.catch(() => {});
      throw failure;
    } finally {
      this.holder.holds.delete(this);
    }
  }

  #bind(): void {
    this.#unbind();
    const { bond, claim } = this.attempt;
    const { grace } = claim;
    if (bond !== undefined && grace !== undefined) this.#unbind = bond.whenEnded(() => this.#bindAgain(grace));
  }

  /** Asked for within the grace, it is bound to another connection. One that is not renewed lasts no longer for that. */
  async #bindAgain(grace: number): Promise<void> {
    if (!this.look()) return;
    const ttl = now() < this.terms.renewUntil ? this.#ttl : this.validFor();
    this.#expect(validUntil(now(), grace));
    if (!this.look()) return;
    try {
      await this.#extend(ttl, this.#validUntil, 'acquire');
      if (this.look()) this.#bind();
    } catch (error) {
      this.#failure = this.attempt.server.told(error);
    }
  }

  async #extend(ttl: number, until: Moment, how: How = 'extend'): Promise<Extended> {
    this.#steps ??= new Steps(false);
    this.#extensions ??= new Extensions();
    const number = this.#extensions.begin(ttl);
    const fence = this.#sureFence;
    this.#expect(validUntil(now(), ttl));
    this.#asking += 1;
    const asking = this.#ask(ttl, until, this.#steps, how).finally(() => {
      this.#asking -= 1;
    });
    const answer = await asking.catch((error) => {
      if (this.#loss === undefined) throw error;
    });
    if (answer === undefined || !this.look()) return 'lost';
    // It has another fence by now, or may have.
    const isOther = how === 'extend' && (this.#isUnsure || fence !== this.fence);
    if (answer.number === 0 && isOther && fence !== undefined) return this.#extend(ttl, until);
    if (answer.number !== (how === 'extend' ? 1 : this.fence)) {
      this.lose('taken');
      // A later grant of the same owner is nobody's.
      if (how === 'acquire') this.attempt.late();
      return 'lost';
    }
    this.#agreed = ttl;
    this.#isUnclaimed = false;
    this.#failure = undefined;
    const counted = this.#extensions.counted(number, answer, ttl);
    if (counted !== undefined) this.#validUntil = validUntil(answer.asked, counted);
    if (!this.look()) return 'lost';
    this.#schedule(renewAt(answer.asked, this.#ttl));
    this.#emit('renewed');
    return 'extended';
  }

  #ask(ttl: number, until: Moment, steps = new Steps(), how: How = 'extend', claim = this.claim): Promise<Answer> {
    const { server } = this.attempt;
    const limits = this.#limits(until, steps, ttl);
    if (how === 'acquire') return ask(server, claim, { ask: how, ttl }, limits, this.attempt);
    return ask(server, claim, { ask: how, fence: this.#sureFence, ttl }, limits);
  }

  #limits(until: Moment, steps: Steps, ttl = this.#ttl) {
    return { each: patienceForAnswer(this.holder.settings.response, ttl), until, steps };
  }

  async #renew(): Promise<void> {
    const ttl = this.#ttl;
    for (let tries = 0; this.look() && ttl === this.#ttl; tries++) {
      try {
        await this.#extend(ttl, this.#validUntil);
        return;
      } catch (error) {
        this.#failure = this.attempt.server.told(error);
        // Each further one would come to the same. The program may need what is left of the lease.
        if (isRefused(this.#failure)) return this.#tell('renewal refused', this.#failure);
        await this.#steps?.sleep(rest(RETRY, tries)).catch(() => {});
      }
    }
  }

  /** The server may have it end as early as that from now on, whether or not that is heard of. */
  #expect(end: Moment): void {
    if (end >= this.#validUntil) return;
    this.#validUntil = end;
    this.#watch();
  }

  #watch(): void {
    this.#renewAt = Number.POSITIVE_INFINITY;
    this.#rest(this.#validUntil);
  }

  #rest(until: Moment): void {
    cancel(this);
    this.at = until;
    set(this);
  }

  #schedule(renewAt: Moment): void {
    if (this.#isUnclaimed || renewAt < this.terms.renewUntil) {
      this.#renewAt = renewAt;
      this.#rest(this.#settled ? Math.min(now() + SETTLES_WITHIN, renewAt) : renewAt);
    } else this.#watch();
  }

  override due(): void {
    const here = now();
    if (!this.look(here)) return;
    this.#settled?.();
    this.#settled = undefined;
    if (here >= this.#renewAt) {
      this.#watch();
      void this.#renew();
    } else this.#rest(Math.min(this.#renewAt, this.#validUntil));
  }

  /** It is not held any more, and nobody has given it up. */
  lose(loss: Loss): void {
    if (this.#loss !== undefined) return;
    const error = new LostError(this.name, loss, loss === 'expired' ? this.#whyNotRenewed() : undefined);
    this.#end(loss, error);
    this.holder.holds.delete(this);
    if (this.#isUnclaimed) this.attempt.giveUp();
    else this.attempt.over();
    this.#emit('lost', { outcome: loss, error });
    this.#tell('lost', error);
  }

  /** It may be under way, and nobody has answered. */
  #whyNotRenewed(): LeaseholdError | undefined {
    return this.#failure ?? (this.#asking > 0 ? this.attempt.server.told(new Unanswered('no answer')) : undefined);
  }

  #end(loss: Loss, reason?: LeaseholdError): void {
    this.#loss = loss;
    this.#reason = reason;
    cancel(this);
    this.#unbind();
    this.#settled = undefined;
    this.#steps?.stop();
    const tells = this.#tells;
    this.#tells = undefined;
    for (const tell of tells ?? []) tell(loss, reason);
  }

  #emit(step: LockEvent['step'], more: Partial<LockEvent> = {}): void {
    if (this.attempt.emit !== undefined) this.attempt.tell(step, { fence: BigInt(this.fence), ...more });
  }

  #tell(kind: Parameters<Tell>[0]['kind'], error: LeaseholdError): void {
    this.holder.tell({ kind, name: this.name, owner: this.claim.owner, error });
  }
}

/** An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had the lock. */
function isInTime({ number, asked, repeated }: Answer, end: Moment, all = 1): boolean {
  return number === all || (repeated && asked < end);
}
