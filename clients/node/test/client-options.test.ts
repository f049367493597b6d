import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis, type RedisOptions } from 'ioredis';
import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';
import { type Client, Leasehold } from '../src/index.js';
import { eventually } from './support/eventually.js';
import { Gate } from './support/gate.js';
import { TestServer } from './support/server.js';

describe('the options of the client', () => {
  let server: TestServer;
  before(async () => {
    server = await TestServer.start();
  });
  after(() => server.stop());

  /** Longer than the client waits for a reply. */
  async function waits(client: Client): Promise<void> {
    const other = new Redis({ path: server.socket });
    const [locks, others] = [new Leasehold(client), new Leasehold(other)];
    const lease = await others.acquire('a', { ttl: 20_000 });
    const waiting = locks.acquire('a', { wait: 20_000 });
    await eventually(async () => (await server.waiters('a')) === 1);
    const begun = performance.now();
    await eventually(() => performance.now() - begun > 600);
    await lease.release();
    const mine = await waiting;
    assert.deepEqual(await server.call('KEYS', '*'), ['a']);
    assert.equal((await locks.info('a'))?.fence, mine.fence);
    assert.equal(await mine.release(), 'released');
    assert.deepEqual(await Promise.all([locks.close(), others.close()]), [[], []]);
    other.disconnect();
  }

  const options: [string, RedisOptions][] = [
    ['commandTimeout', { commandTimeout: 300 }],
    ['keyPrefix', { keyPrefix: 'app:' }],
    ['enableAutoPipelining', { enableAutoPipelining: true }],
    ['protocol', { protocol: 3 }],
    ['maxRetriesPerRequest', { maxRetriesPerRequest: null }],
  ];
  for (const [name, given] of options) {
    it(`${name} of ioredis does no harm`, async () => {
      const client = new Redis({ path: server.socket, ...given } as RedisOptions & { replyMapping: 'legacy' });
      await waits(client);
      client.disconnect();
    });
  }

  it('iovalkey, a fork of ioredis, is taken for what it is', async () => {
    const client = new Iovalkey({ path: server.socket });
    await waits(client);
    client.disconnect();
  });

  it('commandTimeout of ioredis costs no lease when its connection is dead without having said so', async () => {
    const gate = await Gate.start(server);
    const client = new Redis({ path: gate.socket, commandTimeout: 300 });
    client.on('error', () => {});
    const locks = new Leasehold(client);
    const lease = await locks.acquire('dead', { ttl: 2_400 });
    const begun = performance.now();
    gate.deafen();
    await eventually(() => performance.now() - begun > 3_600);
    assert(lease.validFor() > 0);
    assert.equal(await lease.release(), 'released');
    assert.deepEqual(await locks.close(), []);
    client.disconnect();
    gate.stop();
  });

  for (const RESP of [2, 3] as const) {
    it(`RESP ${RESP} and a timeout of node-redis do no harm`, async () => {
      const socket = { path: server.socket, tls: false, socketTimeout: 5_000 } as const;
      const client = createClient({ socket, RESP, commandOptions: { timeout: 300 } });
      client.on('error', () => {});
      await client.connect();
      await waits(client as Client);
      client.destroy();
    });
  }
});
