/** What the adapters of both client libraries do in the same way. */
import { errorMonitor } from 'node:events';
import { type Moment, now } from '../clock.js';
import type { Dedicated, Ear, Listening, Word } from '../connection.js';
import { Steps } from '../steps.js';
import { type Emitter, whenever } from '../whenever.js';

/** The connections that are opened beside a client, and end with it. */
export class Beside {
  readonly #open = new Set<() => void>();
  readonly #client: Emitter;
  readonly #forgets: (() => void)[];
  #isClosed = false;

  constructor(client: Emitter, ends: readonly string[]) {
    this.#client = client;
    this.#forgets = ends.map((event) => whenever(client, event, () => this.#closeAll()));
  }

  /** Keeps a connection, which `end` ends, until it is lost or closed. */
  protected keep(end: () => void): Omit<Dedicated, 'send'> {
    if (this.#isClosed) throw new Error('the connections beside the client were closed');
    const tells = new Set<() => void>();
    let isOver = false;
    const close = () => {
      if (isOver) return;
      isOver = true;
      this.#open.delete(close);
      end();
      for (const tell of [...tells]) tell();
    };
    const whenEnded = (tell: () => void) => {
      if (isOver) tell();
      else tells.add(tell);
      return () => tells.delete(tell);
    };
    this.#open.add(close);
    return { whenEnded, close };
  }

  /** A client that is `ready` again may be connected to another server, and what this one tells is of no account then. */
  protected async subscribed(
    { whenEnded, close }: Omit<Dedicated, 'send'>,
    moves: readonly [Emitter, string][],
    limit: number,
    subscribing: Promise<unknown>,
    ear: Ear,
  ): Promise<Listening> {
    const forgets = moves.map(([client, event]) => whenever(client, event, close));
    whenEnded(() => {
      for (const forget of forgets) forget();
      ear.ended();
    });
    try {
      await new Steps().within(limit, subscribing);
    } catch (error) {
      close();
      throw error;
    }
    return { close };
  }

  whenReady(tell: () => void): void {
    if ('on' in this.#client) this.#forgets.push(whenever(this.#client, 'ready', tell));
  }

  close(): void {
    this.#isClosed = true;
    for (const forget of this.#forgets) forget();
    this.#closeAll();
  }

  #closeAll(): void {
    for (const close of [...this.#open]) close();
  }
}

/** Of each client the last failure to connect: libraries say that in an event, and let requests wait without a word. */
const failures = new WeakMap<Emitter, { error: unknown; at: Moment }>();

/** A cluster goes on without one of its nodes, and does not say when that is back. */
const RECENT = 10_000;

/** A listener of `errorMonitor` is none that handles the error. False: somebody watches already. */
export function watchFailures(client: Emitter, events: readonly (string | symbol)[] = [errorMonitor]): boolean {
  if (failures.has(client)) return false;
  const last = { error: undefined as unknown, at: 0 };
  failures.set(client, last);
  for (const event of events) client.on(event, (error) => Object.assign(last, { error, at: now() }));
  client.on('ready', () => Object.assign(last, { error: undefined }));
  return true;
}

/** Why the last try to connect failed, unless one has succeeded since. */
export function lastFailure(client: Emitter): unknown {
  const last = failures.get(client);
  return last === undefined || now() - last.at > RECENT ? undefined : last.error;
}

export function found<T>(node: T | undefined): T {
  if (node === undefined) throw new Error('the cluster has no node for it');
  return node;
}

const SLOTS = 16_384;

/** The slot of a key in a cluster: CRC-16 of XMODEM. */
export function slotOf(name: Word): number {
  const key = typeof name === 'string' ? Buffer.from(name) : name;
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  let crc = 0;
  for (const byte of close > open + 1 ? key.subarray(open + 1, close) : key) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc % SLOTS;
}
