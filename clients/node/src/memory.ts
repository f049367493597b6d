/**
 * A server in memory: it answers the clients of one program as a server with the module does. It has no disk, no replicas,
 * no users, no scripts and no limits.
 */
import { type Moment, now } from './clock.js';
import type { Word } from './connection.js';

type Answer = number | string | Buffer | null | Answer[];

interface Hold {
  readonly owner: string;
  readonly fence: number;
  share: number;
  end: Moment;
  /** The connection that it is bound to, and for how long it outlives that. */
  session?: Session | undefined;
  grace: number;
}

interface Waiter {
  readonly owner: string;
  readonly keys: readonly string[];
  readonly share: number;
  readonly ttl: number;
  readonly session: Session;
  since: Moment;
  readonly until: Moment;
  readonly grace: number | undefined;
  /** For how long its place is kept, if it has a ticket; a connection waits otherwise. */
  readonly kept: number | undefined;
  readonly channel: string | undefined;
  /** Answers a connection that waits. */
  readonly answer: (reply: Answer | Error) => void;
}

/** A connection, as the server has it. */
export class Session {
  static #last = 0;
  readonly number = ++Session.#last;
  readonly channels = new Set<string>();

  constructor(readonly hear: (channel: Buffer, message: Buffer) => void) {}
}

type Command = (this: Memory, session: Session, ...words: string[]) => Answer | Promise<Answer>;

const LONGEST_TIMER = 2 ** 31 - 1;

