/** What the server lists of locks. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NeedsModuleError, PermissionError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a listing, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    stage(library, (scene) => ({ server, one } = scene));

    it('has those who hold a lock, and those who wait for it', async () => {
      const { locks } = one;
      assert.deepEqual(await locks.holders('a'), []);
      const readers = [await locks.read('a').acquire(), await locks.read('a').acquire({ owner: 'second' })];
      const waits = locks.acquire('a', { wait: 20_000, owner: 'writer' });
      await eventually(async () => (await server.waiters('a')) === 1);
      const holders = await locks.holders('a');
      assert.deepEqual(
        holders.map(({ owner, fence, share }) => [owner, fence, share]),
        readers.map(({ owner, fence }) => [owner, fence, 0]),
      );
      assert(holders.every(({ ttl }) => ttl !== null && ttl > 20_000));
      assert.match(JSON.stringify(holders), /"fence":"[0-9]{16}"/);
      const [waiter, ...others] = await locks.waiters('a');
      assert.deepEqual(others, []);
      assert(waiter && waiter.waited >= 0 && (waiter.patience ?? 0) > 0);
      assert.deepEqual([waiter.owner, waiter.share, waiter.kind, waiter.locks], ['writer', 1, 'ticket', 1]);
      for (const reader of readers) await reader.release();
      await (await waits).release();
    });

    it('has locks that are waited for, and what went wrong', async () => {
      const { locks } = one;
      const [first] = await locks.top();
      assert.deepEqual([first?.name, first?.waits, first?.db], ['a', 1, 0]);
      assert(first && first.waitTotal >= first.waitLongest);
      const lease = await locks.acquire('b', { ttl: 50, renew: false });
      await lease.lost;
      await eventually(async () => (await server.call('EXISTS', 'b')) === 0);
      await lease.release();
      const [entry] = await eventually(async () => {
        const entries = await locks.log(1);
        return entries.length > 0 ? entries : undefined;
      });
      assert.deepEqual([entry?.event, entry?.name, entry?.owner], ['late-release', 'b', lease.owner]);
      assert(entry && Math.abs(entry.time.getTime() - Date.now()) < 60_000);
      one.troubles.length = 0;
    });

    it('is refused as anything else', async () => {
      await server.call('ACL', 'SETUSER', 'small', 'on', '>secret', '+@all', '-lock.top', '~*', '&*');
      const { client, close } = await library.connect(server, { username: 'small', password: 'secret' });
      const { Leasehold } = await import('../src/index.js');
      await assert.rejects(new Leasehold(client).top(), PermissionError);
      close();
    });

    it('needs the module', async () => {
      const plain = await TestServer.start({ plain: true });
      const { locks, close } = await leasehold(library, plain);
      const all = [locks.holders('a'), locks.waiters('a'), locks.top(), locks.log()];
      for (const lists of all) await assert.rejects(lists, NeedsModuleError);
      await close();
      await plain.stop();
    });
  });
}
