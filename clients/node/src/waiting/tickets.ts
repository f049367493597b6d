/**
 * Waiting by a ticket: a place in the server's queue without a connection that waits. Whoever is told of no grants waits on a
 * connection as well, for a slice at a time: it takes the place over from the ticket, and the next ticket takes it back.
 */
import { failed } from '../asking.js';
import type { Granted } from '../attempt.js';
import { RETRY, ROOM, rest } from '../backoff.js';
import { type Moment, now } from '../clock.js';
import { closeOnceOpen, type Dedicated } from '../connection.js';
import { Unanswered } from '../steps.js';
import { codeOf, refusal, verdict } from '../verdict.js';
import { Place, type Told } from './places.js';

/** How often a place is asked for while nobody tells of grants, unless there are many. */
const UNHEARD = 250;

export type Waited = Granted | 'no queue' | null;

export class Waiting extends Place {
  #failures = 0;
  #silentSince: Moment | undefined;
  /** What the server said last, unless it has answered since. */
  #refusal: unknown;
  #isQueued = false;
  /** One of the connections that may wait is this one's. */
  #hasRoom = false;
  #line: Promise<Dedicated> | undefined;

  async wait(): Promise<Waited> {
    const { attempt, places, limits } = this;
    const { until, steps } = limits;
    const { server, claim } = attempt;
    places.enter(this);
    // One frame for all of it: there may be many who wait.
    try {
      for (;;) {
        steps.throwIfStopped();
        const asked = now();
        // The lock was busy, unless the server had no place.
        if (asked >= until && this.#refusal === undefined) return null;
        if (asked >= until) throw server.told(this.#refusal);
        if (server.connection.isClosed()) throw server.closed();
        let told: Told | undefined;
        try {
          told = await this.ask(asked);
          if (typeof told === 'object') return told;
          if (server.isPlain()) return 'no queue';
          [this.#failures, this.#silentSince, this.#refusal, this.#isQueued] = [0, undefined, undefined, true];
        } catch (error) {
          failed(error, server, claim, { ask: 'ticket' }, limits, asked, attempt);
          steps.throwIfStopped();
          const isNews = server.learns(error) || (this.asksFor === 'ticket' && places.learns(refusal(error)));
          if (server.isPlain()) return 'no queue';
          if (!isNews && !(await this.#mayAskAgain(error, asked))) return null;
          continue;
        }
        if (this.ear === undefined) {
          // What was granted meanwhile was not told.
          if (await this.#listens()) continue;
          this.dueAt = Number.POSITIVE_INFINITY;
          if (places.isMute && (await this.#waitsOnConnection())) continue;
          const resting = Math.min(places.settings.slice, Math.max(UNHEARD, places.size));
          told = await this.sleep(Math.min(until, now() + resting));
          if (typeof told === 'object') return told;
        }
        // What was told meanwhile is lost: so all ask, and not all at once.
        if (told === 'cut') await steps.sleep(Math.min(Math.random() * places.size, until - now()));
      }
    } finally {
      this.leave();
      closeOnceOpen(this.#line);
      if (this.#hasRoom) places.blocked -= 1;
    }
  }

  /** Rests before the next try. False: there is none, and the lock was busy. */
  async #mayAskAgain(error: unknown, asked: Moment): Promise<boolean> {
    const { server } = this.attempt;
    const { until, each, steps } = this.limits;
    const means = verdict(error);
    if (means === 'refused') throw server.told(error);
    if (means === 'elsewhere') server.connection.elsewhere();
    this.#refusal = means === 'broken' ? undefined : error;
    this.#silentSince = means === 'broken' ? (this.#silentSince ?? asked) : undefined;
    const silentSince = this.#silentSince ?? Number.POSITIVE_INFINITY;
    if (now() - silentSince >= this.places.settings.unreachableAfter) throw server.told(error);
    const resting = rest(codeOf(error) === 'QUEUEFULL' ? ROOM : RETRY, this.#failures++);
    const hasTime = now() + resting < until;
    await steps.sleep(hasTime ? resting : until - now());
    if (hasTime) return true;
    // It was busy when the server had time to answer.
    if (this.#isQueued && means === 'broken' && until - asked < each) return false;
    throw server.told(error);
  }

  async #listens(): Promise<boolean> {
    const { places, attempt } = this;
    const { each, until, steps } = this.limits;
    if (places.isMute) return false;
    try {
      // There has to be time to ask.
      await places.listen(attempt.claim.key, Math.min(each, until - now()) / 2, steps);
      return true;
    } catch (error) {
      steps.throwIfStopped();
      if (verdict(error) === 'refused') places.learns('no channel');
      return false;
    }
  }

  /** Whatever comes of it, the next request tells. False: it has not waited. */
  async #waitsOnConnection(): Promise<boolean> {
    const { attempt, places } = this;
    const { until, each, steps } = this.limits;
    const { server, wanted, claim } = attempt;
    if (!this.#hasRoom && places.blocked >= places.settings.waitConnections) return false;
    if (!this.#hasRoom) places.blocked += 1;
    this.#hasRoom = true;
    const [end, former] = [Math.min(until, now() + places.settings.slice), this.#line];
    this.#line = server.connection.dedicated(claim.key);
    try {
      const line = await steps.within(Math.min(each, end - now()), this.#line);
      attempt.wasCut = true;
      const patience = 3 * places.settings.slice + each;
      const answer = server.askOn(line, claim, { ask: 'wait', ttl: wanted.ttl, patience });
      // A module without tickets hands the place from one connection to the next.
      closeOnceOpen(former);
      await steps.within(end - now(), answer);
      attempt.wasCut = false;
      return true;
    } catch (error) {
      steps.throwIfStopped();
      return error instanceof Unanswered && now() >= end;
    } finally {
      closeOnceOpen(former);
    }
  }
}
