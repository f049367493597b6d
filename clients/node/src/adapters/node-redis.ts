/** node-redis: `createClient`, `createCluster` and `createSentinel`. */
import { type Moment, now } from '../clock.js';
import type { Connection, Dedicated, Ear, Listening, Word } from '../connection.js';
import { Ending, whenever } from './ending.js';
import { lastFailure, watchFailures } from './failing.js';
import type { Emitter, NodeRedis, NodeRedisCluster, NodeRedisSentinel } from './shapes.js';
import { within } from '../steps.js';
import { verdict } from '../verdict.js';
import { slotOf } from './slots.js';

/** Texts as bytes, and maps flat: by the first byte of each type in the protocol, `$` and `%`. */
const AS_BYTES = { typeMapping: { 36: Buffer, 37: Array } };

/** The client of one server. */
interface Single extends NodeRedis {
  readonly options?: { readonly socket?: object };
  readonly isReady: boolean;
  off(event: string, listener: (...args: never[]) => void): unknown;
  duplicate(overrides: object): Single;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: Buffer) => void, bytes: true): Promise<unknown>;
  destroy(): void;
  unref(): void;
}

interface ClusterInside {
  readonly isOpen?: boolean;
  readonly slots: readonly { readonly master: object }[];
  readonly masters: readonly object[];
  nodeClient(node: object): Promise<Single> | Single;
}

interface SentinelInside {
  _execute<T>(isReadonly: boolean, work: (client: Single) => Promise<T>): Promise<T>;
}

export function singleOfNodeRedis(client: NodeRedis): Connection {
  const single = client as Single;
  const ready = onceReady(single);
  return new NodeRedisConnection(
    client,
    async (_key, words) => {
      if (!single.isReady) await ready();
      return single.sendCommand(words, AS_BYTES);
    },
    async () => single,
    () => single,
    () => single.isOpen,
  );
}

/** node-redis tries again within two seconds, unless it was told to wait longer. */
const REFUSED_FOR = 3_000;

/**
 * Waits until the client is connected and logged in, or has failed to. What waits in the client's own queue is sent behind
 * the password, before the answer to it: a wrong password would let it run as another user. What the server refused a
 * moment ago is not waited for again: until the client's next try the answer is the same.
 */
function onceReady(single: Single): () => Promise<void> {
  let pending: Promise<void> | undefined;
  let refused: { readonly error: unknown; readonly at: Moment } | undefined;
  return () => {
    if (refused !== undefined && now() - refused.at < REFUSED_FOR) return Promise.reject(refused.error);
    pending ??= new Promise<void>((resolve, reject) => {
      const over = (settle: () => void) => {
        single.off('ready', connected);
        single.off('error', failed);
        single.off('end', ended);
        pending = undefined;
        refused = undefined;
        settle();
      };
      const connected = () => over(resolve);
      const failed = (error: unknown) =>
        over(() => {
          if (verdict(error) === 'refused') refused = { error, at: now() };
          reject(error);
        });
      const ended = () => over(() => reject(new Error('the client was closed')));
      single.on('ready', connected);
      single.on('error', failed);
      single.on('end', ended);
    });
    return pending;
  };
}

export function clusterOfNodeRedis(client: NodeRedisCluster): Connection {
  const cluster = client as unknown as ClusterInside;
  const nodeOf = async (key: Word) => {
    const { masters } = cluster;
    // Any of them if nobody knows: it says which one has the key.
    const node = cluster.slots[slotOf(key)]?.master ?? masters[Math.floor(Math.random() * masters.length)];
    if (node === undefined) throw new Error('the cluster has no node for it');
    return cluster.nodeClient(node);
  };
  return new NodeRedisConnection(
    client,
    async (key, words) => client.sendCommand(key, false, [...words], AS_BYTES),
    nodeOf,
    (key) => cluster.slots[slotOf(key)]?.master,
    () => cluster.isOpen ?? true,
  );
}

