/** Locks on Redis and Valkey, over a client that the program has. */
import { randomUUID } from 'node:crypto';
import { acquire } from './acquiring.js';
import { connectionOf } from './adapters/choose.js';
import type { Client } from './adapters/shapes.js';
import { ask } from './asking.js';
import { Attempt, type Granted, type Wanted } from './attempt.js';
import { type Moment, now } from './clock.js';
import type { Connection, Ear, Word } from './connection.js';
import { Detached } from './detached.js';
import { Election, listenForChanges } from './election.js';
import { ClosedError, LostError, SettingError, SurpriseError } from './errors.js';
import type { Emit } from './events.js';
import { Hold, type Holder } from './hold.js';
import type { Contention, HolderInfo, LockInfo, LogEntry, WaiterInfo } from './info.js';
import { listed, look } from './info.js';
import { Lease } from './lease.js';
import { Lock, type WithOptions, type WorkWith } from './lock.js';
import { Most } from './most.js';
import { ANY, type Claim, EXCLUSIVE, type Question, type Share } from './questions.js';
import { Reentries } from './reentries.js';
import { acknowledged } from './replicas.js';
import { Server } from './server.js';
import type { AcquireOptions, Checked, Name, Settings, TryOptions } from './settings.js';
import { checkCount, checkDuration, checked, checkOptions, checkSeveral, keyOf, shown } from './settings.js';
import { Steps } from './steps.js';
import { type Tell, telling, warn } from './trouble.js';
import { patienceForAnswer } from './validity.js';
import { Places } from './waiting/places.js';
import { whenever } from './whenever.js';

const PROCESS = `${process.pid}:`;

export class Leasehold implements AsyncDisposable {
  readonly #settings: Checked;
  readonly #server: Server;
  readonly #places: Places;
  readonly #queue: (attempt: Attempt) => Promise<Granted | null>;
  readonly #tell: Tell;
  readonly #emit: Emit | undefined;
  readonly #closed = new Steps();
  readonly #holder: Holder;
  readonly #attempts = new Set<Attempt>();
  readonly #reentries = new Reentries();
  /** What is being released, and what may have been granted to those who gave up, by the names of the locks. */
  readonly #givingBack = new Map<Promise<void>, string>();
  /** The names of the locks whose release has failed, and until when they stay. */
  readonly #staying = new Map<string, Moment>();
  #closing: Promise<string[]> | undefined;

