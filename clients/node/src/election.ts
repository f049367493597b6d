/** One leader among several candidates: a lock that whoever leads holds. */
import { randomUUID } from 'node:crypto';
import { whenAborted } from './aborts.js';
import { now } from './clock.js';
import { SettingError } from './errors.js';
import { type LockInfo, printable } from './info.js';
import type { Lease } from './lease.js';
import { type AcquireOptions, checkDuration, checkNames, checkSignal, LONGEST_OWNER } from './settings.js';
import type { Steps } from './steps.js';

/** Between the name of a candidate and what makes it an owner that nobody else has. */
const SEPARATOR = '/';
const UUID_LENGTH = 36;

export interface Leader {
  /** By the name that it gave when it campaigned. */
  readonly candidate: string;
  /** The fence of its term: larger than that of any earlier term. */
  readonly fence: bigint;
}

export interface ObserveOptions {
  /** How often to look, in milliseconds: 1,000. */
  lookEvery?: number | undefined;
  /** Ends it. */
  signal?: AbortSignal | undefined;
}

export interface Voting {
  acquire(owner: string, options: AcquireOptions): Promise<Lease>;
  info(): Promise<LockInfo | null>;
  /** Stopped when the `Leasehold` is closed. */
  readonly closed: Steps;
}

export class Election {
  readonly #voting: Voting;
  readonly #candidate: string;

  /** @internal */
  constructor(voting: Voting, candidate: string) {
    if (typeof candidate !== 'string') throw new SettingError('candidate', 'it must be a string');
    if (Buffer.byteLength(candidate) + SEPARATOR.length + UUID_LENGTH > LONGEST_OWNER) {
      throw new SettingError('candidate', 'it must be at most 218 bytes long');
    }
    this.#voting = voting;
    this.#candidate = candidate;
  }

  /** Waits until this candidate leads. Candidates queue, and lead in the order of their coming. */
  async campaign(options: AcquireOptions = {}): Promise<Leadership> {
    const owner = `${this.#candidate}${SEPARATOR}${randomUUID()}`;
    return new Leadership(await this.#voting.acquire(owner, options));
  }

  /** Who leads at this moment: null between two terms. */
  async leader(): Promise<Leader | null> {
    const info = await this.#voting.info();
    return info === null ? null : printable({ candidate: nameOf(info.holder), fence: info.fence });
  }

  /**
   * Who leads: the present one first, and then each that differs from the one before. Null: nobody leads. Terms shorter
   * than `lookEvery` may be missed. While no server answers it says nothing. It ends with its signal, or when the
   * `Leasehold` is closed.
   */
  async *observe(options: ObserveOptions = {}): AsyncGenerator<Leader | null, void, void> {
    checkNames(options, ['lookEvery', 'signal']);
    const { lookEvery = 1_000, signal } = options;
    checkDuration('lookEvery', lookEvery, 1);
    if (signal !== undefined) checkSignal(signal);
    const { closed } = this.#voting;
    const isOver = () => closed.areStopped || signal?.aborted === true;
    let forget = () => {};
    let last: Leader | null | undefined;
    while (!isOver()) {
      const leader = await this.leader().catch(() => last);
      if (isOver()) return;
      if (leader !== undefined && (last === undefined || leader?.fence !== last?.fence)) {
        last = leader;
        yield leader;
      }
      const resting = closed.asleep<undefined>(now() + lookEvery, (step) => {
        forget = whenAborted(signal, () => step.arrive(undefined));
      });
      await resting.catch(() => {});
      forget();
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

function nameOf(holder: string): string {
  const at = holder.length - UUID_LENGTH - SEPARATOR.length;
  return at >= 0 && holder[at] === SEPARATOR ? holder.slice(0, at) : holder;
}
