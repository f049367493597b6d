/** How a lock is asked for: at once, and then in the server's queue; where there is no queue, again and again. */
import type { Attempt, Granted } from './attempt.js';
import { type Moment, now } from './clock.js';
import { TooLateError, UnreachableError } from './errors.js';
import type { Checked } from './settings.js';
import { POLL, RETRY, ROOM, rest, sleep, within } from './timers.js';
import { isFresh, patienceForAnswer, validUntil } from './validity.js';
import { verdict } from './verdict.js';
import { waitOnConnection } from './waiting/blocking.js';
import type { Grants } from './waiting/grants.js';
import type { Room } from './waiting/room.js';
import { type Patience, waitByTicket } from './waiting/tickets.js';

/** Tickets that were refused are asked for again after so long. */
const REFUSED_FOR = 60_000;

export class Acquiring {
  #ticketsRefusedUntil: Moment = Number.NEGATIVE_INFINITY;

  constructor(
    readonly settings: Checked,
    readonly grants: Grants,
    readonly room: Room,
  ) {}

  /** Null: somebody else has it, and patience has ended. */
  async acquire(attempt: Attempt, signal: AbortSignal): Promise<Granted | null> {
    let isHeld = false;
    try {
      const granted = await this.#granted(attempt, signal);
      isHeld = granted !== null;
      return granted;
    } finally {
      if (!isHeld) attempt.giveUp();
    }
  }

  async #granted(attempt: Attempt, signal: AbortSignal): Promise<Granted | null> {
    const { wait, ttl, name } = attempt.wanted;
    const { within: limit, response, unreachableAfter, slice } = this.settings;
    const each = patienceForAnswer(response, ttl);
    const begun = now();
    const until = wait === 0 ? begun + limit : begun + wait;
    const patience: Patience = { until, signal, each, slice, unreachableAfter };
    let fence: bigint | null;
    let asked: Moment;
    for (let tries = 0; ; tries++) {
      const trying = Math.min(until, now() + unreachableAfter);
      const isLast = tries > 0 && until - now() < each;
      try {
        ({ number: fence, asked } = await attempt.ask({ each, until: trying, signal }));
      } catch (error) {
        // It was busy when the server had time to answer.
        if (isLast && error instanceof UnreachableError) return null;
        throw error;
      }
      if (fence !== null) {
        if (now() < validUntil(asked, ttl)) return { fence, asked };
        // The answer took longer than the lease. Asked again, it is the same grant, or over.
        if (now() >= until) throw new TooLateError(name);
        await sleep(Math.min(rest(RETRY, tries), until - now()), signal);
        continue;
      }
      if (wait === 0 || now() >= until) return null;
      if (attempt.server.isPlain()) {
        await sleep(Math.min(rest(POLL, tries), until - now()), signal);
        if (now() >= until) return null;
        continue;
      }
      const granted = await this.#wait(attempt, patience);
      if (granted !== null && now() < validUntil(granted.asked, ttl)) return granted;
      if (now() >= until) return null;
    }
  }

  async #wait(attempt: Attempt, patience: Patience): Promise<Granted | null> {
    if (now() >= this.#ticketsRefusedUntil) {
      const waited = await waitByTicket(attempt, this.grants, patience);
      if (waited === 'no queue') return null;
      if (waited !== 'no tickets') return waited;
      this.#ticketsRefusedUntil = now() + REFUSED_FOR;
    }
    return this.#waitOnConnection(attempt, patience);
  }

  /** What is not fresh, or unknown, is asked for once more by whoever called this. */
  async #waitOnConnection(attempt: Attempt, patience: Patience): Promise<Granted | null> {
    const { until, signal } = patience;
    const place = this.room.enter();
    try {
      // The lock may become free while others wait for other locks on all connections there may be.
      const resting = rest(ROOM, 3);
      const isIn = await within(Math.min(resting, until - now()), place.entered, signal).then(
        () => true,
        () => false,
      );
      signal.throwIfAborted();
      if (!isIn) return null;
      const asked = now();
      const fence = await waitOnConnection(attempt, patience);
      return fence !== null && isFresh(asked, attempt.wanted.ttl, now()) ? { fence, asked } : null;
    } catch (error) {
      signal.throwIfAborted();
      const means = verdict(error);
      if (means === 'refused') throw attempt.server.told(error);
      const resting = rest(means === 'again' ? ROOM : RETRY, 0);
      if (now() + resting >= until) {
        await sleep(until - now(), signal);
        throw attempt.server.told(error);
      }
      await sleep(resting, signal);
      return null;
    } finally {
      place.leave();
    }
  }
}