export class Memory {
  readonly sessions = new Set<Session>();
  /** Names, owners and values are texts of one byte a character. */
  locks = new Map<string, Hold[]>();
  #queue: Waiter[] = [];
  readonly #values = new Map<string, string>();
  #lastFence = 0;
  /** When the next of them is over. */
  #due = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  open(hear: Session['hear'] = () => {}): Session {
    const session = new Session(hear);
    this.sessions.add(session);
    return session;
  }

  end(session: Session): void {
    if (!this.sessions.delete(session)) return;
    this.#queue = this.#queue.filter((waiter) => waiter.kept !== undefined || waiter.session !== session);
    for (const hold of this.#holds()) {
      if (hold.session === session)
        Object.assign(hold, { session: undefined, end: Math.min(hold.end, now() + hold.grace) });
    }
    this.#settle();
  }

  async run(session: Session, words: readonly Word[]): Promise<Answer> {
    if (now() >= this.#due) this.#settle();
    return this.#run(session, words.map(ofBytes));
  }

  #run(session: Session, [name = '', ...rest]: readonly string[]): Answer | Promise<Answer> {
    const command = this.commands.get(name.toUpperCase());
    if (command === undefined) throw new Error(`ERR unknown command '${name}'`);
    return command.apply(this, [session, ...rest]);
  }

  /** Ends what is over, and grants what can be granted: called after whatever may have changed that. */
  #settle(): void {
    const here = now();
    for (const [key, holds] of this.locks) {
      const lasting = holds.filter(({ end }) => end > here);
      if (lasting.length > 0) this.locks.set(key, lasting);
      else this.locks.delete(key);
    }
    const before = new Set<string>();
    for (const waiter of [...this.#queue]) {
      const { keys, owner, share } = waiter;
      if (waiter.until <= here) this.#leave(waiter, null);
      else if (!keys.some((key) => before.has(key)) && this.#admits(keys, owner, share)) this.#handOn(waiter);
      else for (const key of keys) before.add(key);
    }
    clearTimeout(this.#timer);
    this.#due = Number.POSITIVE_INFINITY;
    this.#lookBy(Math.min(...[...this.#holds()].map(({ end }) => end), ...this.#queue.map(({ until }) => until)));
  }

  #lookBy(moment: Moment): void {
    if (moment >= this.#due) return;
    this.#due = moment;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#settle(), Math.min(Math.max(0, moment - now()) + 1, LONGEST_TIMER));
    // Whoever waits does so for it; what is held keeps no program alive.
    if (this.#queue.length === 0) this.#timer.unref();
    else this.#timer.ref();
  }

  #handOn(waiter: Waiter): void {
    const { keys, owner, share, ttl, kept, session, grace, channel } = waiter;
    const fence = this.#grant(keys, owner, share, Math.min(ttl, kept ?? ttl), session, grace);
    this.#leave(waiter, fence);
    if (channel === undefined) return;
    const told = bytes(`${fence} ${owner.length} ${owner} ${keys[0]}`);
    for (const { channels, hear } of this.sessions) if (channels.has(channel)) hear(bytes(channel), told);
  }

  #leave(waiter: Waiter, reply: Answer | Error): void {
    this.#queue.splice(this.#queue.indexOf(waiter), 1);
    waiter.answer(reply);
  }

  *#holds(): Generator<Hold> {
    for (const holds of this.locks.values()) yield* holds;
  }

  /** What the owner holds of these, by that fence if one is given. */
  #of(keys: readonly string[], owner: string, fence?: number): Hold[] {
    const holds = keys.flatMap((key) => this.locks.get(key) ?? []);
    return holds.filter((hold) => hold.owner === owner && (fence === undefined || hold.fence === fence));
  }

  #admits(keys: readonly string[], owner: string, share: number): boolean {
    return keys.every((key) => {
      const others = (this.locks.get(key) ?? []).filter((hold) => hold.owner !== owner);
      return others.length < smallest([share, ...others.map((hold) => hold.share)]);
    });
  }

  #grant(keys: readonly string[], owner: string, share: number, ttl: number, session: Session, grace?: number): number {
    const fence = Math.max(this.#lastFence + 1, Date.now() * 1_000);
    this.#lastFence = fence;
    for (const key of keys) {
      const others = (this.locks.get(key) ?? []).filter((hold) => hold.owner !== owner);
      const hold = { owner, fence, share, end: now() + ttl, grace: 0 };
      bind(hold, session, grace);
      this.locks.set(key, [...others, hold]);
      this.#lookBy(hold.end);
    }
    return fence;
  }

  // The commands of the module.

  #acquire(session: Session, key: string, owner: string, lease: string, ...words: string[]): Answer | Promise<Answer> {
    const { keys, given } = options(key, words);
    const [ttl, share, grace] = [Number(lease), given('SHARE') ?? 1, given('EPHEMERAL')];
    const held = this.#of(keys, owner);
    const isTighter = (hold: Hold) => smallest([share, hold.share]) < smallest([hold.share]);
    if (held[0] !== undefined && held.length === keys.length && !held.some(isTighter)) {
      for (const hold of held) {
        Object.assign(hold, { share, end: Math.max(hold.end, now() + ttl) });
        bind(hold, session, grace);
      }
      this.#settle();
      return held[0].fence;
    }
    const isBefore = (waiter: Waiter) => waiter.owner !== owner && waiter.keys.some((each) => keys.includes(each));
    // Whoever holds it goes before those who wait.
    if ((held.length > 0 || !this.#queue.some(isBefore)) && this.#admits(keys, owner, share)) {
      return this.#grant(keys, owner, share, ttl, session, grace);
    }
    const [kept, patience] = [given('TICKET'), given('BLOCK')];
    const lasts = kept ?? patience;
    if (held.length > 0 || lasts === undefined) return null;
    const until = lasts === 0 ? Number.POSITIVE_INFINITY : now() + lasts;
    const asked = { owner, keys, share, ttl, session, since: now(), until, grace, kept, channel: given.channel };
    if (kept !== undefined) return this.#enter({ ...asked, answer: () => {} });
    return new Promise((resolve, reject) => {
      this.#enter({ ...asked, answer: (reply) => (reply instanceof Error ? reject(reply) : resolve(reply)) });
    });
  }

  /** In the place of a former request of the same owner for the same locks, or behind all others. */
  #enter(waiter: Waiter): null {
    let at = this.#queue.length;
    for (const former of this.#queue.filter((each) => isOf(each, waiter.owner, waiter.keys))) {
      if (former.keys.length === waiter.keys.length && former.keys.every((key) => waiter.keys.includes(key))) {
        at = this.#queue.indexOf(former);
        waiter.since = former.since;
      }
      this.#leave(former, new Error('REPLACED a newer request of the same owner took this place in the queue'));
    }
    this.#queue.splice(at, 0, waiter);
    this.#lookBy(waiter.until);
    return null;
  }

  #release(_: Session, key: string, owner: string, ...rest: string[]): Answer {
    const { fence, keys } = fenceAndKeys(key, rest);
    const released = new Set(this.#of(keys, owner, fence));
    for (const each of keys) {
      this.locks.set(
        each,
        (this.locks.get(each) ?? []).filter((hold) => !released.has(hold)),
      );
    }
    if (fence === undefined) {
      this.#queue = this.#queue.filter((each) => each.kept === undefined || !isOf(each, owner, keys));
    }
    this.#settle();
    return released.size;
  }

  #extend(_: Session, key: string, owner: string, lease: string, ...rest: string[]): Answer {
    const { fence, keys } = fenceAndKeys(key, rest);
    const held = this.#of(keys, owner, fence);
    if (held.length < keys.length) return 0;
    for (const hold of held) {
      hold.end = now() + Number(lease);
      this.#lookBy(hold.end);
    }
    return 1;
  }

  #guard(session: Session, key: string, owner: string, fence: string, ...command: string[]): Answer | Promise<Answer> {
    if (this.#of([key], owner, Number(fence)).length === 0) {
      throw new Error('NOTHOLDER this owner does not hold the lock by this fence, nothing was run');
    }
    if (/^(SUBSCRIBE|PING|WAIT|LOCK.GUARD)$/i.test(command[0] ?? '')) {
      throw new Error('ERR LOCK.GUARD does not run commands that act on a connection or a subscription');
    }
    return this.#run(session, command);
  }

  #info(_: Session, key: string): Answer {
    const holds = this.locks.get(key);
    if (holds?.[0] === undefined) return null;
    const share = smallest(holds.map((hold) => hold.share));
    const waiters = this.#queue.filter(({ keys }) => keys.includes(key)).length;
    const rest = ['waiters', waiters, 'holders', holds.length, 'share', share === Number.POSITIVE_INFINITY ? 0 : share];
    return [...told(holds[0]), ...rest];
  }

  #waiters(_: Session, key: string): Answer {
    const waiters = this.#queue.filter(({ keys }) => keys.includes(key));
    return waiters.map(({ owner, session, since, until, share, kept, keys }) => {
      const left = until === Number.POSITIVE_INFINITY ? -1 : Math.ceil(until - now());
      const its = ['owner', bytes(owner), 'client', session.number, 'waited', Math.floor(now() - since)];
      const kind = kept === undefined ? 'block' : 'ticket';
      return [...its, 'patience', left, 'share', share, 'kind', kind, 'locks', keys.length];
    });
  }

  // What else the package asks, and a few that can be guarded.

  #subscribe(session: Session, channel: string): Answer {
    session.channels.add(channel);
    return ['subscribe', bytes(channel), session.channels.size];
  }

  #set(_: Session, key: string, value: string): Answer {
    this.#values.set(key, value);
    return 'OK';
  }

  #get(_: Session, key: string): Answer {
    const value = this.#values.get(key);
    return value === undefined ? null : bytes(value);
  }

  #increment(_: Session, key: string): Answer {
    const value = Number(this.#values.get(key) ?? 0) + 1;
    this.#values.set(key, String(value));
    return value;
  }

  #delete(_: Session, ...keys: string[]): Answer {
    const gone = keys.filter((key) => this.locks.delete(key) || this.#values.delete(key));
    this.#settle();
    return gone.length;
  }

  readonly commands = new Map<string, Command>([
    ['LOCK.ACQUIRE', this.#acquire],
    ['LOCK.RELEASE', this.#release],
    ['LOCK.EXTEND', this.#extend],
    ['LOCK.GUARD', this.#guard],
    ['LOCK.INFO', this.#info],
    ['LOCK.HOLDERS', (_, key = '') => (this.locks.get(key) ?? []).map((hold) => [...told(hold), 'share', hold.share])],
    ['LOCK.WAITERS', this.#waiters],
    // Nothing is counted, and there is no replica to wait for.
    ['LOCK.TOP', () => []],
    ['LOCK.LOG', () => []],
    ['WAIT', () => 0],
    ['PING', () => 'PONG'],
    ['SUBSCRIBE', this.#subscribe],
    ['SET', this.#set],
    ['GET', this.#get],
    ['INCR', this.#increment],
    ['DEL', this.#delete],
  ]);
}

function bind(hold: Hold, session: Session, grace: number | undefined): void {
  if (grace !== undefined) Object.assign(hold, { session, grace });
}

function isOf(waiter: Waiter, owner: string, keys: readonly string[]): boolean {
  return waiter.owner === owner && waiter.keys.some((key) => keys.includes(key));
}

/** Of shares, where 0 is no limit. */
function smallest(shares: number[]): number {
  return Math.min(...shares.map((share) => share || Number.POSITIVE_INFINITY));
}

function told({ owner, fence, end }: Hold): Answer[] {
  const left = Math.max(0, Math.round(end - now()));
  return ['owner', bytes(owner), 'fence', fence, 'ttl', left, 'deadline', Date.now() + left];
}

function options(key: string, words: readonly string[]) {
  const found = new Map<string, string>();
  const keys = [key];
  for (let at = 0; at < words.length; ) {
    const option = (words[at++] ?? '').toUpperCase();
    const value = words[at++] ?? '';
    if (option === 'ALSO') {
      keys.push(...words.slice(at, at + Number(value)));
      at += Number(value);
    } else if (['SHARE', 'BLOCK', 'TICKET', 'NOTIFY', 'EPHEMERAL'].includes(option)) found.set(option, value);
    else throw new Error('ERR unknown option');
  }
  const given = (option: string) => (found.has(option) ? Number(found.get(option)) : undefined);
  return { keys, given: Object.assign(given, { channel: found.get('NOTIFY') }) };
}

function fenceAndKeys(key: string, words: readonly string[]) {
  const fence = /^\d+$/.test(words[0] ?? '') ? Number(words[0]) : undefined;
  return { fence, keys: options(key, words.slice(fence === undefined ? 0 : 1)).keys };
}

function ofBytes(word: Word): string {
  return Buffer.from(word as string).toString('latin1');
}

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}
