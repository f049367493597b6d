/** node-redis: `createClient`, `createCluster` and `createSentinel`. */
import { type EventEmitter, once } from 'node:events';
import type { Connection, Dedicated, Ear, Listening, Word } from '../connection.js';
import { Beside, found, lastFailure, slotOf, watchFailures } from './beside.js';
import type { NodeRedis, NodeRedisCluster, NodeRedisSentinel } from './shapes.js';
import { Steps } from '../steps.js';
import type { Emitter } from '../whenever.js';
import { verdict } from '../verdict.js';

/** Texts as bytes, and maps flat: by the first byte of each type in the protocol, `$` and `%`. */
const AS_BYTES = { typeMapping: { 36: Buffer, 37: Array } };

interface Single extends NodeRedis {
  readonly options?: { readonly socket?: object };
  readonly isReady: boolean;
  duplicate(overrides: object): Single;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: Buffer) => void, bytes: true): Promise<unknown>;
  destroy(): void;
  once(event: 'connect', listener: (value: unknown) => void): unknown;
  unref(): void;
}

interface ClusterInside {
  readonly slots: readonly { readonly master: object }[];
  readonly masters: readonly object[];
  nodeClient(node: object): Promise<Single> | Single;
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
  );
}

/**
 * Waits until the client is connected and logged in, or has failed to. What waits in the client's own queue is sent behind
 * the password, before the answer to it: a wrong password would let it run as another user. What the server refused a
 * moment ago is not waited for again: until the client's next try the answer is the same.
 */
function onceReady(single: Single): () => Promise<unknown> {
  let pending: Promise<unknown> | undefined;
  const events = single as unknown as EventEmitter;
  const connected = async () => {
    const over = new AbortController();
    const ended = once(events, 'end', over).then(() => Promise.reject(new Error('the client was closed')));
    try {
      // Both reject where an `error` comes first.
      await Promise.race([once(events, 'ready', over), ended]);
    } finally {
      pending = undefined;
      over.abort();
    }
  };
  return () => {
    const failure = lastFailure(single);
    if (verdict(failure) === 'refused') return Promise.reject(failure);
    pending ??= connected();
    return pending;
  };
}

export function clusterOfNodeRedis(client: NodeRedisCluster): Connection {
  const cluster = client as unknown as ClusterInside;
  const nodeOf = async (key: Word) => {
    const { masters } = cluster;
    // Any of them if nobody knows: it says which one has the key.
    const node = cluster.slots[slotOf(key)]?.master ?? masters[Math.floor(Math.random() * masters.length)];
    return cluster.nodeClient(found(node));
  };
  return new NodeRedisConnection(
    client,
    async (key, words) => client.sendCommand(key, false, [...words], AS_BYTES),
    nodeOf,
    (key) => cluster.slots[slotOf(key)]?.master,
  );
}

export function sentinelOfNodeRedis(client: NodeRedisSentinel): Connection {
  const sentinel = client as unknown as {
    _execute<T>(isReadonly: boolean, work: (node: Single) => Promise<T>): Promise<T>;
  };
  return new NodeRedisConnection(
    client,
    async (_key, words) => client.sendCommand(false, [...words], AS_BYTES),
    () => sentinel._execute(false, async (node) => node),
    () => client,
  );
}

class NodeRedisConnection extends Beside implements Connection {
  constructor(
    readonly client: Emitter,
    readonly send: Connection['send'],
    readonly nodeOf: (key: Word) => Promise<Single>,
    readonly place: Connection['place'],
  ) {
    super(client, ['end', 'disconnect']);
    watchFailures(client);
  }

  async dedicated(key: Word): Promise<Dedicated> {
    const { own, line } = this.#open(await this.nodeOf(key));
    await own.connect();
    return { ...line, send: async (_key, words) => own.sendCommand(words, AS_BYTES) };
  }

  /** node-redis writes once in each turn of the loop. */
  together(_key: Word, send: () => void): void {
    send();
  }

  async listen(key: Word, channel: string, limit: number, ear: Ear): Promise<Listening> {
    const asked = await new Steps().within(limit, this.nodeOf(key));
    const { own, line } = this.#open(asked);
    const subscribing = async () => {
      await own.connect();
      own.unref();
      await own.subscribe(channel, (message) => ear.hear(message), true);
    };
    const moves: [Emitter, string][] = [
      [asked, 'ready'],
      [this.client, 'topology-change'],
    ];
    return this.subscribed(line, moves, limit, subscribing(), ear);
  }

  /** A connection that is not opened again, so an error ends it, and has none of the program's limits for replies. */
  #open(client: Single): { own: Single; line: Omit<Dedicated, 'send'> } {
    const socket = { ...client.options?.socket, socketTimeout: undefined, reconnectStrategy: false };
    const none = { pingInterval: undefined, commandsQueueMaxLength: undefined, commandOptions: undefined };
    const own = client.duplicate({ socket, disableOfflineQueue: false, ...none });
    const connected = new Promise((resolve) => own.once('connect', resolve));
    // A client that is destroyed before it has a socket connects all the same. One that is not open throws.
    const line = this.keep(() => void connected.then(() => own.destroy()).catch(() => {}));
    own.on('error', line.close);
    own.on('end', line.close);
    return { own, line };
  }

  /** node-redis looks for the primary by itself. */
  elsewhere(): void {}

  trouble(): unknown {
    return (this.client as Partial<Single>).isReady ? undefined : lastFailure(this.client);
  }

  isClosed(): boolean {
    return (this.client as Partial<Single>).isOpen === false;
  }
}
