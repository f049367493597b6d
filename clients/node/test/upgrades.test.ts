/** Readers that become the writer, and the other way round. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { LostError, UnreachableError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { Gate } from './support/gate.js';
import type { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a lock that is shared, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    stage(library, (scene) => ({ server, one, other } = scene));

    it('is had alone by a new fence, and shared again by the same, while it is renewed', async () => {
      const { read, write } = one.locks.readWrite('a');
      const lease = await read.acquire({ ttl: 1_500 });
      const { fence } = lease;
      const alone = await lease.upgrade();
      assert(alone !== null && alone > fence && lease.fence === alone);
      assert.equal(await lease.upgrade(), alone);
      assert.equal(await other.locks.read('a').tryAcquire(), null);
      const end = performance.now() + 2_000;
      await eventually(() => performance.now() > end);
      assert.equal(await server.call('LOCK.CHECK', 'a', lease.owner), Number(alone));
      assert.equal(await lease.downgrade(), alone);
      const beside = await other.locks.read('a').tryAcquire();
      assert(beside);
      assert.equal(await write.tryAcquire(), null);
      assert.equal(await beside.release(), 'released');
      assert.equal(await lease.release(), 'released');
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is not had alone while others hold it, and stays as it was', async () => {
      const lease = await one.locks.semaphore('a', 3).acquire();
      const beside = await other.locks.semaphore('a', 3).acquire();
      const { fence } = lease;
      assert.equal(await lease.upgrade(), null);
      assert.equal(lease.fence, fence);
      assert.equal(await lease.extend(), 'extended');
      assert.equal(await beside.release(), 'released');
      assert.notEqual(await lease.upgrade(), null);
      assert.equal(await lease.downgrade(), lease.fence);
      assert.equal((await one.locks.info('a'))?.share, 3);
      assert.equal(await lease.release(), 'released');
    });

    it('lets readers in that wait when the writer becomes one', async () => {
      const lease = await one.locks.write('a').acquire();
      const waits = other.locks.read('a').acquire({ wait: 20_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      assert.equal(await lease.downgrade(), lease.fence);
      assert.equal(await (await waits).release(), 'released');
      assert.equal(await lease.release(), 'released');
    });

    it('is not lost when nobody knows by which fence it is had', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer, { within: 600, response: 200 });
      const lease = await through.locks.read('b').acquire({ ttl: 6_000 });
      gate.ignore();
      gate.deafen();
      await assert.rejects(lease.upgrade(), UnreachableError);
      assert.notEqual(await server.call('LOCK.CHECK', 'b', lease.owner), Number(lease.fence));
      gate.cut();
      gate.mend();
      assert.equal(await eventually(() => lease.extend().catch(() => undefined)), 'extended');
      const alone = await lease.upgrade();
      assert.equal(await server.call('LOCK.CHECK', 'b', lease.owner), Number(alone));
      assert.equal(await lease.release(), 'released');
      await through.close();
      gate.stop();
    });

    it('is told of its loss', async () => {
      const lease = await one.locks.read('a').acquire({ ttl: 60_000 });
      const next = await (async () => {
        await server.call('DEL', 'a');
        return other.locks.acquire('a');
      })();
      assert.equal(await lease.upgrade(), null);
      await next.release();
      assert.equal(await lease.extend(), 'lost');
      await assert.rejects(lease.upgrade(), LostError);
      const writer = await one.locks.acquire('c', { ttl: 60_000 });
      await server.call('DEL', 'c');
      await assert.rejects(writer.downgrade(), LostError);
      await eventually(async () => (await server.call('EXISTS', 'c')) === 0);
    });
  });
}