  constructor(client: Client, settings?: Settings);
  /** @internal */
  constructor(client: Client | Most | Connection, settings?: Settings);
  constructor(client: Client | Most | Connection, settings: Settings = {}) {
    this.#settings = checked(settings);
    this.#tell = telling(settings.onTrouble ?? warn);
    this.#emit = settings.onEvent && telling(settings.onEvent);
    this.#server = client instanceof Most ? client : new Server(connectionOf(client));
    this.#places = new Places(this.#server.connection, this.#settings);
    this.#queue = (attempt) => (client instanceof Most ? client.acquire(attempt) : acquire(attempt, this.#places));
    this.#holder = {
      settings: this.#settings,
      holds: new Set(),
      tell: this.#tell,
      await: (request, name, end) => this.#await(request, name, end),
    };
  }

  /** Null if somebody else has the lock. */
  tryAcquire(name: Name, options: TryOptions = {}): Promise<Lease | null> {
    return this.write(name).tryAcquire(options);
  }

  /** Waits for the lock, in the order of coming. Rejects with `BusyError` when `wait` is over. */
  acquire(name: Name, options: AcquireOptions = {}): Promise<Lease> {
    return this.write(name).acquire(options);
  }

  /** Waits for the lock, does the work, and releases it however the work ends: see `Lock.with`. */
  with<T>(name: Name, ...given: WorkWith<T, WithOptions>): Promise<T> {
    return this.write(name).with(...given);
  }

  /** Held beside any number of other readers. It needs the module. */
  read(name: Name): Lock {
    return this.#lock([name], ANY);
  }

  /** Held alone. */
  write(name: Name): Lock {
    return this.#lock([name], EXCLUSIVE);
  }

  /** Both of one lock: for readers, and for a writer. It needs the module. */
  readWrite(name: Name): { readonly read: Lock; readonly write: Lock } {
    return { read: this.read(name), write: this.write(name) };
  }

  /** Held by so many at a time. It needs the module. */
  semaphore(name: Name, permits: number): Lock {
    checkCount('permits', permits);
    return this.#lock([name], permits);
  }

  /** Goes on with a lock that was left held: renews it by the `ttl` of the settings. `LostError`: it is not held any more. */
  async adopt(given: Detached | string): Promise<Lease> {
    this.#closed.throwIfStopped();
    const { keys, owner, fence } = given instanceof Detached ? given : Detached.parse(given);
    const { ttl, within: limit, response } = this.#settings;
    const [key = '', ...also] = keys;
    const claim: Claim = { key, also, owner, share: EXCLUSIVE };
    const wanted: Wanted = { name: keys.map(shown).join(', '), ttl, wait: 0, confirm: false };
    const limits = { each: patienceForAnswer(response, ttl), until: now() + limit, steps: this.#closed };
    const { number, asked } = await ask(this.#server, claim, { ask: 'extend', fence: Number(fence), ttl }, limits);
    if (number !== 1) throw new LostError(wanted.name, 'taken');
    const attempt = new Attempt(this.#server, wanted, claim, this.#giveBack, this.#emit);
    const terms = { renewUntil: Number.POSITIVE_INFINITY, holdUntil: Number.NEGATIVE_INFINITY };
    attempt.tell('granted', { fence });
    return new Lease(new Hold(this.#holder, attempt, { fence: Number(fence), asked, lasts: ttl }, terms));
  }

  /** All of these locks or none, with one fence; in a cluster they are in one slot. Whoever waits holds none of them. */
  several(names: readonly Name[]): Lock {
    return this.#lock(checkSeveral(names), EXCLUSIVE);
  }

  /** An election of this name, in which this program goes by the name of `candidate`. */
  election(name: Name, candidate: string): Election {
    const voting = {
      lock: this.write(name),
      info: () => this.info(name),
      listen: (ear: Ear) => listenForChanges(this.#server, this.#key(name), this.#settings.within, ear),
      closed: this.#closed,
    };
    return new Election(voting, candidate);
  }

  /** Who holds the lock at this moment, and how many wait for it: null if it is free. */
  async info(name: Name): Promise<LockInfo | null> {
    return this.#told(look(this.#server, this.#key(name)));
  }

  /** Who holds the lock, the oldest grant first. It needs the module, as all that follow. */
  async holders(name: Name): Promise<HolderInfo[]> {
    return this.#list(name, 'LOCK.HOLDERS', this.#key(name), 'COUNT', '-1');
  }

  /** Who waits for the lock, the next one first. */
  async waiters(name: Name): Promise<WaiterInfo[]> {
    return this.#list(name, 'LOCK.WAITERS', this.#key(name), 'COUNT', '-1');
  }

  /** The locks most waited for on the server; in a cluster, on the node that has the lock `at`. */
  async top(count = 10, at: Name = ''): Promise<Contention[]> {
    checkCount('count', count);
    return this.#list(at, 'LOCK.TOP', String(count));
  }

  /** What went wrong with locks on the server, or that node: the latest first. */
  async log(count = 10, at: Name = ''): Promise<LogEntry[]> {
    checkCount('count', count);
    return this.#list(at, 'LOCK.LOG', String(count));
  }

  /** @internal For a holder of which only the owner is known: how many locks it held, or whether it held all. */
  async asked(names: readonly Name[], owner: string, question: Question): Promise<number | null> {
    const { ttl, within: limit, response } = this.#settings;
    const [key = '', ...also] = names.map((name) => this.#key(name));
    const limits = { each: patienceForAnswer(response, ttl), until: now() + limit, steps: this.#closed };
    return (await ask(this.#server, { key, also, owner, share: EXCLUSIVE }, question, limits)).number;
  }

  #lock(names: readonly Name[], share: Share): Lock {
    return new Lock((options, busy) => this.#acquire(names, share, options, busy), names, share, this.#reentries);
  }

  #list<T>(at: Name, ...command: Word[]): Promise<T[]> {
    return this.#told(listed<T>(this.#server, this.#key(at), command));
  }

  async #told<T>(reading: Promise<T>): Promise<T> {
    try {
      return await this.#closed.within(this.#settings.within, reading);
    } catch (error) {
      throw this.#server.told(error);
    }
  }

  /**
   * Ends all waits, releases what is held, and closes the connections that were opened beside the client, which is the
   * program's. Takes no longer than that many milliseconds. Resolves with the names of the locks that stay until their
   * leases end: none, unless the server did not answer.
   */
  async close(limit = 5_000): Promise<string[]> {
    checkDuration('limit', limit, 0);
    this.#closing ??= this.#close(limit);
    return this.#closing;
  }

  /** Whether `close` was called. */
  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(limit: number): Promise<string[]> {
    const reason = new ClosedError();
    this.#closed.stop(reason);
    for (const { steps } of this.#attempts) steps.stop(reason);
    const { holds } = this.#holder;
    const releases = [...holds].map((hold) => hold.close(reason));
    // Those who wait leave the queue in the next turn.
    await new Promise((resolve) => setImmediate(resolve));
    const all = async () => {
      await Promise.allSettled(releases);
      // What is answered meanwhile may have to be given back, too.
      while (this.#givingBack.size > 0) await Promise.allSettled(this.#givingBack.keys());
    };
    await new Steps().within(limit, all()).catch(() => {});
    const names = new Set([...[...holds].map(({ name }) => name), ...this.#givingBack.values()]);
    for (const [name, end] of this.#staying) if (end > now()) names.add(name);
    this.#server.connection.close();
    return [...names];
  }

  /** Throws at once where it makes no sense. What it comes to when others have the lock is up to `busy`. */
  #acquire<T>(
    names: readonly Name[],
    share: Share,
    options: AcquireOptions,
    busy: (lock: string, waited: number) => T,
  ): Promise<Lease | T> {
    checkOptions(options);
    const { ttl = this.#settings.ttl, wait = this.#settings.wait, confirm = this.#settings.confirm, signal } = options;
    const { owner = newOwner(), renew = true, holdAtLeast = 0, ephemeral: grace, replicas } = options;
    if (grace !== undefined && this.#server.connection.opensAnew) {
      throw new SettingError('ephemeral', 'this client opens connections anew by itself, so nothing is bound to one');
    }
    signal?.throwIfAborted();
    this.#closed.throwIfStopped();
    const [key = '', ...also] = names.map((name) => this.#key(name));
    const wanted: Wanted = { name: names.map(shown).join(', '), ttl: Math.ceil(ttl), wait, confirm };
    const attempt = new Attempt(this.#server, wanted, { key, also, owner, share, grace }, this.#giveBack, this.#emit);
    const { steps } = attempt;
    const forget = signal && whenever(signal, 'abort', () => steps.stop(signal.reason));
    this.#attempts.add(attempt);
    attempt.tell('asked');
    const over = () => {
      this.#attempts.delete(attempt);
      forget?.();
    };
    const { response } = this.#settings;
    let acquiring = this.#queue(attempt);
    if (replicas)
      acquiring = acquiring.then((granted) => granted && acknowledged(attempt, granted, replicas, response));
    // No frame is kept meanwhile: there may be many who wait.
    return acquiring.then(
      (granted) => {
        over();
        // It may have been stopped in the same moment as it was granted. Nobody would release it.
        if (granted === null || steps.areStopped) {
          attempt.giveUp();
          attempt.tell('refused');
        }
        steps.throwIfStopped();
        if (granted === null) return busy(wanted.name, now() - attempt.begun);
        const renewUntil = granted.asked + (typeof renew === 'number' ? renew : renew ? Number.POSITIVE_INFINITY : 0);
        const holdUntil = holdAtLeast === 0 ? Number.NEGATIVE_INFINITY : now() + holdAtLeast;
        attempt.tell('granted', { fence: BigInt(granted.fence) });
        return new Lease(new Hold(this.#holder, attempt, granted, { renewUntil, holdUntil }));
      },
      (error) => {
        over();
        attempt.giveUp();
        attempt.tell('refused', { error });
        throw error;
      },
    );
  }

  /** In the background: whoever gave up does not wait for it. `close` does. */
  readonly #giveBack = (claim: Claim, { ttl, name }: Wanted, after: number): void => {
    const { response, within: limit } = this.#settings;
    const steps = new Steps();
    const limits = { each: patienceForAnswer(response, ttl), until: now() + after + limit, steps };
    const release = () => ask(this.#server, claim, { ask: 'release' }, limits);
    // At once is in order behind what was asked before.
    const giving = (after === 0 ? release() : steps.sleep(after).then(release)).catch((error) => {
      this.#tell({ kind: 'release failed', name, owner: claim.owner, error: this.#server.told(error) });
      throw error;
    });
    this.#await(giving, name, now() + ttl);
  };

  /** `close` waits for it, and names the lock if it takes too long, or has failed and the lock stays until then. */
  #await(giving: Promise<unknown>, name: string, until: Moment): void {
    const over = () => {
      this.#givingBack.delete(given);
    };
    const failed = (error: unknown) => {
      over();
      // In a transaction of the program it is carried out with that.
      if (error instanceof SurpriseError) return;
      for (const [other, end] of this.#staying) if (end <= now()) this.#staying.delete(other);
      this.#staying.set(name, Math.max(until, this.#staying.get(name) ?? until));
    };
    const given: Promise<void> = giving.then(over, failed);
    this.#givingBack.set(given, name);
  }

  #key(name: Name): Word {
    return keyOf(this.#settings.prefix, name);
  }
}

function newOwner(): string {
  return PROCESS + randomUUID();
}
