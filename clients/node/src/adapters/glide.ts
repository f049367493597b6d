/**
 * Valkey GLIDE: `GlideClient` and `GlideClusterClient`. It opens connections anew without a word: a message may be lost then,
 * and nothing can be bound to a connection.
 */
import type { Connection, Dedicated, Ear, Listening, Word } from '../connection.js';
import { Steps } from '../steps.js';
import type { Emitter } from '../whenever.js';
import { Beside, slotOf } from './beside.js';
import type { Glide } from './shapes.js';

/** Replies as bytes. */
const BYTES = 0;

/** In milliseconds: longer than any wait. Whoever asks has a limit of its own. */
const NO_LIMIT = 2 ** 31 - 1;

type Inside = Glide & {
  readonly constructor: { createClient(config: object): Promise<Inside> };
  readonly config: object;
  readonly isClosed: boolean;
  readonly socket?: { unref?(): void };
  close(): void;
};

export class GlideConnection extends Beside implements Connection {
  readonly opensAnew = true;
  readonly #client: Inside;

  constructor(client: Glide) {
    super({} as Emitter, []);
    this.#client = client as Inside;
  }

  send(key: Word, words: readonly Word[]): Promise<unknown> {
    return send(this.#client, key, words);
  }

  /** One for all nodes: GLIDE does not say which has a key. */
  place(): object {
    return this.#client;
  }

  async dedicated(): Promise<Dedicated> {
    const { own, line } = await this.#open({ requestTimeout: NO_LIMIT });
    return { ...line, send: (key, words) => send(own, key, words) };
  }

  together(_key: Word, send: () => void): void {
    send();
  }

  async listen(_key: Word, channel: string, limit: number, ear: Ear): Promise<Listening> {
    const callback = ({ message }: { message: Buffer }) => ear.hear(message);
    // In a cluster, too, one subscription is told by all nodes.
    const pubsubSubscriptions = { channelsAndPatterns: { 0: new Set([channel]) }, callback };
    const opening = this.#open({ pubsubSubscriptions, protocol: undefined, defaultDecoder: BYTES });
    const { own, line } = await new Steps().within(limit, opening).catch((error) => {
      opening.then(({ line: { close } }) => close()).catch(() => {});
      throw error;
    });
    own.socket?.unref?.();
    line.whenEnded(() => ear.ended());
    return line;
  }

  async #open(options: object): Promise<{ own: Inside; line: Omit<Dedicated, 'send'> }> {
    const { constructor: Kind, config } = this.#client;
    const own = await Kind.createClient({ ...config, lazyConnect: false, ...options });
    try {
      return { own, line: this.keep(() => own.close()) };
    } catch (error) {
      own.close();
      throw error;
    }
  }

  elsewhere(): void {}

  trouble(): unknown {
    return undefined;
  }

  isClosed(): boolean {
    return this.#client.isClosed;
  }
}

async function send(client: Inside, key: Word, words: readonly Word[]): Promise<unknown> {
  const isCluster = 'pubsubShardChannels' in client;
  const route = isCluster ? { route: { type: 'primarySlotId', id: slotOf(key) } } : {};
  try {
    return plain(await client.customCommand([...words], { decoder: BYTES, ...route }));
  } catch (error) {
    throw asSaid(error);
  }
}

/** Maps are lists of keys and values there. */
function plain(reply: unknown): unknown {
  if (!Array.isArray(reply)) return reply;
  const isMap = reply.length > 0 && reply.every((each) => each !== null && typeof each === 'object' && 'key' in each);
  return isMap ? reply.flatMap(({ key, value }) => [key, plain(value)]) : reply.map(plain);
}

/** What GLIDE calls the errors that it knows. Others it tells by the server's own word. */
const CODES: Record<string, string> = {
  ResponseError: 'ERR',
  PermissionDenied: 'NOPERM',
  ReadOnly: 'READONLY',
  NoScriptError: 'NOSCRIPT',
  BusyLoadingError: 'LOADING',
  TryAgain: 'TRYAGAIN',
  ClusterDown: 'CLUSTERDOWN',
  MasterDown: 'MASTERDOWN',
};

/** What the server said, from `NOTHOLDER: …` or `An error was signalled by the server: - ResponseError: …`. */
function asSaid(error: unknown): unknown {
  const message = error instanceof Error && error.name === 'RequestError' ? error.message : '';
  const [, name = '', rest] = /^(?:An error was signalled by the server:? - )?(\w+): (.*)$/s.exec(message) ?? [];
  const code = CODES[name] ?? (/^[A-Z][A-Z0-9]+$/.test(name) ? name : undefined);
  return code === undefined ? error : new Error(`${code} ${rest}`, { cause: error });
}
