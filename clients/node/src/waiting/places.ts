/**
 * The places that a `Leasehold` has in the queues of servers, and what it is told of them: one subscription for each server.
 *
 *   connection of the program   ACQUIRE … TICKET                ACQUIRE … TICKET
 *                               nil                             nil: a slice later
 *   subscription                                                           granted
 *   the lease, for certain                                      ├───────────── min(ttl, kept) ─────────────┤
 *
 * The message is the grant. The server made it after it had answered the last request with nil, so the lease is counted from
 * before that: it ends before the server's, however late the message is. That holds unless an earlier grant of this owner
 * may have run out unheard, whose message may still be on its way: then it is a reason to ask, as anything else is.
 *
 * Asking again keeps a place. All that is due is asked for together, once a second.
 */
import { randomUUID } from 'node:crypto';
import { RETRY, rest } from '../backoff.js';
import type { Attempt, Granted } from '../attempt.js';
import { type Moment, now } from '../clock.js';
import { closeOnceOpen, type Connection, type Listening, type Word } from '../connection.js';
import { at, cancel, type Deadline } from '../deadlines.js';
import type { Limits } from '../asking.js';
import type { Question } from '../questions.js';
import { integer } from '../reply.js';
import type { Checked } from '../settings.js';
import { type Step, Steps } from '../steps.js';
import { drift, validUntil } from '../validity.js';
import type { Refusal } from '../verdict.js';

export type Told =
  | Granted
  /** It may have been granted, or lost. */
  | 'ask'
  /** The connection is lost, and so may be what was to be told. */
  | 'cut';

/** How long it may take to subscribe: longer than any server needs that is there. */
const OPENS_WITHIN = 5_000;

/** How many times a place is kept for as long as nobody asks for it. */
const KEPT_TIMES = 3;
const KEPT_LEAST = 1_000;

const LOOK_EVERY = 1_000;

/** A subscription to the grants that one server makes, until it is lost. */
interface Subscription {
  isUp: boolean;
  readonly begun: Moment;
  readonly opening: Promise<Listening>;
}

/** Tickets that were refused are asked for again after so long. */
const REFUSED_FOR = 60_000;

export class Places {
  /** Nobody else knows it. */
  readonly channel = `leasehold:${randomUUID()}`;
  /** This user is told of no grants, as far as is known; or the module is older than tickets. */
  #muteUntil: Moment = Number.NEGATIVE_INFINITY;
  #hasTickets = true;
  blocked = 0;
  /** The longest time for which the server keeps a place, as far as it has said. */
  longest = Number.POSITIVE_INFINITY;
  readonly #all = new Map<string, Place>();
  readonly #ears = new Map<object, Subscription>();
  #look: Deadline | undefined;
  #failures = 0;

  constructor(
    readonly connection: Connection,
    readonly settings: Checked,
  ) {}

  get size(): number {
    return this.#all.size;
  }

  get kept(): number {
    return Math.min(this.longest, Math.max(KEPT_LEAST, KEPT_TIMES * Math.max(this.settings.slice, this.size)));
  }

  get isMute(): boolean {
    return this.#muteUntil > 0 && now() < this.#muteUntil;
  }

