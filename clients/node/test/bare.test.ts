/** A server without the module, and a user who may not run scripts. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { BusyError, Leasehold, NeedsModuleError, PermissionError, type Trouble } from '../src/index.js';
import { type Connected, LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

const SERVERS = process.env['LEASEHOLD_SERVERS'] ?? new URL('../../../../servers/', import.meta.url).pathname;

for (const library of LIBRARIES) {
  for (const which of ['redis-8.6/redis-server', 'valkey-9.1/valkey-server']) {
    const program = `${SERVERS}${which}`;
    describe(`a user without scripts, on ${which}, with ${library.name}`, { skip: !existsSync(program) }, () => {
      let server: TestServer;
      let scripted: Setup;
      let connected: Connected;
      let locks: Leasehold;
      const troubles: Trouble[] = [];
      before(async () => {
        server = await TestServer.start({ plain: true, program });
        await server.call('ACL', 'SETUSER', 'small', 'on', '>secret', '+@all', '-@scripting', '~*', '&*');
        scripted = await leasehold(library, server);
        connected = await library.connect(server, { username: 'small', password: 'secret' });
        locks = new Leasehold(connected.client, { onTrouble: (trouble) => troubles.push(trouble) });
      });
      after(async () => {
        await locks.close();
        connected.close();
        await scripted.close();
        await server.stop();
      });

      it('has the same locks in the same keys, and fences that grow with those of scripts', async () => {
        let last = 0n;
        for (const each of [locks, scripted.locks, locks, locks, scripted.locks, locks]) {
          const lease = await each.acquire('a', { ttl: 5_000 });
          assert(lease.fence > last, `${lease.fence} after ${last}`);
          last = lease.fence;
          assert.equal(await server.control.get('a'), `${lease.fence}:${lease.owner}`);
          assert.equal(await locks.tryAcquire('a'), null);
          assert.equal(await scripted.locks.tryAcquire('a'), null);
          assert.equal(await lease.extend(9_000), 'extended');
          assert((await server.control.pttl('a')) > 5_000);
          assert.equal(await lease.release(), 'released');
          await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
        }
        assert.equal(String(last).length, 16);
      });

      it('is renewed, waited for, and lost', async () => {
        const lease = await locks.acquire('a', { ttl: 600 });
        const end = performance.now() + 1_000;
        await eventually(() => performance.now() > end);
        assert(lease.validFor() > 0);
        await assert.rejects(locks.acquire('a', { wait: 100 }), BusyError);
        const again = await locks.tryAcquire('a', { owner: lease.owner });
        assert.equal(again?.fence, lease.fence);
        again?.detach();
        const waits = locks.acquire('a', { wait: 20_000 });
        await server.call('SET', 'a', 'somebody else');
        assert.equal(await lease.lost, 'taken');
        assert.equal(await lease.release(), 'late');
        assert.equal(await server.control.get('a'), 'somebody else');
        await server.call('DEL', 'a');
        assert.equal(await (await waits).release(), 'released');
        troubles.length = 0;
      });

      it('has fences beyond the last one when that was forgotten, or a step was not taken', async () => {
        const first = await locks.acquire('b');
        await first.release();
        await server.call('DEL', '{b}:fence');
        const second = await locks.acquire('b');
        assert(second.fence > first.fence);
        await second.release();
        await eventually(async () => (await server.call('EXISTS', 'b')) === 0);
        // Half of a grant, of a request that was not answered.
        await server.call('SET', 'b', `${'0'.repeat(16)}:me`, 'PX', 60_000);
        const third = await locks.tryAcquire('b', { owner: 'me' });
        assert(third && third.fence > second.fence);
        assert.equal(await third.release(), 'released');
      });

      it('is given back by who gives up', async () => {
        const stop = new AbortController();
        const asks = locks.acquire('c', { signal: stop.signal });
        stop.abort();
        await asks.then(
          (lease) => lease.release(),
          () => {},
        );
        await eventually(async () => (await server.call('EXISTS', 'c')) === 0);
      });

      it('may have neither word for its removal', async () => {
        await server
          .call('ACL', 'SETUSER', 'small', '-delex')
          .catch(() => server.call('ACL', 'SETUSER', 'small', '-delifeq'));
        const lease = await locks.acquire('d', { ttl: 60_000 });
        assert.equal(await lease.release(), 'released');
        await eventually(async () => (await server.call('EXISTS', 'd')) === 0);
      });

      it('has no several locks, and none that are shared', async () => {
        await assert.rejects(locks.several(['a', 'b']).acquire(), NeedsModuleError);
        await assert.rejects(locks.read('a').acquire(), NeedsModuleError);
      });
    });
  }

  describe(`a user without scripts on an old server, with ${library.name}`, () => {
    it('is told which right is missing, and leaves nothing behind', async () => {
      const server = await TestServer.start({ plain: true, program: 'redis-server' });
      await server.call('ACL', 'SETUSER', 'small', 'on', '>secret', '+@all', '-@scripting', '~*', '&*');
      const { client, close } = await library.connect(server, { username: 'small', password: 'secret' });
      const locks = new Leasehold(client);
      await assert.rejects(
        locks.acquire('a'),
        (error) => error instanceof PermissionError && /eval/.test(error.message),
      );
      assert.equal(await server.call('DBSIZE'), 0);
      await locks.close();
      close();
      await server.stop();
    });
  });
}
