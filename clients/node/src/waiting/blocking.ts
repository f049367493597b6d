/**
 * Waiting in the server's queue, on a connection that does nothing else meanwhile: for servers that give no tickets.
 *
 *   connection to wait on       ACQUIRE … BLOCK ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ granted
 *   connection of the program                   │ a slice later   │ a slice later
 *                                               WAITERS: queued   WAITERS: queued
 *
 * A connection may die without a word, on either side. So every slice the server is asked whether the request still
 * stands in the queue. If it does not, the request is made again: the answer says whether the lock was granted meanwhile.
 */
import type { Attempt } from '../attempt.js';
import { now } from '../clock.js';
import { closeOnceOpen } from '../connection.js';
import { bytes, fields } from '../reply.js';
import { Unanswered } from '../steps.js';
import type { Patience } from './tickets.js';

/** How many of those who wait are listed at most. */
const LISTED = 100;

/** A fence says that it was granted, and nothing of how much of the lease is left. Null: ask again. */
export async function waitOnConnection(attempt: Attempt, patience: Patience): Promise<number | null> {
  const { until, each, steps } = patience;
  const { server, wanted, claim } = attempt;
  const left = () => Math.max(0, until - now());
  const opening = server.connection.dedicated(claim.key);
  const dedicated = await steps.within(Math.min(each, left()), opening).catch((error) => {
    closeOnceOpen(opening);
    throw error;
  });
  let isAnswered = false;
  try {
    const limit = until === Number.POSITIVE_INFINITY ? 0 : Math.max(1, left());
    attempt.unknown();
    attempt.queued();
    const answer = server.askAlone(dedicated, claim, { ask: 'wait', ttl: wanted.ttl, patience: limit });
    const fence = await lookedAfter(attempt, patience, answer);
    isAnswered = true;
    return fence;
  } finally {
    dedicated.close();
    if (!isAnswered) attempt.wasCut = true;
  }
}

async function lookedAfter(
  attempt: Attempt,
  { until, slice, each, steps }: Patience,
  answer: Promise<number | null>,
): Promise<number | null> {
  for (;;) {
    const left = until - now();
    try {
      return await steps.within(Math.min(slice, left), answer);
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      if (now() >= until) return null;
    }
    const look = Promise.race([answer.then(() => true), isQueued(attempt)]);
    // Whoever may not look, or gets no answer, has to trust the connection for another slice.
    const isThere = await steps.within(Math.min(each, until - now()), look).catch(() => !steps.areStopped);
    steps.throwIfStopped();
    if (!isThere) throw new Unanswered('the server does not know of the request any more');
  }
}

async function isQueued({ server, claim: { key, owner } }: Attempt): Promise<boolean> {
  const reply = await server.read(key, ['LOCK.WAITERS', key, 'COUNT', String(LISTED)]);
  if (!Array.isArray(reply) || reply.length >= LISTED) return true;
  const own = Buffer.from(owner);
  return reply.some((waiter) => bytes(fields(waiter).get('owner'))?.equals(own));
}

/** How many connections wait at a time. */
export class Room {
  readonly #line = new Set<() => void>();
  readonly #inside = new Set<() => void>();

  constructor(readonly most: number) {}

  /** In the order of coming. `leave` leaves the line, or the room. */
  enter(): { entered: Promise<void>; leave: () => void } {
    let come = () => {};
    const entered = new Promise<void>((resolve) => {
      come = resolve;
    });
    this.#line.add(come);
    this.#admit();
    const leave = () => {
      this.#line.delete(come);
      this.#inside.delete(come);
      this.#admit();
    };
    return { entered, leave };
  }

  #admit(): void {
    for (const come of this.#line) {
      if (this.#inside.size >= this.most) return;
      this.#line.delete(come);
      this.#inside.add(come);
      come();
    }
  }
}
