/** One leader among several candidates: a lock that whoever leads holds. */
import { randomUUID } from 'node:crypto';
import { now } from './clock.js';
import type { Ear, Listening, Word } from './connection.js';
import { SettingError } from './errors.js';
import { type LockInfo, printable } from './info.js';
import type { Lease } from './lease.js';
import type { Lock } from './lock.js';
import { fields, text } from './reply.js';
import type { Server } from './server.js';
import type { AcquireOptions } from './settings.js';
import { checkDuration, checkNames, checkOptions, checkSignal, LONGEST_OWNER } from './settings.js';
import type { Steps } from './steps.js';
import { whenever } from './whenever.js';

/** Between the name of a candidate and what makes it an owner that nobody else has. */
const SEPARATOR = '/';
const UUID_LENGTH = 36;

/** So often it looks at least, though nothing has been heard. */
const UNHEARD = 30_000;

export interface Leader {
  /** By the name that it gave when it campaigned. */
  readonly candidate: string;
  /** The fence of its term: larger than that of any earlier term. */
  readonly fence: bigint;
}

export interface ObserveOptions {
  /** How often to look where nothing tells of changes, in milliseconds: 1,000. */
  lookEvery?: number | undefined;
  /** Ends it. */
  signal?: AbortSignal | undefined;
}

export interface Voting {
  readonly lock: Lock;
  info(): Promise<LockInfo | null>;
  /** Until what this resolves with is closed; undefined: nothing tells of changes. */
  listen(ear: Ear): Promise<Listening | undefined>;
  /** Stopped when the `Leasehold` is closed. */
  readonly closed: Steps;
}

export class Election {
  readonly #voting: Voting;
  readonly #candidate: string;

  /** @internal */
  constructor(voting: Voting, candidate: string) {
    const longest = LONGEST_OWNER - SEPARATOR.length - UUID_LENGTH;
    const isOne = typeof candidate === 'string' && Buffer.byteLength(candidate) <= longest;
    if (!isOne) throw new SettingError('candidate', `it must be a string of at most ${longest} bytes`);
    this.#voting = voting;
    this.#candidate = candidate;
  }

  /** Waits until this candidate leads. Candidates queue, and lead in the order of their coming. */
  async campaign(options: AcquireOptions = {}): Promise<Leadership> {
    checkOptions(options);
    const owner = `${this.#candidate}${SEPARATOR}${randomUUID()}`;
    return new Leadership(await this.#voting.lock.acquire({ ...options, owner }));
  }

  /** Who leads at this moment: null between two terms. */
  async leader(): Promise<Leader | null> {
    const info = await this.#voting.info();
    return info && leaderOf(info);
  }

  /**
   * Who leads: the present one first, and then each that differs from the one before. Null: nobody leads. Where the server
   * has key events (`notify-keyspace-events` with `K` and `A`) and tells them to this user, it looks when there is one; else
   * every `lookEvery`, and terms shorter than that may be missed. While no server answers it says nothing. It ends with its
   * signal, or when the `Leasehold` is closed.
   */
  async *observe(options: ObserveOptions = {}): AsyncGenerator<Leader | null, void, void> {
    checkNames(options, ['lookEvery', 'signal']);
    const { lookEvery = 1_000, signal } = options;
    checkDuration('lookEvery', lookEvery, 1);
    if (signal !== undefined) checkSignal(signal);
    const { closed } = this.#voting;
    const isOver = () => closed.areStopped || signal?.aborted === true;
    let wake = () => {};
    let isHeard = false;
    const hear = () => {
      isHeard = true;
      wake();
    };
    const forget = signal && whenever(signal, 'abort', hear);
    let listening: Listening | undefined;
    let mayListen = true;
    const ended = () => {
      listening = undefined;
      mayListen = true;
      hear();
    };
    let last: Leader | null | undefined;
    try {
      while (!isOver()) {
        if (mayListen) listening = await this.#voting.listen({ hear, ended }).catch(() => undefined);
        mayListen = false;
        isHeard = false;
        const info = await this.#voting.info().catch(() => {
          mayListen = listening === undefined;
          return undefined;
        });
        if (isOver()) return;
        if (info !== undefined && (last === undefined || info?.fence !== last?.fence)) {
          last = info && leaderOf(info);
          yield last;
        }
        const rest = listening === undefined ? lookEvery : Math.min(info?.ttl ?? UNHEARD, UNHEARD);
        if (isHeard) continue;
        const resting = closed.asleep<undefined>(now() + rest + 1, (step) => {
          wake = () => step.arrive(undefined);
        });
        await resting.catch(() => {});
      }
    } finally {
      forget?.();
      listening?.close();
    }
  }
}

/** A term of office. It is over when it is resigned, or lost. */
export class Leadership implements AsyncDisposable {
  /** The lock of the election, which whoever leads holds. */
  readonly lease: Lease;

  /** @internal */
  constructor(lease: Lease) {
    this.lease = lease;
  }

  /** Larger than that of any earlier term. */
  get fence(): bigint {
    return this.lease.fence;
  }

  /** Aborted when another one may lead. */
  get signal(): AbortSignal {
    return this.lease.signal;
  }

  /** For how many milliseconds nobody else can lead. */
  validFor(): number {
    return this.lease.validFor();
  }

  /** Lets the next one lead. */
  resign(): ReturnType<Lease['release']> {
    return this.lease.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.lease[Symbol.asyncDispose]();
  }
}

function leaderOf({ holder, fence }: LockInfo): Leader {
  const at = holder.length - UUID_LENGTH - SEPARATOR.length;
  return printable({ candidate: holder[at] === SEPARATOR ? holder.slice(0, at) : holder, fence });
}

/** The key events of the module, of `SET`, of `DEL`, and of leases that end. */
const NEEDED = ['d', '$', 'g', 'x'];
const EVENTS = 'notify-keyspace-events';

/** Has the server tell of changes by its own key events. Undefined: they are off, or this user may not hear of them, or the name is bytes. */
export async function listenForChanges(
  server: Server,
  key: Word,
  limit: number,
  ear: Ear,
): Promise<Listening | undefined> {
  if (typeof key !== 'string') return undefined;
  const flags = text(fields(await server.read(key, ['CONFIG', 'GET', EVENTS])).get(EVENTS));
  const isOn = flags.includes('K') && (flags.includes('A') || NEEDED.every((flag) => flags.includes(flag)));
  if (!isOn) return undefined;
  const [, db] = /\bdb=(\d+)/.exec(text(await server.read(key, ['CLIENT', 'INFO']))) ?? [];
  return server.connection.listen(key, `__keyspace@${db}__:${key}`, limit, ear);
}