  question(ttl: number, kept: number): Question {
    const { isMute } = this;
    if (isMute && !this.#hasTickets) return { ask: 'acquire', ttl };
    return { ask: 'ticket', ttl, kept, channel: isMute ? undefined : this.channel };
  }

  /** Whether it is to be asked for in another way. */
  learns(refusal: Refusal | undefined): boolean {
    if (typeof refusal === 'number') {
      const isNews = refusal < this.longest;
      this.longest = Math.min(refusal, this.longest);
      return isNews;
    }
    if (refusal === undefined) return false;
    this.#muteUntil = now() + REFUSED_FOR;
    this.#hasTickets = refusal !== 'no tickets';
    return true;
  }

  enter(place: Place): void {
    this.#all.set(place.attempt.claim.owner, place);
  }

  leave(place: Place): void {
    this.#all.delete(place.attempt.claim.owner);
    if (this.#all.size > 0) return;
    cancel(this.#look);
    this.#look = undefined;
  }

  /** What tells of grants of this lock, if there is such a thing at the moment. */
  earOf(key: Word): Subscription | undefined {
    const ear = this.#ears.get(this.#nodeOf(key));
    return ear?.isUp && !this.isMute ? ear : undefined;
  }

  /** Sees to it that grants are told of. Rejects if they are not at the moment. */
  async listen(key: Word, limit: number, steps: Steps): Promise<void> {
    const { opening, begun } = this.#ears.get(this.#nodeOf(key)) ?? this.#open(key);
    // Where nobody answers, those who come later do not wait for it again.
    await steps.within(Math.max(0, limit - (now() - begun)), opening);
  }

  #nodeOf(key: Word): object {
    return this.connection.place(key) ?? this.connection;
  }

  #open(key: Word): Subscription {
    const hear = (message: Buffer) => {
      const grant = grantIn(message);
      if (grant !== undefined) this.#all.get(grant.owner)?.hear(grant.fence, ear);
    };
    const ended = () => this.#cut(ear);
    const subscribe = async () => {
      // While the server is down this fails each time: not as fast as it is asked for.
      if (this.#failures > 0) await new Steps().sleep(rest(RETRY, this.#failures));
      try {
        const listening = await this.connection.listen(key, this.channel, OPENS_WITHIN, { hear, ended });
        this.#failures = 0;
        ear.isUp = true;
        return listening;
      } catch (error) {
        this.#failures += 1;
        this.#cut(ear);
        throw error;
      }
    };
    const ear: Subscription = { isUp: false, begun: now(), opening: subscribe() };
    this.#ears.set(this.#nodeOf(key), ear);
    return ear;
  }

  #cut(ear: Subscription): void {
    ear.isUp = false;
    for (const [node, other] of this.#ears) if (other === ear) this.#ears.delete(node);
    for (const place of this.#all.values()) if (place.ear === ear) place.wake('cut');
  }

  /** Somebody sleeps: from now on somebody looks after all who do. */
  watch(): void {
    this.#look ??= at(now() + Math.min(LOOK_EVERY, this.settings.slice / KEPT_TIMES), () => this.#lookAfter());
  }

  #lookAfter(): void {
    this.#look = undefined;
    if (this.#all.size === 0) return;
    this.watch();
    if (this.connection.isClosed()) {
      for (const place of this.#all.values()) place.wake('ask');
      return;
    }
    const here = now();
    const due = [...this.#all.values()].filter((place) => place.dueAt <= here);
    const [first] = due;
    if (first === undefined) return;
    this.connection.together(first.key, () => {
      for (const place of due) place.renew();
    });
    const missed = () => {
      for (const place of due) place.missed(here);
    };
    at(here + this.settings.response, missed, false);
  }
}

interface Request {
  readonly asked: Moment;
  readonly kept: number;
  /** What would have told of a grant by the time that it is answered. */
  readonly heardBy: Subscription | undefined;
  readonly answer: Promise<unknown>;
}

/** A place in a queue, from the first request for it until the lock is granted or nobody wants it any more. */
export class Place {
  readonly key: Word;
  /** When it is to be asked for again, while somebody sleeps. */
  dueAt: Moment = Number.POSITIVE_INFINITY;
  /** What told of grants when it was last asked for. */
  ear: Subscription | undefined;
  protected asksFor: Question['ask'] = 'ticket';
  /** Before the last request that was answered with nil, or the first one. */
  #since: Moment = Number.NEGATIVE_INFINITY;
  /** The shortest time for which a request since then keeps it. */
  #kept = Number.POSITIVE_INFINITY;
  /** For how long the latest request keeps it. */
  #keeps = 0;
  #isNil = false;
  /** Whether a message cannot be that of an earlier grant. */
  #isSure = true;
  /** What a message told that nobody has looked at, and who heard it. */
  #heard: { fence: number; ear: Subscription } | undefined;
  #asleep: Step<Told | undefined> | undefined;
  #askedAt: Moment | undefined;

  constructor(
    readonly places: Places,
    readonly attempt: Attempt,
    readonly limits: Limits,
  ) {
    this.key = attempt.claim.key;
  }

  /** Asks for it, or asks again, and sleeps where somebody tells of its grant. */
  protected ask(asked: Moment): Promise<Told | undefined> {
    const { each, until, steps } = this.limits;
    const request = this.#request(asked);
    // The answer says whether it was granted, whatever was heard before.
    [this.#heard, this.#isNil] = [undefined, false];
    return steps.limited<Told | undefined>(Math.min(asked + each, until), (step) => {
      const answered = request.answer.then((reply) => {
        if (step.isOver) return this.attempt.late();
        this.attempt.unknown();
        const told = this.#answered(reply, request);
        if (told === undefined) this.#sleep(step, until);
        else step.arrive(told);
      });
      answered.catch((error) => step.fail(error));
    });
  }

  #request(asked: Moment): Request {
    const { kept } = this.places;
    const heardBy = this.#heard === undefined ? this.ear : undefined;
    this.dueAt = Number.POSITIVE_INFINITY;
    if (this.#since === Number.NEGATIVE_INFINITY) this.#since = asked;
    this.#keeps = kept;
    this.#kept = Math.min(this.#kept, kept);
    this.ear = this.places.earOf(this.key);
    const { server, claim, wanted } = this.attempt;
    const question = this.places.question(wanted.ttl, kept);
    this.asksFor = question.ask;
    return { asked, kept, heardBy, answer: server.ask(claim, question, this.attempt) };
  }

  /** Undefined: it has a place, and somebody tells of its grant. */
  #answered(reply: unknown, { asked, kept, heardBy }: Request): Told | undefined {
    const { server, wanted } = this.attempt;
    const fence = integer(reply);
    if (fence !== null) {
      // It had not been told: the connection may be dead without having said so.
      if (this.#heard === undefined) closeOnceOpen(heardBy?.opening);
      return { fence, asked, lasts: wanted.ttl };
    }
    if (server.isPlain()) return 'ask';
    this.attempt.queued();
    const lasts = Math.min(wanted.ttl, this.#kept);
    // A grant that nobody has heard of would still be there.
    const here = now();
    if (here >= this.#since + lasts - drift(lasts)) this.#isSure = false;
    this.#since = asked;
    this.#kept = Math.min(kept, this.#keeps);
    this.#isNil = true;
    this.dueAt = here + (kept / KEPT_TIMES) * (1 - Math.random() / 4);
    // By now the client library may know of another node that has the key.
    if (this.places.earOf(this.key) !== this.ear) this.ear = undefined;
    return this.ear === undefined ? 'ask' : undefined;
  }

  hear(fence: number, ear: Subscription): void {
    this.#heard = { fence, ear };
    const told = this.#told();
    if (told !== undefined) this.wake(told);
  }

  wake(told: Told): void {
    const step = this.#asleep;
    this.#asleep = undefined;
    step?.arrive(told);
  }

  /** Until it is told something; undefined: it was not. */
  protected sleep(until: Moment): Promise<Told | undefined> {
    return this.attempt.steps.asleep<Told>(until, (step) => this.#sleep(step, until));
  }

  #sleep(step: Step<Told | undefined>, until: Moment): void {
    const told = this.#told();
    if (told === undefined) {
      this.places.watch();
      this.#asleep = step;
      step.rest(until);
    } else step.arrive(told);
  }

  /** Keeps the place, while somebody sleeps. */
  renew(): void {
    const request = this.#request(now());
    const { asked } = request;
    this.#askedAt = asked;
    const answer = request.answer.then((reply) => {
      if (this.#askedAt !== asked) return this.attempt.late();
      this.#askedAt = undefined;
      const told = this.#answered(reply, request);
      // Whoever is not told has to do something about it.
      if (told !== undefined) this.wake(told);
    });
    answer.catch(() => this.wake('ask'));
  }

  /** What was asked at that moment was to be answered by now. */
  missed(moment: Moment): void {
    if (this.#askedAt === undefined || this.#askedAt < moment) return;
    this.#askedAt = undefined;
    this.attempt.server.silent(this.attempt.claim, { ask: 'ticket' });
    this.wake('ask');
  }

  protected leave(): void {
    [this.#asleep, this.#askedAt] = [undefined, undefined];
    this.places.leave(this);
  }

  /** What a message comes to. Undefined: the answer to the request under way has to come first. */
  #told(): Told | undefined {
    if (this.#heard === undefined || !this.#isNil) return undefined;
    const { ttl, confirm } = this.attempt.wanted;
    const { fence, ear } = this.#heard;
    const lasts = Math.min(ttl, this.#kept);
    // A server that was not heard when it was asked does not leave much time.
    if (confirm || !this.#isSure || ear !== this.ear) return 'ask';
    const left = validUntil(this.#since, lasts) - now();
    return left < lasts / 4 ? 'ask' : { fence, asked: this.#since, lasts, isUnclaimed: true };
  }
}

/** `<fence> <length of owner> <owner> <key>` */
export function grantIn(message: Buffer): { owner: string; fence: number } | undefined {
  const [head = '', fence, length] = /^(\d{1,16}) (\d{1,5}) /.exec(message.toString('latin1', 0, 32)) ?? [];
  const end = head.length + Number(length);
  if (!(end > head.length && end <= message.length)) return undefined;
  return { owner: message.toString('utf8', head.length, end), fence: Number(fence) };
}