export function sentinelOfNodeRedis(client: NodeRedisSentinel): Connection {
  const sentinel = client as unknown as SentinelInside;
  return new NodeRedisConnection(
    client,
    async (_key, words) => client.sendCommand(false, [...words], AS_BYTES),
    () => sentinel._execute(false, async (node) => node),
    () => client,
    () => client.isOpen,
  );
}

class NodeRedisConnection implements Connection {
  readonly #beside = new Set<() => void>();
  readonly #client: Emitter;
  readonly #nodeOf: (key: Word) => Promise<Single>;
  readonly #placeOf: (key: Word) => object | undefined;
  readonly #isOpen: () => boolean;
  readonly #forget: () => void;
  readonly #send: (key: Word, words: readonly Word[]) => Promise<unknown>;

  constructor(
    client: Emitter,
    send: (key: Word, words: readonly Word[]) => Promise<unknown>,
    nodeOf: (key: Word) => Promise<Single>,
    placeOf: (key: Word) => object | undefined,
    isOpen: () => boolean,
  ) {
    this.#client = client;
    watchFailures(client);
    this.#send = send;
    this.#nodeOf = nodeOf;
    this.#placeOf = placeOf;
    this.#isOpen = isOpen;
    this.#forget = whenever(client, ['end', 'disconnect'], () => this.#closeBeside());
  }

  send(key: Word, words: readonly Word[]): Promise<unknown> {
    return this.#send(key, words);
  }

  place(key: Word): object | undefined {
    return this.#placeOf(key);
  }

  async dedicated(key: Word): Promise<Dedicated> {
    const own = beside(await this.#nodeOf(key));
    const ending = new Ending();
    const close = () => {
      this.#beside.delete(close);
      destroy(own);
      ending.over();
    };
    // It is not opened again, so an error ends it.
    own.on('error', close);
    own.on('end', close);
    this.#beside.add(close);
    await own.connect();
    const send = async (words: readonly Word[]) => own.sendCommand(words, AS_BYTES);
    return { send, whenEnded: ending.whenEnded, close };
  }

  /** node-redis writes once in each turn of the loop. */
  together(_key: Word, send: () => void): void {
    send();
  }

  async listen(key: Word, channel: string, limit: number, ear: Ear): Promise<Listening> {
    const asked = await within(limit, this.#nodeOf(key));
    const own = beside(asked);
    let isOver = false;
    // Connected anew, it may be to another server, and what this one tells is of no account then.
    const forget = whenever(asked, ['ready'], () => over());
    const forgetPrimary = whenever(this.#client, ['topology-change'], () => over());
    const close = () => {
      forget();
      forgetPrimary();
      this.#beside.delete(close);
      destroy(own);
    };
    const over = () => {
      if (isOver) return;
      isOver = true;
      close();
      ear.ended();
    };
    this.#beside.add(close);
    // It is not opened again, so an error ends it.
    own.on('error', over);
    own.on('end', over);
    const subscribed = async () => {
      await own.connect();
      own.unref();
      await own.subscribe(channel, (message) => ear.hear(message), true);
    };
    try {
      await within(limit, subscribed());
    } catch (error) {
      isOver = true;
      close();
      throw error;
    }
    return { close };
  }

  /** node-redis looks for the primary by itself. */
  elsewhere(): void {}

  close(): void {
    this.#forget();
    this.#closeBeside();
  }

  #closeBeside(): void {
    for (const close of this.#beside) close();
  }

  trouble(): unknown {
    return (this.#client as Partial<Single>).isReady ? undefined : lastFailure(this.#client);
  }

  isClosed(): boolean {
    return !this.#isOpen();
  }
}

/** A connection beside the program's own, which is not opened again, and has none of its limits for replies. */
function beside(client: Single): Single {
  const socket = { ...client.options?.socket, socketTimeout: undefined, reconnectStrategy: false };
  const none = { pingInterval: undefined, commandsQueueMaxLength: undefined, commandOptions: undefined };
  return client.duplicate({ socket, disableOfflineQueue: false, ...none });
}

function destroy(client: Single): void {
  try {
    client.destroy();
  } catch {
    // It was not open.
  }
}
