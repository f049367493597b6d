/**
 * A second connection to a server whose first one is silent.
 *
 *   connection of the program   EXTEND ┈┈┈┈ no answer   EXTEND ┈┈┈┈┈┈┈┈┈ no answer, until there is one
 *   second connection                         └ opened  EXTEND ─► answered
 *
 * A connection may be dead without having said so, as when a router has forgotten it, and client libraries do not notice for
 * minutes; or the program has it wait for something else. It is the program's, so it is not closed here: what is asked is said
 * on both. Whatever the first one may still deliver is in order then, with the release behind the request.
 */
import { type Moment, now } from './clock.js';
import { closeOnceOpen, type Connection, type Dedicated, type Line, type Word } from './connection.js';
import { codeOf } from './verdict.js';

/** How often one is opened to the same server. */
const OPENED_EVERY = 1_000;

/** One that has said nothing for so long is as dead as the first. */
const SILENT_FOR = 5_000;

/** How many requests may be left unanswered on the first one. More are asked on the second one alone. */
const MOST_UNHEARD = 1_000;

interface Second {
  readonly opening: Promise<Dedicated>;
  heardAt: Moment;
  unheard: number;
}

export class Seconds {
  /** By what the client library has for the server. */
  readonly #open = new Map<object, Second>();
  readonly #openedAt = new WeakMap<object, Moment>();

  constructor(readonly connection: Connection) {}

  /** Whether what is asked now may be heard twice. */
  has(key: Word): boolean {
    return this.#of(key) !== undefined;
  }

  silent(key: Word): void {
    const place = this.connection.place(key);
    if (place === undefined || this.connection.isClosed()) return;
    if (now() - (this.#openedAt.get(place) ?? Number.NEGATIVE_INFINITY) < OPENED_EVERY) return;
    const known = this.#open.get(place);
    if (known !== undefined && now() - known.heardAt < SILENT_FOR) return;
    this.#close(place, known);
    this.#openedAt.set(place, now());
    const second = { opening: this.connection.dedicated(key), heardAt: now(), unheard: 0 };
    this.#open.set(place, second);
    second.opening.catch(() => this.#close(place, second));
  }

  /**
   * Asks on the first one, and on the second one, too, if there is one. The first answer counts, and the one of the first
   * connection is told of when it is late. What the first one fails with counts if neither answers.
   */
  ask<T>(key: Word, ask: (line: Line) => Promise<T>, late: (answer: T) => void = () => {}): Promise<T> {
    const found = this.#of(key);
    if (found === undefined) return ask(this.connection);
    const { place, second } = found;
    const isAlone = second.unheard >= MOST_UNHEARD;
    const first = isAlone ? undefined : ask(this.connection);
    const again = ask({ send: (key, words) => this.#send(place, second, key, words) });
    said(again, isOfUse).then(
      () => Object.assign(second, { heardAt: now() }),
      () => this.#close(place, second),
    );
    if (first === undefined) return again;
    second.unheard += 1;
    said(first, isSaid).then(
      () => this.#close(place, second),
      () => {
        second.unheard -= 1;
      },
    );
    again.then(() => first.then(late)).catch(() => {});
    return Promise.any([said(first, isSaid), said(again, isOfUse)]).then(
      (tell) => tell(),
      ({ errors }) => Promise.reject(errors[0]),
    );
  }

  async #send(place: object, second: Second, key: Word, words: readonly Word[]): Promise<unknown> {
    const line = await second.opening;
    // The first one was heard meanwhile. What is said now would come after what the program asked next.
    if (this.#open.get(place) !== second) throw new Error('the first connection has answered');
    return line.send(key, words);
  }

  #of(key: Word): { place: object; second: Second } | undefined {
    const place = this.#open.size > 0 ? this.connection.place(key) : undefined;
    const second = place && this.#open.get(place);
    return second && { place, second };
  }

  #close(place: object, second: Second | undefined): void {
    if (second === undefined || this.#open.get(place) !== second) return;
    this.#open.delete(place);
    closeOnceOpen(second.opening);
  }
}

/** Fails unless the server has answered, with an error that counts or without. */
function said<T>(answer: Promise<T>, counts: (error: unknown) => boolean): Promise<() => T> {
  return answer.then(
    (came) => () => came,
    (error) => {
      if (!counts(error)) throw error;
      return () => {
        throw error;
      };
    },
  );
}

function isSaid(error: unknown): boolean {
  return codeOf(error) !== undefined;
}

/** By a server that is none for this lock any more: the library goes on from there with the first one. */
const NOT_HERE = new Set(['READONLY', 'UNBLOCKED', 'MOVED', 'ASK', 'CLUSTERDOWN', 'MASTERDOWN', 'LOADING']);

function isOfUse(error: unknown): boolean {
  return isSaid(error) && !NOT_HERE.has(codeOf(error) ?? '');
}
