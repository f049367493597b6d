import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BusyError, RefusedError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a server without the module, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    stage(library, (scene) => ({ server, one, other } = scene), { plain: true });

    it('has the same locks in the same keys, and fences that grow', async () => {
      const first = await one.locks.acquire('a', { ttl: 5_000 });
      assert.equal(await server.control.get('a'), `${first.fence}:${first.owner}`);
      assert.equal(String(first.fence).length, 16);
      assert.equal(await other.locks.tryAcquire('a'), null);
      assert.equal(await first.extend(9_000), 'extended');
      assert((await server.control.pttl('a')) > 5_000);
      const info = await other.locks.info('a');
      assert.deepEqual([info?.holder, info?.fence, info?.waiters], [first.owner, first.fence, null]);
      assert.equal(await first.release(), 'released');
      assert.equal(await other.locks.info('a'), null);
      const second = await other.locks.acquire('a');
      assert(second.fence > first.fence);
      await second.release();
    });

    it('is asked again and again by whoever waits', async () => {
      const first = await one.locks.acquire('a');
      await assert.rejects(other.locks.acquire('a', { wait: 200 }), BusyError);
      const waits = other.locks.acquire('a', { wait: 10_000 });
      await first.release();
      assert.equal(await (await waits).release(), 'released');
    });

    it('may forget its scripts', async () => {
      await (await one.locks.acquire('a')).release();
      await server.call('SCRIPT', 'FLUSH');
      const lease = await one.locks.acquire('a');
      await server.call('SCRIPT', 'FLUSH');
      assert.equal(await lease.extend(), 'extended');
      assert.equal(await lease.release(), 'released');
    });

    it('renews a lease, and says when it is lost', async () => {
      const lease = await one.locks.acquire('a', { ttl: 600 });
      const begun = performance.now();
      await eventually(() => performance.now() - begun > 1_000);
      assert(lease.validFor() > 0);
      await server.call('SET', 'a', 'somebody else');
      assert.equal(await lease.lost, 'taken');
      assert.equal(await lease.release(), 'late');
      assert.equal(await server.control.get('a'), 'somebody else');
      await server.call('DEL', 'a');
    });

    it('has no lock for several holders', async () => {
      await assert.rejects(one.locks.read('a').acquire(), RefusedError);
      await assert.rejects(one.locks.semaphore('a', 3).tryAcquire(), /needs the module/);
    });

    it('is asked with few commands that it does not know', async () => {
      const errors = await server.control.info('errorstats');
      const unknown = Number(/errorstat_ERR:count=(\d+)/.exec(errors)?.[1] ?? 0);
      assert(unknown <= 10, errors);
    });
  });

  describe(`a server that gets the module, with ${library.name}`, () => {
    it('keeps a lock that was held before, and grants larger fences after', async () => {
      const server = await TestServer.start({ plain: true, config: ['--enable-module-command', 'local'] });
      const one = await leasehold(library, server);
      const lease = await one.locks.acquire('a', { ttl: 60_000 });
      await server.call('MODULE', 'LOAD', process.env['LEASEHOLD_MODULE'] ?? '');
      const other = await leasehold(library, server);
      assert.equal(await other.locks.tryAcquire('a'), null);
      assert.equal((await other.locks.info('a'))?.fence, lease.fence);
      const waits = other.locks.acquire('a', { wait: 10_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      assert.equal(await lease.release(), 'released');
      const next = await waits;
      assert(next.fence > lease.fence);
      await next.release();
      await one.close();
      await other.close();
      await server.stop();
    });

    it('is asked in its commands from the next request on, so that nobody is passed by and fences grow', async () => {
      const server = await TestServer.start({ plain: true, config: ['--enable-module-command', 'local'] });
      const one = await leasehold(library, server);
      await (await one.locks.acquire('a')).release();
      await server.call('MODULE', 'LOAD', process.env['LEASEHOLD_MODULE'] ?? '');
      const first = await one.locks.acquire('a');
      const waits = one.locks.acquire('a', { wait: 10_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      await first.release();
      const second = await waits;
      assert(second.fence > first.fence);
      await second.release();
      const other = await leasehold(library, server);
      const third = await other.locks.acquire('a');
      assert(third.fence > second.fence);
      await third.release();
      await one.close();
      await other.close();
      await server.stop();
    });
  });

  describe(`a server without the module that takes over from one that has it, with ${library.name}`, () => {
    it('keeps a lock that was held before, and grants larger fences after', async () => {
      const servers = [await TestServer.start(), await TestServer.start({ plain: true })] as const;
      const [one, other] = await Promise.all(servers.map((server) => leasehold(library, server)));
      assert(one && other);
      const lease = await one.locks.acquire('a', { ttl: 60_000 });
      // As a replica has it.
      await servers[1].call('RESTORE', 'a', 60_000, await servers[0].control.dumpBuffer('a'));
      assert.equal(await other.locks.tryAcquire('a'), null);
      assert.equal((await other.locks.info('a'))?.fence, lease.fence);
      await servers[1].call('DEL', 'a');
      const next = await other.locks.acquire('a');
      assert(next.fence > lease.fence);
      assert.equal(await next.release(), 'released');
      await Promise.all([one.close(), other.close()]);
      await Promise.all(servers.map((server) => server.stop()));
    });
  });
}
