/** The client libraries, each connected to one server. Tests run once with each. */
import { after, before } from 'node:test';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { type Client, Leasehold, type Settings, type Trouble } from '../../src/index.js';
import { TestServer } from './server.js';

export interface Library {
  readonly name: string;
  connect(server: TestServer, user?: { username?: string; password?: string }): Promise<Connected>;
}

export interface Connected {
  readonly client: Client;
  close(): void;
}

export const LIBRARIES: Library[] = [
  {
    name: 'ioredis',
    async connect(server, user = {}) {
      const client = new Redis({ path: server.socket, retryStrategy: () => 50, ...user });
      client.on('error', () => {});
      return { client, close: () => client.disconnect() };
    },
  },
  {
    name: 'node-redis',
    async connect(server, user = {}) {
      const client = createClient({ socket: { path: server.socket, tls: false, reconnectStrategy: 50 }, ...user });
      client.on('error', () => {});
      client.connect().catch(() => {});
      return { client, close: () => client.destroy() };
    },
  },
];

export interface Setup {
  readonly locks: Leasehold;
  readonly troubles: Trouble[];
  close(): Promise<void>;
}

export async function leasehold(library: Library, server: TestServer, settings: Settings = {}): Promise<Setup> {
  const connected = await library.connect(server);
  const troubles: Trouble[] = [];
  const locks = new Leasehold(connected.client, { onTrouble: (trouble) => troubles.push(trouble), ...settings });
  const close = async () => {
    await locks.close(2_000);
    connected.close();
  };
  return { locks, troubles, close };
}

export interface Scene {
  readonly server: TestServer;
  readonly one: Setup;
  readonly other: Setup;
}

/** Two programs at one server, as long as the tests of a `describe` run. `tell` is told of them before the first. */
export function stage(
  library: Library,
  tell: (scene: Scene) => void,
  options: Parameters<typeof TestServer.start>[0] = {},
  settings: Settings = {},
): void {
  let scene: Scene;
  before(async () => {
    const server = await TestServer.start(options);
    const [one, other] = [await leasehold(library, server, settings), await leasehold(library, server, settings)];
    scene = { server, one, other };
    tell(scene);
  });
  after(async () => {
    await scene.one.close();
    await scene.other.close();
    await scene.server.stop();
  });
}
