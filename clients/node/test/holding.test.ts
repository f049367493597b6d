import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BusyError, ClosedError, Leasehold, LostError, PermissionError, type Trouble } from '../src/index.js';
import { collect } from './support/garbage.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import type { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a lock that is held, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    stage(library, (scene) => ({ server, one, other } = scene));

    it('keeps others out until it is released', async () => {
      const lease = await one.locks.tryAcquire('a');
      assert(lease);
      assert.equal(typeof lease.fence, 'bigint');
      assert.equal(await other.locks.tryAcquire('a'), null);
      assert.equal(await lease.release(), 'released');
      assert.equal(await lease.lost, 'released');
      assert.equal(lease.signal.aborted, false);
      assert.equal(lease.validFor(), 0);
      const next = await other.locks.tryAcquire('a');
      assert(next && next.fence > lease.fence);
      await next.release();
    });

    it('has an owner of its own for each lease', async () => {
      const leases = await Promise.all(['a', 'b'].map((name) => one.locks.acquire(name)));
      await Promise.all(leases.map((lease) => lease.release()));
      const owners = leases.map(({ owner }) => owner);
      assert.equal(new Set(owners).size, 2);
      const owned = new RegExp(`^${process.pid}:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`);
      for (const owner of owners) assert.match(owner, owned);
    });

    it('is valid for its ttl, counted from before it was asked for', async () => {
      const lease = await one.locks.tryAcquire('a', { ttl: 5_000, renew: false });
      assert(lease && lease.validFor() <= 5_000 && lease.validFor() > 4_000);
      await lease.release();
    });

    it('is told to be busy when patience has ended, and leaves nothing behind', async () => {
      const lease = await one.locks.acquire('a');
      const begun = performance.now();
      await assert.rejects(other.locks.acquire('a', { wait: 200 }), BusyError);
      const waited = performance.now() - begun;
      assert(waited >= 199 && waited < 1_500, `${waited}`);
      await eventually(async () => (await server.waiters('a')) === 0);
      await lease.release();
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is given to whoever waits, in the order of coming', async () => {
      const first = await one.locks.acquire('a');
      const order: number[] = [];
      const waiting = [];
      for (const number of [1, 2, 3]) {
        const { locks } = number === 2 ? one : other;
        const wait = locks.acquire('a', { wait: 20_000 }).then(async (lease) => {
          order.push(number);
          await lease.release();
        });
        waiting.push(wait);
        await eventually(async () => (await server.waiters('a')) === number);
      }
      await first.release();
      await Promise.all(waiting);
      assert.deepEqual(order, [1, 2, 3]);
    });

    it('is renewed', async () => {
      const lease = await one.locks.acquire('a', { ttl: 400 });
      const end = performance.now() + 1_200;
      await eventually(() => performance.now() > end);
      assert(lease.validFor() > 0);
      assert.equal(await server.call('LOCK.CHECK', 'a', lease.owner), Number(lease.fence));
      assert.equal(await lease.release(), 'released');
    });

    it('is not renewed if it is told so, and lost when its lease is over', async () => {
      const lease = await one.locks.acquire('a', { ttl: 200, renew: false });
      assert.equal(await lease.lost, 'expired');
      assert(lease.signal.aborted && lease.signal.reason instanceof LostError);
      assert.equal(await lease.release(), 'late');
      assert.equal(one.troubles.pop()?.kind, 'lost');
    });

    it('is lost when its key is deleted, and is told so by the next renewal', async () => {
      const lease = await one.locks.acquire('a', { ttl: 1_500 });
      await server.call('DEL', 'a');
      const begun = performance.now();
      assert.equal(await lease.lost, 'taken');
      assert(performance.now() - begun < 1_200);
      assert(lease.signal.aborted);
      assert.equal(await lease.release(), 'late');
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is not asked for again when it is lost', async () => {
      const lease = await one.locks.acquire('a', { ttl: 900 });
      await server.call('DEL', 'a');
      await server.call('CONFIG', 'RESETSTAT');
      assert.equal(await lease.lost, 'taken');
      const end = performance.now() + 1_800; // six more renewals
      await eventually(() => performance.now() > end);
      assert.match(await server.control.info('commandstats'), /cmdstat_lock.extend:calls=1,/i);
      assert.equal(await lease.release(), 'late');
    });

    it('is never revived by a renewal when somebody else has it', async () => {
      const lease = await one.locks.acquire('a', { ttl: 900 });
      await server.call('DEL', 'a');
      const next = await other.locks.acquire('a', { ttl: 10_000 });
      assert.equal(await lease.extend(), 'lost');
      assert.equal(await lease.release(), 'late');
      assert.equal(await next.release(), 'released');
    });

    it('is extended, and renewed by as much from then on', async () => {
      const lease = await one.locks.acquire('a', { ttl: 2_000 });
      assert.equal(await lease.extend(60_000), 'extended');
      assert(lease.validFor() > 55_000);
      assert.equal(await lease.extend(1_000), 'extended');
      assert(lease.validFor() <= 1_000);
      assert((await server.control.pttl('a')) <= 1_000);
      await lease.release();
    });

    it('is kept', async () => {
      const lease = await one.locks.acquire('a', { ttl: 500 });
      lease.detach();
      assert.equal(await lease.lost, 'released');
      assert.equal(await server.call('EXISTS', 'a'), 1);
      assert.equal(await lease.release(), 'later');
      await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
    });

    it('is held for some time at least', async () => {
      const begun = performance.now();
      const lease = await one.locks.acquire('a', { ttl: 10_000, holdAtLeast: 700 });
      assert.equal(await lease.release(), 'later');
      const left = await server.control.pttl('a');
      assert(left > 0 && left <= 700, `${left}`);
      const next = await other.locks.acquire('a', { wait: 10_000 });
      assert(performance.now() - begun >= 690);
      assert.equal(await next.release(), 'released');
    });

    it('is released when the work ends, and what the work comes to is what with comes to', async () => {
      assert.equal(await one.locks.with('a', async ({ fence }) => typeof fence), 'bigint');
      const failure = new Error('the work failed');
      await assert.rejects(
        one.locks.with('a', { wait: 1_000 }, () => Promise.reject(failure)),
        (error) => error === failure,
      );
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is released by await using', async () => {
      {
        await using lease = await one.locks.acquire('a');
        assert(lease.validFor() > 0);
      }
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is read by many, and written by one', async () => {
      const [first, second] = await Promise.all([one.locks.read('p').acquire(), other.locks.read('p').acquire()]);
      assert.equal(await one.locks.write('p').tryAcquire(), null);
      assert.equal((await one.locks.info('p'))?.holders, 2);
      const writes = one.locks.write('p').acquire({ wait: 10_000 });
      await eventually(async () => (await server.waiters('p')) === 1);
      assert.equal(await other.locks.read('p').tryAcquire(), null);
      await first.release();
      await second.release();
      assert.equal(await (await writes).release(), 'released');
    });

    it('is held by as many as a semaphore has permits', async () => {
      const pool = one.locks.semaphore('s', 2);
      const [first, second] = [await pool.tryAcquire(), await pool.tryAcquire()];
      assert(first && second);
      assert.equal(await pool.tryAcquire(), null);
      await first.release();
      const third = await pool.acquire({ wait: 5_000 });
      await second.release();
      await third.release();
    });

    it('is looked at', async () => {
      assert.equal(await one.locks.info('a'), null);
      const lease = await one.locks.acquire('a', { ttl: 9_000 });
      const info = await other.locks.info('a');
      assert(info && info.ttl !== null && info.ttl <= 9_000);
      const { holder, fence, holders, share, waiters } = info;
      const expected = { holder: lease.owner, fence: lease.fence, holders: 1, share: 1, waiters: 0 };
      assert.deepEqual({ holder, fence, holders, share, waiters }, expected);
      await lease.release();
    });

    it('is printed as JSON, and so is who leads', async () => {
      const lease = await one.locks.acquire('a');
      const printed = JSON.parse(JSON.stringify({ info: await other.locks.info('a') }));
      assert.equal(printed.info.fence, String(lease.fence));
      assert.equal(printed.info.holder, lease.owner);
      await lease.release();
      const election = one.locks.election('e', 'host 1');
      const leads = await election.campaign();
      const leader = { candidate: 'host 1', fence: String(leads.fence) };
      assert.deepEqual(JSON.parse(JSON.stringify(await election.leader())), leader);
      await leads.resign();
    });

    it('is given back when the program has dropped its lease, and that is told', async () => {
      await (async () => void (await one.locks.acquire('dropped', { ttl: 60_000 })))();
      await eventually(async () => {
        collect();
        return (await server.call('EXISTS', 'dropped')) === 0;
      });
      const { kind, name } = one.troubles.pop() ?? {};
      assert.deepEqual([kind, name], ['forgotten', 'dropped']);
    });

    it('stays held for whoever has its signal, or waits for its loss, and drops the lease', async () => {
      const signal = await (async () => (await one.locks.acquire('watched', { ttl: 3_000 })).signal)();
      const lost = (async () => (await one.locks.acquire('awaited', { ttl: 3_000 })).lost)();
      // Longer than its lease. It is watched for the garbage collector after a second.
      const end = performance.now() + 3_500;
      await eventually(() => {
        collect();
        return performance.now() > end;
      });
      assert.equal(signal.aborted, false);
      assert.equal(await server.call('DEL', 'watched', 'awaited'), 2);
      assert.equal(await lost, 'taken');
      await eventually(() => signal.aborted);
      assert(one.troubles.splice(0).every(({ kind }) => kind === 'lost'));
    });

    it('is renewed no more when that is refused, and why is told at once and with the loss', async () => {
      await server.call('ACL', 'SETUSER', 'holder', 'on', '>secret', '+@all', '~*', '&*');
      const connected = await library.connect(server, { username: 'holder', password: 'secret' });
      const troubles: Trouble[] = [];
      const locks = new Leasehold(connected.client, { onTrouble: (trouble) => troubles.push(trouble) });
      const lease = await locks.acquire('a', { ttl: 1_500 });
      const begun = performance.now();
      await server.call('ACL', 'SETUSER', 'holder', '-lock.extend');
      await server.call('CONFIG', 'RESETSTAT');
      await eventually(() => troubles.length > 0);
      assert(performance.now() - begun < 1_000);
      assert.equal(troubles[0]?.kind, 'renewal refused');
      assert(troubles[0].error instanceof PermissionError);
      assert(lease.validFor() > 0);
      assert.equal(await lease.lost, 'expired');
      const { reason } = lease.signal;
      assert(reason instanceof LostError && reason.cause instanceof PermissionError);
      assert.match(reason.message, /NOPERM/);
      assert.match(await server.control.info('commandstats'), /lock.extend:calls=0,usec=0,[^\n]*rejected_calls=1/i);
      await locks.close();
      connected.close();
    });

    it('has a name of any bytes', async () => {
      for (const name of ['Schloß 🔒 {x', Buffer.from([0, 255, 13, 10, 32]), '', 'a b'] as const) {
        const lease = await one.locks.acquire(name);
        assert.equal(await other.locks.tryAcquire(name), null);
        const waits = other.locks.acquire(name, { wait: 10_000 });
        await eventually(async () => (await server.waiters(Buffer.from(name as string))) === 1);
        assert.equal(await lease.release(), 'released');
        await (await waits).release();
        assert.equal(await server.call('EXISTS', Buffer.from(name as string)), 0);
      }
    });

    it('has a prefix', async () => {
      const prefixed = await leasehold(library, server, { prefix: 'lock:' });
      const lease = await prefixed.locks.acquire('a');
      assert.equal(await server.call('EXISTS', 'lock:a'), 1);
      await lease.release();
      await prefixed.close();
    });

    it('leads', async () => {
      const [mine, yours] = [one.locks.election('e', 'host 1'), other.locks.election('e', 'host-2')];
      assert.equal(await mine.leader(), null);
      const leads = await mine.campaign({ ttl: 5_000 });
      assert.deepEqual(await yours.leader(), { candidate: 'host 1', fence: leads.fence });
      const seen: (string | undefined)[] = [];
      const watching = (async () => {
        for await (const leader of yours.observe({ lookEvery: 10 })) {
          seen.push(leader?.candidate);
          if (leader?.candidate === 'host-2') return;
        }
      })();
      const next = yours.campaign({ wait: 10_000 });
      await eventually(async () => (await server.waiters('e')) === 1);
      await eventually(() => seen.length > 0);
      assert.equal(await leads.resign(), 'released');
      const leadsNow = await next;
      await watching;
      assert(leadsNow.fence > leads.fence);
      assert.deepEqual(seen, ['host 1', 'host-2']);
      await leadsNow.resign();
    });

    it('is given back by close, which ends the waits and refuses what comes later', async () => {
      const third = await leasehold(library, server);
      const lease = await third.locks.acquire('a');
      const taken = await one.locks.acquire('b');
      const waits = third.locks.acquire('b');
      await eventually(async () => (await server.waiters('b')) === 1);
      const closing = third.locks.close();
      await assert.rejects(waits, ClosedError);
      assert.deepEqual(await closing, []);
      assert.equal(await lease.lost, 'closed');
      assert(lease.signal.aborted && lease.signal.reason instanceof ClosedError);
      assert.equal(await server.call('EXISTS', 'a'), 0);
      assert.equal(await server.waiters('b'), 0);
      await assert.rejects(third.locks.tryAcquire('c'), ClosedError);
      await taken.release();
      await third.close();
    });
  });
}
