/**
 * A lock on most of several servers that know nothing of each other: Redlock, with fences. `docs/redlock.md` has the argument.
 *
 *   a  ACQUIRE ► 17   RAISE 18 ► 18        The lock is held once most servers have granted it, and the fence is the
 *   b  ACQUIRE ► 18   RAISE 18 ► 18        largest of theirs. Most are raised to it: any later majority has one of
 *   c  ACQUIRE ┈ no answer                 these among it, so its fence is larger.
 */
import { randomUUID } from 'node:crypto';
import { ask } from './asking.js';
import type { Attempt, Granted } from './attempt.js';
import { POLL, rest } from './backoff.js';
import { type Moment, now } from './clock.js';
import type { Connection, Word } from './connection.js';
import { at, cancel } from './deadlines.js';
import { LeaseholdError, SettingError } from './errors.js';
import type { Claim, Question } from './questions.js';
import { text } from './reply.js';
import { type Fate, Server } from './server.js';
import type { Checked } from './settings.js';
import { Steps } from './steps.js';
import { validUntil } from './validity.js';
import { mayPass, messageOf } from './verdict.js';

/** How long one server may take to answer at the most. */
const LONGEST_LIMIT = 500;

/** Those who are a little slower than most are waited for. */
const LEAST_GRACE = 10;

interface Came {
  readonly peer: Server;
  readonly number?: number | null;
  readonly error?: unknown;
}

/** For whoever holds a lock it is one server, which says what most of them say. */
export class Most extends Server {
  override readonly own = undefined;
  readonly #peers: readonly Server[];
  /** Which server it is. One that is named twice would count twice: two majorities could have no server in common then. */
  readonly #runIds = new Map<Server, string>();

