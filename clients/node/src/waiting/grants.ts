/**
 * Being told of grants: one connection for all requests of a `Leasehold` that wait.
 *
 * A message may be lost, and one may come for nothing: it is a reason to ask, and nothing more.
 */
import { randomUUID } from 'node:crypto';
import { type Moment, now } from '../clock.js';
import type { Connection, Listening } from '../connection.js';
import { RETRY, rest, sleep, within } from '../timers.js';

/** What whoever waits is told. */
export type Told =
  | 'granted'
  /** Nothing any more: the connection is lost, and so may be what was to be told. */
  | 'cut';

/** How long it may take to subscribe: longer than any server needs that is there. */
const OPENS_WITHIN = 5_000;

export class Grants {
  /** Nobody else knows it. */
  readonly channel = `leasehold:${randomUUID()}`;
  readonly #connection: Connection;
  readonly #seats = new Map<string, (told: Told) => void>();
  #listening: Promise<Listening> | undefined;
  #begun: Moment = Number.NEGATIVE_INFINITY;
  #failures = 0;
  #isClosed = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** How many wait. */
  get size(): number {
    return this.#seats.size;
  }

  /** This owner is told from now on, until what this returns is called. */
  seat(owner: string, tell: (told: Told) => void): () => void {
    this.#seats.set(owner, tell);
    return () => this.#seats.delete(owner);
  }

  /**
   * Sees to it that grants are told of. Rejects if they are not at the moment. Where that is asked for and not answered, as by
   * a node of a cluster that hangs, those who come later do not wait for it again.
   */
  async listen(limit: number, signal?: AbortSignal): Promise<void> {
    if (this.#isClosed) throw new Error('closed');
    const listening = this.#listening ?? this.#open();
    await within(Math.max(0, limit - (now() - this.#begun)), listening, signal);
  }

  /** A grant was found out that had not been told: the connection may be dead without having said so. */
  suspect(): void {
    const suspected = this.#listening;
    this.#listening = undefined;
    suspected?.then(
      (listening) => listening.close(),
      () => {},
    );
  }

  close(): void {
    this.#isClosed = true;
    this.suspect();
  }

  #open(): Promise<Listening> {
    const forget = () => {
      if (this.#listening === opening) this.#listening = undefined;
    };
    const ended = () => {
      forget();
      for (const tell of this.#seats.values()) tell('cut');
    };
    const opening = this.#opened(ended);
    opening.catch(forget);
    this.#listening = opening;
    this.#begun = now();
    return opening;
  }

  async #opened(ended: () => void): Promise<Listening> {
    // While the server is down this fails each time: not as fast as it is asked for.
    if (this.#failures > 0) await sleep(rest(RETRY, this.#failures));
    try {
      const hear = (message: Buffer) => this.#hear(message);
      const listening = await this.#connection.listen(this.channel, OPENS_WITHIN, hear, ended);
      this.#failures = 0;
      if (this.#isClosed) listening.close();
      return listening;
    } catch (error) {
      this.#failures += 1;
      throw error;
    }
  }

  /** `<fence> <length of owner> <owner> <key>` */
  #hear(message: Buffer): void {
    const owner = ownerIn(message);
    if (owner !== undefined) this.#seats.get(owner)?.('granted');
  }
}

export function ownerIn(message: Buffer): string | undefined {
  const first = message.indexOf(' ');
  const second = first < 0 ? -1 : message.indexOf(' ', first + 1);
  const length = Number(message.subarray(first + 1, second).toString('latin1'));
  if (second < 0 || !Number.isInteger(length) || length < 1) return undefined;
  const owner = message.subarray(second + 1, second + 1 + length);
  return owner.length === length ? owner.toString('utf8') : undefined;
}
