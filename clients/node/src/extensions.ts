/**
 * Extensions that the server may carry out after others.
 *
 *   EXTEND 1 s  ──► no answer, given up
 *   EXTEND 60 s ───────────────────────────► answered
 *                       EXTEND 1 s ─────────────► carried out late: the lease ends a second from then
 *
 * So an extension counts for no more than a shorter one that was given up and may still be on its way; and one that was
 * asked for earlier counts for nothing after a later one was answered.
 */
import type { Answer } from './asking.js';
import { type Moment, now } from './clock.js';

/** How long a request may be on its way after it was given up. */
const LONGEST_WAY = 60_000;

export class Extensions {
  #next = 0;
  #answered = -1;
  /** Those that may still be carried out. */
  readonly #open = new Map<number, { ttl: number; since: Moment }>();

  begin(ttl: number): number {
    const number = this.#next++;
    for (const [earlier, { since }] of this.#open) if (now() - since > LONGEST_WAY) this.#open.delete(earlier);
    this.#open.set(number, { ttl, since: now() });
    return number;
  }

  /** For how much of its ttl it counts from when it was asked for; undefined: a later one was answered. */
  counted(number: number, { repeated }: Answer, ttl: number): number | undefined {
    // An earlier try of it that was not answered may still be carried out.
    if (!repeated) this.#open.delete(number);
    if (number < this.#answered) return undefined;
    this.#answered = number;
    return Math.min(ttl, ...[...this.#open.values()].map((open) => open.ttl));
  }
}
