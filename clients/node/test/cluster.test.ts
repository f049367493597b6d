import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Cluster } from 'ioredis';
import { createCluster } from 'redis';
import { slotOf } from '../src/adapters/beside.js';
import { type Client, Leasehold, type Settings } from '../src/index.js';
import { TestCluster } from './support/cluster.js';
import { eventually } from './support/eventually.js';

interface Connected {
  readonly client: Client;
  close(): void;
}

const LIBRARIES: { name: string; connect(cluster: TestCluster, user?: object): Promise<Connected> }[] = [
  {
    name: 'ioredis',
    async connect({ nodes }, user = {}) {
      const hosts = nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
      const client = new Cluster(hosts, { redisOptions: { ...user } });
      client.on('error', () => {});
      return { client, close: () => client.disconnect() };
    },
  },
  {
    name: 'node-redis',
    async connect({ nodes }, user = {}) {
      const rootNodes = nodes.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` }));
      const client = createCluster({ rootNodes, defaults: { ...user } });
      client.on('error', () => {});
      await client.connect();
      return { client, close: () => client.destroy() };
    },
  },
];

for (const library of LIBRARIES) {
  describe(`a cluster, with ${library.name}`, () => {
    let cluster: TestCluster;
    let locks: Leasehold;
    let others: Leasehold;
    const closing: (() => Promise<unknown>)[] = [];
    const connect = async (user = {}, settings: Settings = {}) => {
      const connected = await library.connect(cluster, user);
      const made = new Leasehold(connected.client, settings);
      closing.push(async () => {
        await made.close(2_000);
        connected.close();
      });
      return made;
    };
    before(async () => {
      cluster = await TestCluster.start();
      locks = await connect();
      others = await connect();
    });
    after(async () => {
      for (const close of closing) await close();
      await cluster.stop();
    });

    it('has its locks on all nodes, and none is asked for one that is elsewhere', async () => {
      await (await locks.acquire('warm')).release();
      for (const node of cluster.nodes) await node.call('CONFIG', 'RESETSTAT');
      for (let number = 0; number < 100; number++) {
        const lease = await locks.acquire(`lock:${number}`);
        assert.equal(await lease.release(), 'released');
      }
      for (const node of cluster.nodes) {
        assert.match(await node.control.info('commandstats'), /cmdstat_lock.acquire:calls=/i);
        assert.doesNotMatch(await node.control.info('errorstats'), /MOVED/);
      }
    });

    it('has a slot for each key', async () => {
      for (const key of ['a', 'foo{bar}', '{}x', 'x{', 'schloß', '{a}{b}']) {
        assert.equal(slotOf(Buffer.from(key)), await cluster.nodes[0]?.call('CLUSTER', 'KEYSLOT', key), key);
      }
    });

    it('hands locks of all nodes on to those who wait by tickets', async () => {
      const names = Array.from({ length: 12 }, (_, number) => `hand:${number}`);
      const leases = await Promise.all(names.map((name) => locks.acquire(name)));
      const begun = performance.now();
      const waits = names.map((name) => others.acquire(name, { wait: 30_000 }));
      for (const name of names) {
        const node = await cluster.nodeOf(name);
        await eventually(async () => (await node.waiters(name)) === 1);
      }
      await Promise.all(leases.map((lease) => lease.release()));
      for (const lease of await Promise.all(waits)) assert.equal(await lease.release(), 'released');
      // Nobody had to find it out by asking, which happens every 5 s.
      assert(performance.now() - begun < 3_500);
    });

    it('moves a slot, and those who hold its locks and wait for them go along', async () => {
      const lease = await locks.acquire('moved', { ttl: 3_000 });
      const waits = others.acquire('moved', { wait: 30_000 });
      await eventually(async () => (await (await cluster.nodeOf('moved')).waiters('moved')) === 1);
      await cluster.move('moved');
      assert.equal(await lease.extend(), 'extended');
      assert.equal(await lease.release(), 'released');
      const next = await waits;
      assert(next.fence > lease.fence);
      assert.equal(await next.release(), 'released');
    });

    it('moves a slot of those who wait on connections', async () => {
      for (const node of cluster.nodes) {
        await node.call('ACL', 'SETUSER', 'mute', 'on', '>secret', '+@all', '~*', 'resetchannels');
      }
      const mute = await connect({ username: 'mute', password: 'secret' }, { slice: 300 });
      const lease = await locks.acquire('silent', { ttl: 20_000 });
      const waits = mute.acquire('silent', { wait: 30_000 });
      await eventually(async () => (await (await cluster.nodeOf('silent')).waiters('silent')) === 1);
      await cluster.move('silent');
      await eventually(async () => (await (await cluster.nodeOf('silent')).waiters('silent')) === 1);
      assert.equal(await lease.release(), 'released');
      assert.equal(await (await waits).release(), 'released');
    });
  });
}
