/** How a lock is asked for: in the server's queue; where there is no queue, again and again. */
import type { Attempt, Granted } from './attempt.js';
import { POLL, RETRY, ROOM, rest } from './backoff.js';
import { type Moment, now } from './clock.js';
import { TooLateError, UnreachableError } from './errors.js';
import type { Checked } from './settings.js';
import { isFresh, patienceForAnswer, validUntil } from './validity.js';
import { verdict } from './verdict.js';
import { type Room, waitOnConnection } from './waiting/blocking.js';
import type { Places } from './waiting/places.js';
import { type Patience, waitByTicket } from './waiting/tickets.js';

/** Tickets that were refused are asked for again after so long. */
const REFUSED_FOR = 60_000;

export class Acquiring {
  #ticketsRefusedUntil: Moment = Number.NEGATIVE_INFINITY;

  constructor(
    readonly settings: Checked,
    readonly places: Places,
    readonly room: Room,
  ) {}

  /** Null: somebody else has it, and patience has ended. */
  async acquire(attempt: Attempt): Promise<Granted | null> {
    const { wait, ttl, name } = attempt.wanted;
    const { within, response, unreachableAfter, slice } = this.settings;
    const { steps } = attempt;
    const until = attempt.begun + (wait === 0 ? within : wait);
    const patience: Patience = { until, each: patienceForAnswer(response, ttl), steps, slice, unreachableAfter };
    for (let tries = 0; ; tries++) {
      const waited = this.#mayQueue(attempt) ? await waitByTicket(attempt, this.places, patience) : 'no queue';
      if (waited === 'no tickets') this.#ticketsRefusedUntil = now() + REFUSED_FOR;
      const granted = typeof waited === 'string' ? await this.#ask(attempt, patience, tries) : waited;
      if (granted !== null) {
        if (now() < validUntil(granted.asked, granted.lasts)) return granted;
        // The answer took longer than the lease. Asked again, it is the same grant, or over.
        if (now() >= until) throw new TooLateError(name);
        await steps.sleep(Math.min(rest(RETRY, tries), until - now()));
      } else {
        if (wait === 0 || now() >= until) return null;
        if (attempt.server.isPlain()) await steps.sleep(Math.min(rest(POLL, tries), until - now()));
        if (now() >= until) return null;
      }
    }
  }

  #mayQueue({ wanted, server }: Attempt): boolean {
    if (wanted.wait === 0 || server.isPlain()) return false;
    return this.#ticketsRefusedUntil < 0 || now() >= this.#ticketsRefusedUntil;
  }

  async #ask(attempt: Attempt, patience: Patience, tries: number): Promise<Granted | null> {
    const { until, each, steps, unreachableAfter } = patience;
    const trying = Math.min(until, now() + unreachableAfter);
    // It was busy when the server had time to answer.
    const isLast = tries > 0 && until - now() < each;
    const granted = await attempt.ask({ each, until: trying, steps }).catch((error) => {
      if (isLast && error instanceof UnreachableError) return null;
      throw error;
    });
    const isOver = granted !== null || attempt.wanted.wait === 0 || now() >= until;
    if (isOver || attempt.server.isPlain()) return granted;
    return this.#waitOnConnection(attempt, patience);
  }

  /** What is not fresh, or unknown, is asked for once more by whoever called this. */
  async #waitOnConnection(attempt: Attempt, patience: Patience): Promise<Granted | null> {
    const { until, steps } = patience;
    const { server, wanted, claim } = attempt;
    const place = this.room.enter();
    try {
      // The lock may become free while others wait for other locks on all connections there may be.
      const resting = rest(ROOM, 3);
      const isIn = await steps.within(Math.min(resting, until - now()), place.entered).then(
        () => true,
        () => false,
      );
      steps.throwIfStopped();
      if (!isIn) return null;
      const asked = now();
      const fence = await waitOnConnection(attempt, patience);
      // What is to be bound to a connection is asked for once more on that.
      if (claim.grace !== undefined) return null;
      return fence !== null && isFresh(asked, wanted.ttl, now()) ? { fence, asked, lasts: wanted.ttl } : null;
    } catch (error) {
      steps.throwIfStopped();
      const means = verdict(error);
      if (means === 'refused') throw server.told(error);
      const resting = rest(means === 'again' ? ROOM : RETRY, 0);
      if (now() + resting >= until) {
        await steps.sleep(until - now());
        throw server.told(error);
      }
      await steps.sleep(resting);
      return null;
    } finally {
      place.leave();
    }
  }
}
