/** How a lock is asked for: in the server's queue; where there is no queue, again and again. */
import type { Attempt, Granted } from './attempt.js';
import { POLL, RETRY, rest } from './backoff.js';
import { now } from './clock.js';
import { TooLateError, UnreachableError } from './errors.js';
import { patienceForAnswer, validUntil } from './validity.js';
import type { Places } from './waiting/places.js';
import { Waiting } from './waiting/tickets.js';

/** Null: somebody else has it, and patience has ended. */
export async function acquire(attempt: Attempt, places: Places): Promise<Granted | null> {
  const { wait, ttl, name } = attempt.wanted;
  const { within, response, unreachableAfter, queue } = places.settings;
  const { steps, server } = attempt;
  const until = attempt.begun + (wait === 0 ? within : wait);
  const each = patienceForAnswer(response, ttl);
  for (let tries = 0; ; tries++) {
    const mayQueue = wait > 0 && queue && !server.isPlain();
    let granted = mayQueue ? await new Waiting(places, attempt, { until, each, steps }).wait() : 'no queue';
    if (granted === 'no queue') {
      // It was busy when the server had time to answer.
      const isLast = tries > 0 && until - now() < each;
      const limits = { each, until: Math.min(until, now() + unreachableAfter), steps };
      granted = await attempt.ask(limits).catch((error) => {
        if (isLast && error instanceof UnreachableError) return null;
        throw error;
      });
    }
    if (granted !== null) {
      if (now() < validUntil(granted.asked, granted.lasts)) return granted;
      // The answer took longer than the lease. Asked again, it is the same grant, or over.
      if (now() >= until) throw new TooLateError(name);
    } else {
      if (wait === 0 || now() >= until) return null;
      if (queue && !server.isPlain()) continue;
    }
    await steps.sleep(Math.min(rest(granted === null ? POLL : RETRY, tries), until - now()));
    if (granted === null && now() >= until) return null;
  }
}
