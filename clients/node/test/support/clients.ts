/** The client libraries, each connected to one server. Tests run once with each. */
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { type Client, Leasehold, type Settings, type Trouble } from '../../src/index.js';
import type { TestServer } from './server.js';

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
