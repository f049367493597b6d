/**
 * One try to get a lock, which has an owner of its own.
 *
 * Whoever gives up half-way, for whatever reason, gives back what the server may have granted or may still grant: no
 * place in the queue and no lock stays behind.
 */
import { ask, type Limits } from './asking.js';
import { type Moment, now } from './clock.js';
import type { Dedicated } from './connection.js';
import type { Emit, LockEvent } from './events.js';
import type { Claim } from './questions.js';
import type { Fate, Server } from './server.js';
import { Steps } from './steps.js';

export interface Granted {
  readonly fence: number;
  /** Before the server was asked. */
  readonly asked: Moment;
  /** For how long from then. */
  readonly lasts: number;
  /** A message has told it, and the server does not know that somebody has heard it. */
  readonly isUnclaimed?: boolean;
}

export interface Wanted {
  readonly name: string;
  readonly ttl: number;
  readonly wait: number;
  /** Whether a grant is claimed before the work begins. */
  readonly confirm: boolean;
}

/** A connection with a request may be read by the server this long after it was closed here. */
const STRAY = 250;

/** How many have been told of. */
let requests = 0;

export class Attempt implements Fate {
  readonly begun = now();
  /** From when events are counted: the request, and later the grant. */
  since = this.begun;
  readonly steps = new Steps();
  /** The server may have granted the lock, or may keep a place in its queue. */
  #mayHold = false;
  /** A connection was closed while a request waited on it. */
  wasCut = false;
  #isOver = false;
  bond?: Dedicated;
  #wasQueued = false;
  /** Numbered when there is anything to tell. */
  #request = 0;

  constructor(
    readonly server: Server,
    readonly wanted: Wanted,
    public claim: Claim,
    /** Gives back whatever the owner has, so many milliseconds from now. */
    readonly giveBack: (claim: Claim, wanted: Wanted, after: number) => void,
    readonly emit: Emit | undefined,
  ) {}

  tell(step: LockEvent['step'], more: Partial<LockEvent> = {}): void {
    if (this.emit === undefined) return;
    if (this.#request === 0) this.#request = ++requests;
    const { name } = this.wanted;
    const told = { step, request: this.#request, name, owner: this.claim.owner, after: now() - this.since };
    this.emit({ ...told, ...more });
  }

  async ask(limits: Limits): Promise<Granted | null> {
    const { ttl } = this.wanted;
    const { number: fence, asked } = await ask(this.server, this.claim, { ask: 'acquire', ttl }, limits, this);
    if (fence === null) return null;
    this.#mayHold = true;
    return { fence, asked, lasts: ttl };
  }

  giveUp(): void {
    this.#isOver = true;
    if (!this.#mayHold) return;
    this.giveBack(this.claim, this.wanted, 0);
    // The server may read what was said on another connection after it has read this, and grant the lock in between.
    if (this.wasCut || this.claim.grace !== undefined) this.giveBack(this.claim, this.wanted, STRAY);
  }

  queued(): void {
    if (!this.#wasQueued) this.tell('queued');
    this.#wasQueued = true;
  }

  /** It was granted, and is held no more. What a request that was not answered is granted now is nobody's. */
  over(): void {
    this.#isOver = true;
  }

  /** It may have been heard, or was: then it is granted, or has a place. */
  unknown(): void {
    this.#mayHold = true;
  }

  /** Also if it was not granted: then it may have a place in the queue. */
  late(): void {
    if (this.#isOver) this.giveBack(this.claim, this.wanted, 0);
  }
}