  constructor(
    connections: readonly Connection[],
    readonly settings: Checked,
  ) {
    const all = {
      isClosed: () => connections.every((each) => each.isClosed()),
      trouble: () => connections.map((each) => each.trouble()).find((trouble) => trouble !== undefined),
      place: () => undefined,
      elsewhere: () => {},
      close: () => connections.forEach((each) => void each.close()),
    };
    super(all as unknown as Connection);
    this.#peers = connections.map((each) => {
      const peer = new Server(each);
      each.whenReady(() => this.#runIds.delete(peer));
      return peer;
    });
  }

  get #majority(): number {
    return Math.floor(this.#peers.length / 2) + 1;
  }

  override learns(): boolean {
    return false;
  }

  /** 1 if most did it, 0 if too many said that it is not held. */
  override async ask(claim: Claim, question: Question): Promise<unknown> {
    const isRelease = question.ask === 'release';
    if (!isRelease && question.ask !== 'extend') throw new SettingError('share', 'a quorum has exclusive locks');
    // Each server has granted it by a fence of its own, before that was raised.
    const asked: Question = isRelease ? { ask: 'release' } : question;
    const answers = await this.#askAll(this.#peers, claim, asked, ({ number }) => number === 1);
    const agreed = answers.filter(({ number }) => number === 1).length;
    const refused = answers.filter(({ number }) => number === 0).length;
    const isHeldByMost = this.#peers.length - refused >= this.#majority;
    if (agreed >= this.#majority || (isRelease && isHeldByMost && agreed > 0)) return 1;
    if (!isHeldByMost) return 0;
    throw this.#tooFew(answers) ?? new Error('most servers have not answered in time');
  }

  /** Where there is no queue that all servers share, whoever waits asks again. Null: patience has ended. */
  async acquire(attempt: Attempt): Promise<Granted | null> {
    const { wanted, steps, begun } = attempt;
    for (let tries = 0; ; tries++) {
      // A new owner each time: what is still to be released for an earlier try does not hit this one.
      const claim = { ...attempt.claim, owner: `${process.pid}:${randomUUID()}` };
      attempt.claim = claim;
      const standing = this.#stand(claim, wanted.ttl);
      const left = begun + wanted.wait - now();
      try {
        const granted = await steps.within(Number.POSITIVE_INFINITY, standing);
        // Whoever gives up from now on gives it back.
        if (granted !== null) attempt.unknown();
        if (granted !== null || left <= 0) return granted;
      } catch (error) {
        if (steps.areStopped) standing.then((granted) => granted && this.#releaseAll(claim)).catch(() => {});
        const isFinal = error instanceof LeaseholdError && !mayPass(error);
        if (steps.areStopped || left <= 0 || isFinal) throw this.told(error);
      }
      // At random, or those who split the servers between them would do so again.
      await steps.sleep(Math.min(rest(POLL, tries), Math.max(0, left)));
    }
  }

  async #stand(claim: Claim, ttl: number): Promise<Granted | null> {
    const asked = now();
    const answers = await this.#askAll(this.#peers, claim, { ask: 'acquire', ttl }, isGranted);
    let isHeld = false;
    try {
      const wrong = answers.find(({ error }) => error instanceof SettingError);
      if (wrong !== undefined) throw wrong.error;
      const fence = await this.#raise(claim, answers.filter(isGranted));
      isHeld = fence !== null && now() < validUntil(asked, ttl);
      if (fence !== null) return isHeld ? { fence, asked, lasts: ttl } : null;
      const error = this.#tooFew(answers);
      if (error !== undefined) throw error;
      return null;
    } finally {
      if (!isHeld) await this.#releaseAll(claim);
    }
  }

  /** Has most of them have one fence: the largest of those that were granted. */
  async #raise(claim: Claim, granted: Came[]): Promise<number | null> {
    let left = granted;
    while (left.length >= this.#majority) {
      const fence = Math.max(...left.map(({ number }) => number ?? 0));
      const isRaised = ({ number }: Came) => number === fence;
      const whom = left.map(({ peer }) => peer);
      const raised = await this.#askAll(whom, claim, { ask: 'raise', fence }, isRaised);
      if (raised.filter(isRaised).length >= this.#majority) return fence;
      const error = this.#tooFew(raised);
      if (error === undefined) return null;
      // A clock that is far ahead of most is left out, and its server does not count: any majority will do.
      if (!(error instanceof LeaseholdError) || left.length === this.#majority) throw error;
      left = left.filter(({ number }) => (number ?? 0) < fence);
    }
    return null;
  }

  /** Everywhere: it may have been granted by a server that was not heard. */
  #releaseAll(claim: Claim): Promise<unknown> {
    return this.#askAll(this.#peers, claim, { ask: 'release' }, ({ number }) => number === 1);
  }

  /** Those who have answered in time. Nobody is waited for who cannot change what most have said. */
  #askAll(whom: readonly Server[], claim: Claim, question: Question, agrees: (came: Came) => boolean): Promise<Came[]> {
    const asked = now();
    const ttl = 'ttl' in question ? question.ttl : Number.POSITIVE_INFINITY;
    const each = Math.max(1, Math.min(ttl / 10, LONGEST_LIMIT, this.settings.response));
    return new Promise((resolve) => {
      const heard: Came[] = [];
      let agreed = 0;
      let isOver = false;
      const end = () => {
        isOver = true;
        cancel(deadline);
        resolve(heard);
      };
      let deadline = at(asked + each, end);
      const hear = (came: Came) => {
        // What was granted too late is nobody's, unless it was granted by another address, too.
        const isNobodys = question.ask === 'acquire' && !(came.error instanceof SettingError);
        if (isOver && isNobodys) void this.#askOne(came.peer, claim, { ask: 'release' }, now(), each);
        if (isOver) return;
        heard.push(came);
        if (agrees(came)) agreed += 1;
        if (heard.length === whom.length) return end();
        const isOut = whom.length - (heard.length - agreed) < this.#majority;
        if (agreed < this.#majority && !isOut) return;
        cancel(deadline);
        deadline = at(Math.min(asked + each, now() + Math.max(LEAST_GRACE, now() - asked)), end);
      };
      for (const peer of whom) void this.#askOne(peer, claim, question, asked, each).then(hear);
    });
  }

  async #askOne(peer: Server, claim: Claim, question: Question, asked: Moment, each: number): Promise<Came> {
    // A release is asked for until somebody hears it.
    const until = question.ask === 'release' ? asked + this.settings.unreachableAfter : asked + each;
    const giveBack = () => {
      if (question.ask === 'acquire') void this.#askOne(peer, claim, { ask: 'release' }, now(), each);
    };
    const fate: Fate = { unknown: () => {}, late: giveBack };
    try {
      const limits = { each, until, steps: new Steps(false) };
      const learns = () => limits.steps.within(each, this.#learn(peer, claim.key));
      if (question.ask === 'acquire') await learns();
      const { number } = await ask(peer, claim, question, limits, fate);
      // It may have connected anew meanwhile.
      if (question.ask === 'acquire' && number !== null) await learns();
      return { peer, number };
    } catch (error) {
      // After a new connection there may be another server at this address.
      this.#runIds.delete(peer);
      return { peer, error };
    }
  }

  async #learn(peer: Server, key: Word): Promise<void> {
    if (this.#runIds.has(peer)) return;
    const id = /run_id:(\w+)/.exec(text(await peer.read(key, ['INFO', 'server'])))?.[1] ?? '';
    const other = [...this.#runIds].find(([server, known]) => server !== peer && known === id);
    if (other !== undefined) {
      const [first, second] = [other[0], peer].map((server) => this.#peers.indexOf(server) + 1).sort();
      throw new SettingError('clients', `${first} and ${second} lead to one server, which has the run id ${id}`);
    }
    this.#runIds.set(peer, id);
  }

  /** Why not enough of them agreed; undefined if most of them have answered. */
  #tooFew(answers: readonly Came[]): Error | undefined {
    const errors = answers.flatMap(({ error }) => (error === undefined ? [] : [error]));
    const said = answers.length - errors.length;
    if (said >= this.#majority) return undefined;
    const refusal = errors.find((error) => error instanceof LeaseholdError && error.name !== 'UnreachableError');
    if (refusal !== undefined) return refusal as LeaseholdError;
    const because = errors.length > 0 ? `: ${messageOf(errors.at(-1))}` : '';
    return new Error(`${said} of ${this.#peers.length} servers answered in time${because}`);
  }
}

function isGranted({ number }: Came): boolean {
  return typeof number === 'number';
}
