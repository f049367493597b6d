/** Several locks at a time: all of them, or none. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Cluster } from 'ioredis';
import { BusyError, Leasehold, RefusedError } from '../src/index.js';
import { LIBRARIES, type Setup, stage } from './support/clients.js';
import { TestCluster } from './support/cluster.js';
import { eventually } from './support/eventually.js';
import type { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  for (const plain of [false, true]) {
    describe(`several locks, with ${library.name}${plain ? ', without the module' : ''}`, () => {
      let server: TestServer;
      let one: Setup;
      let other: Setup;
      stage(library, (scene) => ({ server, one, other } = scene), { plain }, { prefix: 'p:' });
      const held = async () => (await server.call('EXISTS', 'p:a', 'p:b', 'p:c')) as number;

      it('are granted with one fence, renewed together, and released together', async () => {
        const lease = await one.locks.several(['a', 'b', Buffer.from('c')]).acquire({ ttl: 900 });
        assert.equal(lease.name, 'a, b, "c"');
        for (const key of ['p:a', 'p:b', 'p:c'])
          assert.equal(await server.control.get(key), `${lease.fence}:${lease.owner}`);
        for (const name of ['a', 'b', 'c']) assert.equal(await other.locks.tryAcquire(name), null);
        const end = performance.now() + 1_500;
        await eventually(() => performance.now() > end);
        assert.equal(await held(), 3);
        assert(lease.validFor() > 0);
        assert.equal(await lease.release(), 'released');
        assert.equal(await held(), 0);
      });

      it('are not granted while any of them is held', async () => {
        const lease = await other.locks.acquire('b');
        assert.equal(await one.locks.several(['a', 'b', 'c']).tryAcquire(), null);
        await assert.rejects(one.locks.several(['a', 'b']).acquire({ wait: 200 }), BusyError);
        assert.equal(await held(), 1);
        const waits = one.locks.several(['c', 'b', 'a']).with({ wait: 20_000 }, ({ fence }) => fence);
        if (!plain) await eventually(async () => (await server.waiters('p:a')) === 1);
        assert.equal(await lease.release(), 'released');
        assert((await waits) > lease.fence);
        assert.equal(await held(), 0);
        await (await one.locks.acquire('c')).release();
      });

      it('are lost with any of them, and the others are released', async () => {
        const lease = await one.locks.several(['a', 'b']).acquire({ ttl: 60_000 });
        await server.call('DEL', 'p:b');
        assert.equal(await lease.extend(), 'lost');
        assert.equal(await lease.release(), 'late');
        assert.equal(await held(), 0);
      });

      it('are adopted together', async () => {
        const detached = (await one.locks.several(['a', 'b']).acquire()).detach();
        assert.match(String(detached), /^leasehold:p%3Aa,p%3Ab:/);
        const adopted = await other.locks.adopt(String(detached));
        assert.equal(await adopted.release(), 'released');
        assert.equal(await held(), 0);
      });
    });
  }
}

describe('several locks in a cluster', () => {
  it('are in one slot, or refused', async () => {
    const cluster = await TestCluster.start();
    const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
    const locks = new Leasehold(client);
    const lease = await locks.several(['{a}1', '{a}2']).acquire();
    const waits = locks.several(['{a}2', '{a}3']).acquire({ wait: 20_000 });
    assert.equal(await lease.release(), 'released');
    assert.equal(await (await waits).release(), 'released');
    const crossing = locks.several(['a', 'b']).tryAcquire();
    await assert.rejects(crossing, (error) => error instanceof RefusedError && error.code === 'CROSSSLOT');
    await locks.close();
    client.disconnect();
    await cluster.stop();
  });
});
