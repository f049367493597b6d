import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { createSentinel } from 'redis';
import { type Client, Leasehold } from '../src/index.js';
import { eventually } from './support/eventually.js';
import { Watched } from './support/sentinel.js';

const LIBRARIES: { name: string; connect(watched: Watched): Promise<{ client: Client; close(): unknown }> }[] = [
  {
    name: 'ioredis',
    async connect({ port }) {
      const client = new Redis({
        sentinels: [{ host: '127.0.0.1', port }],
        name: 'primary',
        sentinelRetryStrategy: () => 50,
      });
      client.on('error', () => {});
      return { client, close: () => client.disconnect() };
    },
  },
  {
    name: 'node-redis',
    async connect({ port }) {
      const sentinelRootNodes = [{ host: '127.0.0.1', port }];
      const client = createSentinel({ name: 'primary', sentinelRootNodes, scanInterval: 500 });
      client.on('error', () => {});
      await client.connect();
      return { client, close: () => client.destroy() };
    },
  },
];

for (const library of LIBRARIES) {
  describe(`a failover by Sentinel, with ${library.name}`, () => {
    it('keeps what is held, and those who wait', async (t) => {
      const watched = await Watched.start();
      t.after(() => watched.stop());
      const [one, other] = await Promise.all([library.connect(watched), library.connect(watched)]);
      const [mine, theirs] = [new Leasehold(one.client), new Leasehold(other.client)];
      const lease = await mine.acquire('a', { ttl: 20_000 });
      const waits = theirs.acquire('a', { wait: 60_000 });
      await eventually(async () => (await watched.primary.waiters('a')) === 1);
      await eventually(async () => (await watched.replica.call('EXISTS', 'a')) === 1);
      // It refuses for as long as it has not heard of the replica lately.
      await eventually(() => watched.sentinel.call('SENTINEL', 'FAILOVER', 'primary'), 30_000);
      await watched.taken();
      await eventually(async () => (await watched.replica.waiters('a')) === 1, 30_000);
      assert.equal(await lease.release(), 'released');
      const next = await waits;
      assert(next.fence > lease.fence);
      assert.equal(await next.release(), 'released');
      assert.equal(await watched.replica.call('EXISTS', 'a'), 0);
      assert.deepEqual(await mine.close(), []);
      assert.deepEqual(await theirs.close(), []);
      await one.close();
      await other.close();
    });

    it('that lost a grant tells whoever holds it', async (t) => {
      const watched = await Watched.start();
      t.after(() => watched.stop());
      const one = await library.connect(watched);
      const locks = new Leasehold(one.client, { onTrouble: () => {} });
      await (await locks.acquire('warm')).release();
      watched.replica.pause();
      // What is replicated from now on is in no buffer that the replica reads when it goes on.
      await watched.primary.call('CLIENT', 'KILL', 'TYPE', 'replica');
      const lease = await locks.acquire('a', { ttl: 30_000 });
      await watched.primary.died();
      watched.replica.goOn();
      await watched.taken();
      assert.equal(await watched.replica.call('EXISTS', 'a'), 0);
      // Long before its lease is over.
      assert.equal(await lease.lost, 'taken');
      assert(lease.signal.aborted);
      await locks.close();
      await one.close();
    });
  });
}
