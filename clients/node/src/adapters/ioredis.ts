/** ioredis: `Redis`, also with Sentinel, and `Cluster`. */
import type { Connection, Dedicated, Ear, Listening, Word } from '../connection.js';
import { within } from '../steps.js';
import { Ending, whenever } from './ending.js';
import { lastFailure, watchFailuresOfIoredis } from './failing.js';
import type { Ioredis, IoredisCluster } from './shapes.js';
import { slotOf } from './slots.js';

interface Command {
  getKeys(): (string | Buffer)[];
}

interface Inside {
  readonly stream?: { unref?(): void; cork?(): void; uncork?(): void };
  subscribe(channel: string): Promise<unknown>;
}

interface Sender {
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

export class IoredisConnection implements Connection {
  readonly #client: Ioredis | IoredisCluster;
  readonly #send: (key: Word, words: readonly Word[]) => Promise<unknown>;
  readonly #beside = new Set<() => void>();
  readonly #forget: () => void;
  #looked = Number.NEGATIVE_INFINITY;

  constructor(client: Ioredis | IoredisCluster) {
    this.#client = client;
    this.#send = sender(client);
    watchFailuresOfIoredis(client);
    this.#forget = whenever(client, ['end'], () => this.#closeBeside());
  }

  send(key: Word, words: readonly Word[]): Promise<unknown> {
    return this.#send(key, words);
  }

  place(key: Word): object | undefined {
    return this.#nodeOf(key);
  }

  async dedicated(key: Word): Promise<Dedicated> {
    const own = found(this.#nodeOf(key)).duplicate(BESIDE);
    let failure: unknown;
    own.on('error', (error) => {
      failure = error;
    });
    const ending = new Ending();
    const send = sender(own);
    const close = () => {
      this.#beside.delete(close);
      own.disconnect();
      ending.over();
    };
    own.once('end', close);
    this.#beside.add(close);
    await own.connect().catch((error) => {
      close();
      throw failure ?? error;
    });
    return { send: (words) => send(key, words), whenEnded: ending.whenEnded, close };
  }

  together(key: Word, send: () => void): void {
    const { stream } = (this.#nodeOf(key) ?? {}) as Inside;
    stream?.cork?.();
    send();
    stream?.uncork?.();
  }

  async listen(key: Word, channel: string, limit: number, ear: Ear): Promise<Listening> {
    const asked = found(this.#nodeOf(key));
    const own = asked.duplicate(BESIDE) as Ioredis & Inside;
    own.on('error', () => {});
    own.on('messageBuffer', (_, message) => ear.hear(message as Buffer));
    // It does not keep the program alive.
    own.once('connect', () => own.stream?.unref?.());
    // Connected anew, it may be to another server, and what this one tells is of no account then.
    const forget = whenever(asked, ['ready'], () => over());
    const close = () => {
      forget();
      this.#beside.delete(close);
      own.disconnect();
    };
    this.#beside.add(close);
    let isOver = false;
    const over = () => {
      if (isOver) return;
      isOver = true;
      close();
      ear.ended();
    };
    try {
      await within(limit, own.subscribe(channel));
    } catch (error) {
      isOver = true;
      close();
      throw error;
    }
    own.once('end', over);
    if (own.status === 'end') over();
    return { close };
  }

  /** Where a Sentinel is asked for the primary, that happens when it connects again. */
  elsewhere(): void {
    const client = this.#client;
    const isDue = performance.now() - this.#looked >= LOOK_EVERY;
    if (isCluster(client) || !isDue || !('sentinels' in client.options && client.options.sentinels)) return;
    this.#looked = performance.now();
    client.disconnect(true);
  }

  close(): void {
    this.#forget();
    this.#closeBeside();
  }

  #closeBeside(): void {
    for (const close of this.#beside) close();
  }

  trouble(): unknown {
    return !isCluster(this.#client) && this.#client.status === 'ready' ? undefined : lastFailure(this.#client);
  }

  isClosed(): boolean {
    return this.#client.status === 'end';
  }

  /** The client of the node that has the key; of any if nobody knows. */
  #nodeOf(key: Word): Ioredis | undefined {
    if (!isCluster(this.#client)) return this.#client;
    const nodes = this.#client.nodes('master') as Ioredis[];
    const address = this.#client.slots[slotOf(key)]?.[0];
    const isIt = ({ options }: Ioredis) => {
      const { host, port } = options as { host?: string; port?: number };
      return `${host}:${port}` === address;
    };
    return address === undefined ? nodes[Math.floor(Math.random() * nodes.length)] : nodes.find(isIt);
  }
}

function found(node: Ioredis | undefined): Ioredis {
  if (node === undefined) throw new Error('the cluster has no node for it');
  return node;
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
  const inside = client as unknown as Sender;
  const sendCommand = (command: Command, ...rest: unknown[]) => {
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
