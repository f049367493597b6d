/** A lock on most of several servers that know nothing of each other. */
import assert from 'node:assert/strict';
import { rmSync, symlinkSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import {
  BusyError,
  LostError,
  Quorum,
  SettingError,
  type Settings,
  type Trouble,
  UnreachableError,
} from '../src/index.js';
import { type Connected, LIBRARIES, type Library } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

interface Setup {
  readonly locks: Quorum;
  readonly troubles: Trouble[];
  close(): Promise<void>;
}

async function quorum(library: Library, servers: readonly TestServer[], settings: Settings = {}): Promise<Setup> {
  const connected: Connected[] = await Promise.all(servers.map((server) => library.connect(server)));
  const troubles: Trouble[] = [];
  const clients = connected.map(({ client }) => client);
  const locks = new Quorum(clients, { onTrouble: (trouble) => troubles.push(trouble), ...settings });
  const close = async () => {
    await locks.close(2_000);
    for (const each of connected) each.close();
  };
  return { locks, troubles, close };
}

for (const library of LIBRARIES) {
  describe(`a lock on most of three servers, one without the module, with ${library.name}`, () => {
    let servers: TestServer[];
    let one: Setup;
    let other: Setup;
    before(async () => {
      servers = await Promise.all([false, false, true].map((plain) => TestServer.start({ plain })));
      one = await quorum(library, servers);
      other = await quorum(library, servers);
    });
    after(async () => {
      await one.close();
      await other.close();
      for (const server of servers) await server.stop();
    });
    const held = async (name: string) => {
      const counts = await Promise.all(servers.map((server) => server.call('EXISTS', name) as Promise<number>));
      return counts.reduce((sum, count) => sum + count, 0);
    };

    it('has one fence on all that have granted it, and larger ones after', async () => {
      let last = 0n;
      for (let times = 0; times < 6; times++) {
        // A fence that is ahead on one of them is that of all.
        const ahead = servers[times % 3];
        if (times === 3) await ahead?.call('SET', '{a}:fence', `${last + 1_000_000n}`);
        const { locks } = times % 2 === 0 ? one : other;
        const lease = await locks.acquire('a', { wait: 20_000 });
        assert(lease.fence > last);
        last = lease.fence;
        const values = await Promise.all(servers.map((server) => server.control.get('a')));
        assert(values.filter((value) => value === `${lease.fence}:${lease.owner}`).length >= 2, String(values));
        assert.equal(await one.locks.tryAcquire('a'), null);
        assert.equal(await other.locks.tryAcquire('a'), null);
        assert.equal(await lease.release(), 'released');
        await eventually(async () => (await held('a')) === 0);
      }
    });

    it('is waited for, until patience ends', async () => {
      const lease = await one.locks.acquire('b');
      await assert.rejects(other.locks.acquire('b', { wait: 300 }), BusyError);
      const waits = other.locks.with('b', { wait: 20_000 }, ({ fence }) => fence);
      assert.equal(await lease.release(), 'released');
      assert((await waits) > lease.fence);
      const stop = new AbortController();
      const stopped = one.locks.acquire('b', { signal: stop.signal });
      stop.abort(new Error('enough'));
      await assert.rejects(stopped, /enough/);
      await eventually(async () => (await held('b')) === 0);
    });

    it('is renewed and extended by most, adopted, and lost when most say so', async () => {
      const lease = await one.locks.acquire('c', { ttl: 1_500 });
      const end = performance.now() + 2_000;
      await eventually(() => performance.now() > end);
      assert(lease.validFor() > 0);
      assert.equal(await lease.extend(20_000), 'extended');
      assert(lease.validFor() > 15_000);
      const adopted = await other.locks.adopt(String(lease.detach()));
      assert.equal(adopted.fence, lease.fence);
      await servers[0]?.call('DEL', 'c');
      assert.equal(await adopted.extend(), 'extended');
      await servers[2]?.call('DEL', 'c');
      assert.equal(await adopted.extend(), 'lost');
      assert.equal(await adopted.release(), 'late');
      other.troubles.length = 0;
      await servers[1]?.call('DEL', 'c');
      await assert.rejects(other.locks.adopt(lease.detach()), LostError);
    });

    it('outlives a few servers, and what these grant too late is given back', async () => {
      const [, hangs] = servers;
      assert(hangs);
      hangs.pause();
      const begun = performance.now();
      const lease = await one.locks.acquire('d', { ttl: 20_000 });
      assert(performance.now() - begun < 3_000);
      assert.equal(await lease.extend(), 'extended');
      assert.equal(await lease.release(), 'released');
      const next = await other.locks.acquire('d', { ttl: 20_000 });
      assert(next.fence > lease.fence);
      hangs.goOn();
      assert.equal(await next.release(), 'released');
      await eventually(async () => (await held('d')) === 0);
    });

    it('is granted by nobody while most are down, and nothing is left behind', async () => {
      const [first, second] = servers;
      for (const server of [first, second]) server?.pause();
      await assert.rejects(one.locks.tryAcquire('e'), UnreachableError);
      for (const server of [first, second]) server?.goOn();
      await eventually(async () => (await held('e')) === 0);
      const lease = await one.locks.acquire('e', { ttl: 2_000, wait: 10_000 });
      for (const server of [first, second]) server?.pause();
      assert.equal(await lease.lost, 'expired');
      for (const server of [first, second]) server?.goOn();
      one.troubles.length = 0;
      await eventually(async () => (await held('e')) === 0);
    });

    it('has the fence that most were raised to, though one of them is far ahead', async () => {
      const far = BigInt(Date.now() + 3 * 24 * 3_600_000) * 1_000n;
      await servers[2]?.call('SET', '{h}:fence', String(far));
      const lease = await one.locks.acquire('h', { wait: 10_000 });
      const values = await Promise.all(servers.map((server) => server.control.get('h')));
      assert(values.filter((value) => value === `${lease.fence}:${lease.owner}`).length >= 2, String(values));
      assert(lease.fence < far);
      assert.equal(await lease.release(), 'released');
      await eventually(async () => (await held('h')) === 0);
    });

    it('counts each server once', async () => {
      const [first, second] = servers;
      assert(first && second);
      const twice = await quorum(library, [first, second, first]);
      await assert.rejects(twice.locks.tryAcquire('f'), /clients: 1 and 3 lead to one server/);
      await twice.close();
      await eventually(async () => (await held('f')) === 0);
    });

    it('has no share, no replicas and no guarded commands', async () => {
      for (const options of [{ ephemeral: 0 }, { replicas: { count: 1, within: 1 } }, { owner: 'me' }]) {
        await assert.rejects(async () => one.locks.acquire('g', options as object), SettingError);
      }
      const lease = await one.locks.acquire('g', { wait: 10_000 });
      await assert.rejects(lease.guard('SET', 'x', 1), SettingError);
      await assert.rejects(lease.downgrade(), SettingError);
      assert.equal(await lease.release(), 'released');
      assert.throws(() => new Quorum([]), SettingError);
    });

    it('counts no server twice to which another address leads by then', async () => {
      const [first, second, last] = await Promise.all([false, false, false].map(() => TestServer.start()));
      const third = `${second?.socket}-third`;
      symlinkSync(last?.socket as string, third);
      const its = await quorum(library, [first, second, { socket: third }] as TestServer[], {
        unreachableAfter: 1_000,
      });
      await (await its.locks.acquire('g')).release();
      rmSync(third);
      symlinkSync(second?.socket as string, third);
      await last?.stop();
      await first?.stop();
      // One server would be two of three.
      await assert.rejects(its.locks.acquire('g', { wait: 5_000 }), /clients: 2 and 3 lead to one server/);
      await eventually(async () => (await second?.call('EXISTS', 'g')) === 0);
      await its.close();
      await second?.stop();
    });
  });
}
