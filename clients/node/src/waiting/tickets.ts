/**
 * Waiting by a ticket: a place in the server's queue without a connection that waits.
 *
 *   connection of the program   ACQUIRE … TICKET     ACQUIRE … TICKET          ACQUIRE … TICKET
 *                               nil                  nil: a slice later        the fence
 *   subscription                                                       granted ┘
 *
 * Asking again keeps the place, and is the truth: what the subscription tells may be lost.
 */
import { whenAborted } from '../aborts.js';
import type { Attempt, Granted } from '../attempt.js';
import { type Moment, now } from '../clock.js';
import { ROOM, RETRY, rest, sleep } from '../timers.js';
import { codeOf, refusal, verdict } from '../verdict.js';
import type { Grants, Told } from './grants.js';

/** How many times a place is kept for as long as nobody asks for it. */
const KEPT_TIMES = 3;
const KEPT_LEAST = 1_000;

/** How often it is asked for while nobody tells of grants, unless there are many. */
const UNHEARD = 250;

export interface Patience {
  readonly until: Moment;
  readonly signal: AbortSignal;
  /** For each answer. */
  readonly each: number;
  readonly slice: number;
  readonly unreachableAfter: number;
}

/** Null: patience has ended. */
export type Waited = Granted | 'no tickets' | 'no queue' | null;

export async function waitByTicket(attempt: Attempt, grants: Grants, patience: Patience): Promise<Waited> {
  const call = new Call();
  const leave = grants.seat(attempt.owner, (what) => call.tell(what));
  try {
    return await wait(attempt, grants, patience, call);
  } finally {
    leave();
  }
}

async function wait(attempt: Attempt, grants: Grants, patience: Patience, call: Call): Promise<Waited> {
  const { until, signal, each, slice, unreachableAfter } = patience;
  let longest = Number.POSITIVE_INFINITY;
  let silentSince: Moment | undefined;
  let isQueued = false;
  for (let tries = 0; ; ) {
    signal.throwIfAborted();
    if (now() >= until) return null;
    if (attempt.server.connection.isClosed()) throw attempt.server.closed();
    const isHeard = await listens(grants, patience);
    if (isHeard === 'refused') return 'no tickets';
    const kept = Math.min(longest, Math.max(KEPT_LEAST, KEPT_TIMES * Math.max(slice, grants.size)));
    const wasTold = call.take();
    const asked = now();
    try {
      const fence = await attempt.ticket(kept, grants.channel, { each, until, signal });
      if (fence !== null) {
        if (isQueued && isHeard && !wasTold && call.take() === undefined) grants.suspect();
        return { fence, asked };
      }
      if (attempt.server.isPlain()) return 'no queue';
      [tries, isQueued, silentSince] = [0, true, undefined];
    } catch (error) {
      signal.throwIfAborted();
      const refused = refusal(error);
      if (refused?.kind === 'no tickets') return 'no tickets';
      if (refused !== undefined && refused.longest < kept) {
        longest = refused.longest;
        continue;
      }
      const means = verdict(error);
      if (means === 'refused' || means === 'unknown script') throw attempt.server.told(error);
      if (means === 'elsewhere') attempt.server.connection.elsewhere();
      silentSince = means === 'broken' ? (silentSince ?? asked) : undefined;
      const isSilent = silentSince !== undefined && now() - silentSince >= unreachableAfter;
      const resting = rest(codeOf(error) === 'QUEUEFULL' ? ROOM : RETRY, tries++);
      if (isSilent) throw attempt.server.told(error);
      if (now() + resting >= until) {
        await sleep(until - now(), signal);
        // It was busy when the server had time to answer.
        if (isQueued && means === 'broken' && until - asked < each) return null;
        throw attempt.server.told(error);
      }
      await sleep(resting, signal);
      continue;
    }
    const unheard = Math.max(UNHEARD, grants.size);
    const often = isHeard === 'heard' ? kept / KEPT_TIMES : Math.min(unheard, kept / KEPT_TIMES);
    const heard = await call.wait(Math.min(often * (1 - Math.random() / 4), until - now()), signal);
    // What was told meanwhile is lost: so all ask, and not all at once.
    if (heard === 'cut') await sleep(Math.min(Math.random() * grants.size, until - now()), signal);
  }
}

async function listens(grants: Grants, { each, until, signal }: Patience): Promise<'heard' | 'refused' | undefined> {
  try {
    // There has to be time to ask.
    await grants.listen(Math.max(0, Math.min(each, until - now()) / 2), signal);
    return 'heard';
  } catch (error) {
    signal.throwIfAborted();
    return verdict(error) === 'refused' ? 'refused' : undefined;
  }
}

/** What whoever waits was told and has not looked at yet. */
class Call {
  #told: Told | undefined;
  #wake: (() => void) | undefined;

  tell(what: Told): void {
    // A grant is more than the end of a connection.
    if (this.#told !== 'granted') this.#told = what;
    this.#wake?.();
  }

  take(): Told | undefined {
    const told = this.#told;
    this.#told = undefined;
    return told;
  }

  /** Until it is told something, or for so long. */
  async wait(ms: number, signal: AbortSignal): Promise<Told | undefined> {
    if (this.#told === undefined) {
      const woken = new AbortController();
      const stop = () => woken.abort();
      this.#wake = stop;
      const forget = whenAborted(signal, stop);
      await sleep(ms, woken.signal).catch(() => {});
      forget();
      this.#wake = undefined;
      signal.throwIfAborted();
    }
    return this.#told;
  }
}
