import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Client } from '../src/index.js';
import Redlock, { ExecutionError, Lock, ResourceLockedError } from '../src/redlock.js';
import { LIBRARIES } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { collect } from './support/garbage.js';
import { TestServer } from './support/server.js';

const NO_TIME = { retryCount: 0 };

for (const library of LIBRARIES) {
  describe(`the interface of redlock, with ${library.name}`, () => {
    const servers: TestServer[] = [];
    const clients: Client[] = [];
    const close: (() => void)[] = [];
    let server: TestServer;
    let redlock: Redlock;
    let quorum: Redlock;
    before(async () => {
      for (let number = 0; number < 3; number++) {
        const each = await TestServer.start();
        const connected = await library.connect(each);
        servers.push(each);
        clients.push(connected.client);
        close.push(connected.close);
      }
      server = servers[0] as TestServer;
      redlock = new Redlock([clients[0] as Client]);
      quorum = new Redlock(clients);
    });
    after(async () => {
      for (const each of close) each();
      for (const each of servers) await each.stop();
    });

    it('has locks that are extended and released', async () => {
      const lock = await redlock.acquire(['a'], 5_000);
      assert(lock instanceof Lock && lock.expiration <= Date.now() + 5_000 && lock.expiration > Date.now() + 4_000);
      assert.equal(String(await server.call('GET', 'a')), lock.value);
      assert(lock.value.startsWith(`${lock.fence}:`) && lock.fence > 0n);
      const longer = await lock.extend(9_000);
      assert(longer.expiration > Date.now() + 8_000);
      assert.deepEqual([lock.expiration, longer.value], [0, lock.value]);
      await assert.rejects(lock.extend(9_000), /^Error: Cannot extend an already-expired lock\.|ExecutionError/);
      const { attempts } = await longer.release();
      const [stats] = await Promise.all(attempts);
      assert.deepEqual([stats?.membershipSize, stats?.quorumSize, stats?.votesFor.size], [1, 1, 1]);
      assert.equal(await server.call('EXISTS', 'a'), 0);
      await assert.rejects(longer.extend(5_000), ExecutionError);
    });

    it('has locks that are made by hand of the value of another', async () => {
      for (const [its, resources] of [
        [redlock, ['h', 'i']],
        [quorum, ['h']],
      ] as const) {
        const { value, expiration, fence } = await its.acquire([...resources], 5_000);
        const lock = new Lock(its, [...resources], value, [], expiration);
        assert.deepEqual([lock.fence, lock.lease], [fence, undefined]);
        const longer = await lock.extend(60_000);
        assert(longer.expiration > Date.now() + 50_000 && lock.expiration === 0);
        assert(Number(await server.call('PTTL', 'h')) > 50_000);
        assert(String(await server.call('GET', 'h')).startsWith(`${fence}:`));
        await longer.release();
        assert.equal(await server.call('EXISTS', ...resources), 0);
        await assert.rejects(longer.release(), ExecutionError);
        const gone = new Lock(its, [...resources], value, [], Date.now() + 5_000);
        await assert.rejects(gone.extend(5_000), ExecutionError);
      }
    });

    it('releases a lock that is made by hand by its fence, and one of redlock itself by its value', async () => {
      const { value } = await redlock.acquire(['h'], 5_000);
      await server.call('DEL', 'h');
      const later = await server.call('LOCK.ACQUIRE', 'h', value.slice(17), 60_000);
      await assert.rejects(new Lock(redlock, ['h'], value, [], Date.now() + 5_000).release(), ExecutionError);
      await new Lock(redlock, ['h'], `${later}:${value.slice(17)}`, [], 0).release();
      await server.call('SET', 'h', 'of-redlock', 'PX', 60_000);
      const theirs = new Lock(redlock, ['h'], 'of-redlock', [], Date.now() + 60_000);
      assert.equal(theirs.fence, 0n);
      await theirs.release();
      assert.equal(await server.call('EXISTS', 'h'), 0);
    });

    it('says of what others have that no quorum was achieved', async () => {
      const told: Error[] = [];
      redlock.on('error', (error) => told.push(error));
      const lock = await redlock.acquire(['a', 'b'], 5_000);
      const begun = performance.now();
      await assert.rejects(redlock.acquire(['c', 'b'], 5_000, NO_TIME), (error: ExecutionError) => {
        assert(error instanceof ExecutionError && error.attempts.length === 1);
        return /unable to achieve a quorum/.test(error.message);
      });
      assert(performance.now() - begun < 1_000);
      await assert.rejects(redlock.acquire(['a'], 5_000, { retryCount: 3, retryDelay: 50 }), ({ attempts }) => {
        return attempts.length === 4;
      });
      assert.deepEqual(
        told.map((error) => error instanceof ResourceLockedError),
        [true, true],
      );
      assert.equal(await server.call('EXISTS', 'c'), 0);
      await lock.release();
      await assert.rejects(lock.release(), ExecutionError);
    });

    it('waits in the order of coming', async () => {
      const first = await redlock.acquire(['a'], 5_000);
      const order: number[] = [];
      const all = [];
      for (const number of [1, 2, 3]) {
        const waiting = redlock.acquire(['a'], 5_000, { retryCount: -1 }).then(async (lock) => {
          order.push(number);
          await lock.release();
        });
        all.push(waiting);
        await eventually(async () => (await server.waiters('a')) === number);
      }
      await first.release();
      await Promise.all(all);
      assert.deepEqual(order, [1, 2, 3]);
    });

    it('renews what a routine uses, and tells it of a loss', async () => {
      const seen = await redlock.using(['a'], 400, async (signal) => {
        await pause(1_000);
        assert.equal(await server.call('EXISTS', 'a'), 1);
        return [signal.aborted, signal.error];
      });
      assert.deepEqual(seen, [false, undefined]);
      assert.equal(await server.call('EXISTS', 'a'), 0);
      const using = redlock.using(['a'], 400, NO_TIME, async (signal) => {
        await server.call('DEL', 'a');
        await eventually(() => signal.aborted);
        assert(signal.error instanceof Error);
      });
      await assert.rejects(using, ExecutionError);
    });

    it('keeps a lock that the program has dropped until its end', async () => {
      await redlock.acquire(['a'], 60_000);
      for (let times = 0; times < 5; times++) {
        await pause(300);
        collect();
      }
      assert.equal(await server.call('EXISTS', 'a'), 1);
      await server.call('DEL', 'a');
    });

    it('has a lock on most of several servers', async () => {
      const lock = await quorum.acquire(['q'], 5_000);
      await assert.rejects(quorum.acquire(['q'], 5_000, NO_TIME), ExecutionError);
      await assert.rejects(quorum.acquire(['q', 'r'], 5_000), /several servers/);
      await lock.release();
      for (const each of servers) await eventually(async () => (await each.call('EXISTS', 'q')) === 0);
    });

    it('leaves what was acquired when it quits, and has the connections of others for the same client', async () => {
      const { client, close: disconnect } = await library.connect(server);
      const connections = async () =>
        String(await server.call('CLIENT', 'LIST'))
          .trim()
          .split('\n').length;
      const many = Array.from({ length: 20 }, () => new Redlock([client]));
      for (const each of many) await (await each.acquire(['a'], 5_000)).release();
      const before = await connections();
      for (const each of many) await each.acquire([`left-${many.indexOf(each)}`], 60_000);
      assert.equal(await connections(), before);
      await many[0]?.quit();
      assert.equal(await server.call('EXISTS', ...many.map((_, number) => `left-${number}`)), many.length);
      disconnect();
      await server.call('FLUSHALL');
    });

    it('takes settings that are not there for none', async () => {
      const unset = new Redlock([clients[0] as Client], { retryCount: undefined as never });
      assert.equal(unset.settings.retryCount, 10);
      const lock = await unset.acquire(['a'], 5_000, { retryDelay: undefined as never });
      await assert.rejects(unset.acquire(['a'], 5_000, { retryCount: 0, retryDelay: 0 }), ExecutionError);
      await lock.release();
    });

    it('refuses what makes no sense', async () => {
      assert.throws(() => new Redlock([]), /at least one/);
      await assert.rejects(redlock.acquire(['a'], 1.5), /integer/);
      await assert.rejects(redlock.using(['a'], 500, {} as never), /routine/);
      await assert.rejects(redlock.acquire([], 5_000), /at least one/);
    });
  });
}

it('locks the key that redlock locks, where the client puts a prefix before it', async () => {
  const server = await TestServer.start();
  const client = new Redis({ path: server.socket, keyPrefix: 'app:' });
  const lock = await new Redlock([client]).acquire(['a'], 5_000);
  assert.deepEqual(await server.call('KEYS', '*'), ['app:a']);
  await lock.release();
  const other = new Redis({ path: server.socket, lazyConnect: true });
  assert.throws(() => new Redlock([client, other]), /keyPrefix/);
  client.disconnect();
  await server.stop();
});
