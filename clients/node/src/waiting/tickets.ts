/** Waiting by a ticket: a place in the server's queue without a connection that waits. */
import { failed, type Limits } from '../asking.js';
import type { Attempt, Granted } from '../attempt.js';
import { RETRY, ROOM, rest } from '../backoff.js';
import { type Moment, now } from '../clock.js';
import type { Word } from '../connection.js';
import type { Server } from '../server.js';
import { codeOf, refusal, verdict } from '../verdict.js';
import type { Places, Told } from './places.js';

/** How often a place is asked for while nobody tells of grants, unless there are many. */
const UNHEARD = 250;

export interface Patience extends Limits {
  readonly slice: number;
  readonly unreachableAfter: number;
}

/** Null: patience has ended. */
export type Waited = Granted | 'no tickets' | 'no queue' | null;

export async function waitByTicket(attempt: Attempt, places: Places, patience: Patience): Promise<Waited> {
  const { server, steps, claim } = attempt;
  const { until, slice } = patience;
  const place = places.take(attempt);
  const failures: Failures = { count: 0, silentSince: undefined, refusal: undefined, isQueued: false };
  // One frame for all of it: there may be many who wait.
  try {
    for (;;) {
      steps.throwIfStopped();
      const asked = now();
      // The lock was busy, unless the server had no place.
      if (asked >= until && failures.refusal === undefined) return null;
      if (asked >= until) throw server.told(failures.refusal);
      if (server.connection.isClosed()) throw server.closed();
      let told: Told | undefined;
      try {
        told = await place.ask(asked, patience);
        if (typeof told === 'object') return told;
        if (server.isPlain()) return 'no queue';
        attempt.queued();
        [failures.count, failures.silentSince, failures.refusal, failures.isQueued] = [0, undefined, undefined, true];
      } catch (error) {
        failed(error, server, claim, { ask: 'ticket' }, patience, asked, attempt);
        steps.throwIfStopped();
        if (server.learns(error)) {
          if (server.isPlain()) return 'no queue';
          continue;
        }
        const refused = refusal(error);
        if (refused?.kind === 'no tickets') return 'no tickets';
        if (refused !== undefined && refused.longest < places.longest) places.longest = refused.longest;
        else if (!(await mayAskAgain(error, server, patience, asked, failures))) return null;
        continue;
      }
      if (place.ear === undefined) {
        const isHeard = await listens(claim.key, places, patience);
        if (isHeard === 'refused') return 'no tickets';
        // What was granted meanwhile was not told.
        if (isHeard) continue;
        told = await place.sleep(Math.min(until, now() + Math.min(slice, Math.max(UNHEARD, places.size))));
        if (typeof told === 'object') return told;
      }
      // What was told meanwhile is lost: so all ask, and not all at once.
      if (told === 'cut') await steps.sleep(Math.min(Math.random() * places.size, until - now()));
    }
  } finally {
    place.leave();
  }
}

interface Failures {
  count: number;
  silentSince: Moment | undefined;
  /** What the server said last, unless it has answered since. */
  refusal: unknown;
  /** The server has answered once. */
  isQueued: boolean;
}

/** Rests before the next try. False: there is none, and the lock was busy. */
async function mayAskAgain(
  error: unknown,
  server: Server,
  { until, each, steps, unreachableAfter }: Patience,
  asked: Moment,
  failures: Failures,
): Promise<boolean> {
  const means = verdict(error);
  if (means === 'refused') throw server.told(error);
  if (means === 'elsewhere') server.connection.elsewhere();
  failures.refusal = means === 'broken' ? undefined : error;
  failures.silentSince = means === 'broken' ? (failures.silentSince ?? asked) : undefined;
  const isSilent = failures.silentSince !== undefined && now() - failures.silentSince >= unreachableAfter;
  if (isSilent) throw server.told(error);
  const resting = rest(codeOf(error) === 'QUEUEFULL' ? ROOM : RETRY, failures.count++);
  if (now() + resting < until) {
    await steps.sleep(resting);
    return true;
  }
  await steps.sleep(until - now());
  // It was busy when the server had time to answer.
  if (failures.isQueued && means === 'broken' && until - asked < each) return false;
  throw server.told(error);
}

async function listens(key: Word, places: Places, { each, until, steps }: Patience): Promise<boolean | 'refused'> {
  try {
    // There has to be time to ask.
    await places.listen(key, Math.min(each, until - now()) / 2, steps);
    return true;
  } catch (error) {
    steps.throwIfStopped();
    return verdict(error) === 'refused' ? 'refused' : false;
  }
}
