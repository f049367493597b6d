/** ioredis: `Redis`, also with Sentinel, and `Cluster`. */
import type { Connection, Dedicated, Ear, Listening, Word } from '../connection.js';
import { Beside, found, lastFailure, slotOf, watchFailures } from './beside.js';
import type { Ioredis, IoredisCluster } from './shapes.js';

interface Inside {
  readonly stream?: { unref?(): void; cork?(): void; uncork?(): void };
  subscribe(channel: string): Promise<unknown>;
  callBuffer(...words: readonly Word[]): Promise<unknown>;
  sendCommand(...words: unknown[]): Promise<unknown>;
}

/** How often a client may be told to look for the primary. */
const LOOK_EVERY = 1_000;

/** For connections beside the program's own: they are not opened again, and have none of its limits for replies. */
const BESIDE = {
  lazyConnect: true,
  enableOfflineQueue: true,
  retryStrategy: null,
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  enableAutoPipelining: false,
  commandTimeout: undefined,
  blockingTimeout: undefined,
  socketTimeout: undefined,
  maxRetriesPerRequest: null,
  monitor: false,
  keyPrefix: '',
  readOnly: false,
};

export class IoredisConnection extends Beside implements Connection {
  readonly send: Connection['send'];
  #looked = Number.NEGATIVE_INFINITY;

  constructor(readonly client: Ioredis | IoredisCluster) {
    super(client, ['end']);
    this.send = sender(client);
    // ioredis prints an error that nobody listens to. So that is done here if nobody else listens.
    if (!watchFailures(client, ['error', 'node error'])) return;
    client.on('error', (error) => {
      const isAlone = client.listenerCount('error') === 2;
      if (isAlone && error instanceof Error) console.error('[ioredis] Unhandled error event:', error.stack);
    });
  }

  async dedicated(key: Word): Promise<Dedicated> {
    const { own, line } = this.#open(found(this.place(key)));
    let failure: unknown;
    own.on('error', (error) => {
      failure = error;
    });
    await own.connect().catch((error) => {
      line.close();
      throw failure ?? error;
    });
    return { ...line, send: sender(own) };
  }

  together(key: Word, send: () => void): void {
    const { stream } = (this.place(key) ?? {}) as Inside;
    stream?.cork?.();
    send();
    stream?.uncork?.();
  }

  async listen(key: Word, channel: string, limit: number, ear: Ear): Promise<Listening> {
    const asked = found(this.place(key));
    const { own, line } = this.#open(asked);
    own.on('error', () => {});
    own.on('messageBuffer', (_, message) => ear.hear(message as Buffer));
    // It does not keep the program alive.
    own.once('connect', () => own.stream?.unref?.());
    return this.subscribed(line, [[asked, 'ready']], limit, own.subscribe(channel), ear);
  }

  #open(client: Ioredis): { own: Ioredis & Inside; line: Omit<Dedicated, 'send'> } {
    const own = client.duplicate(BESIDE) as Ioredis & Inside;
    const line = this.keep(() => own.disconnect());
    own.once('end', line.close);
    return { own, line };
  }

  /** Where a Sentinel is asked for the primary, that happens when it connects again. */
  elsewhere(): void {
    const { client } = this;
    const isDue = performance.now() - this.#looked >= LOOK_EVERY;
    if (isCluster(client) || !isDue || !('sentinels' in client.options && client.options.sentinels)) return;
    this.#looked = performance.now();
    client.disconnect(true);
  }

  trouble(): unknown {
    return !isCluster(this.client) && this.client.status === 'ready' ? undefined : lastFailure(this.client);
  }

  isClosed(): boolean {
    return this.client.status === 'end';
  }

  /** The client of the node that has the key; of any if nobody knows. */
  place(key: Word): Ioredis | undefined {
    const { client } = this;
    if (!isCluster(client)) return client;
    const nodes = client.nodes('master') as Ioredis[];
    const address = client.slots[slotOf(key)]?.[0];
    const isIt = ({ options }: Ioredis) => {
      const { host, port } = options as { host?: string; port?: number };
      return `${host}:${port}` === address;
    };
    return address === undefined ? nodes[Math.floor(Math.random() * nodes.length)] : nodes.find(isIt);
  }
}

function isCluster(client: Ioredis | IoredisCluster): client is IoredisCluster {
  return 'nodes' in client && 'slots' in client;
}

/**
 * `callBuffer` of a client, without its `keyPrefix` and its pipelines, and with the key told to a `Cluster`. ioredis does
 * not know which of the words of a command that it has never heard of is the key, and asks the command.
 */
function sender(client: Ioredis | IoredisCluster): (key: Word, words: readonly Word[]) => Promise<unknown> {
  let routed: Word;
  const isRouted = isCluster(client);
  const inside = client as unknown as Inside;
  const sendCommand = (command: { getKeys(): Word[] }, ...rest: unknown[]) => {
    const key = routed;
    if (isRouted) command.getKeys = () => [key];
    return inside.sendCommand(command, ...rest);
  };
  // What `callBuffer` looks at. The client as a prototype would make each of its own commands slow.
  const face = { options: { ...client.options, keyPrefix: '', enableAutoPipelining: false }, sendCommand };
  return (key, words) => {
    routed = key;
    try {
      return Reflect.apply(inside.callBuffer, face, words);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}
