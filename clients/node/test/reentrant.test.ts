import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { BusyError, type Leasehold } from '../src/index.js';
import { LIBRARIES, type Setup, stage } from './support/clients.js';
import type { TestServer } from './support/server.js';

const AGAIN = { reentrant: true, wait: 0 };

for (const library of LIBRARIES) {
  describe(`work inside work under the same lock, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    let locks: Leasehold;
    stage(library, (scene) => {
      ({ server, one, other } = scene);
      locks = one.locks;
    });
    const calls = async () =>
      [...String(await server.call('INFO', 'commandstats')).matchAll(/lock\.(?:acquire|release):calls=(\d+)/g)]
        .map(([, count]) => Number(count))
        .reduce((sum, count) => sum + count, 0);

    it('has the same lease, and asks nobody', async () => {
      const before = await calls();
      const work = (depth: number): Promise<bigint[]> =>
        locks.with('a', AGAIN, async ({ fence }) => [fence, ...(depth > 0 ? await work(depth - 1) : [])]);
      const fences = await work(5);
      assert.deepEqual([fences.length, new Set(fences).size], [6, 1]);
      assert.equal((await calls()) - before, 2);
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('is nobody else, and no other lock', async () => {
      let outside: Promise<unknown> | undefined;
      const later = Promise.resolve().then(async () => {
        await pause(100);
        outside = locks.with('a', AGAIN, () => {});
        await assert.rejects(outside, BusyError);
      });
      await locks.with('a', AGAIN, async () => {
        await assert.rejects(
          locks.with('a', { wait: 0 }, () => {}),
          BusyError,
        );
        await locks.with('b', AGAIN, () => locks.with('a', AGAIN, () => {}));
        await later;
      });
      await assert.rejects(
        locks.with('a', { reentrant: 1 as never }, () => {}),
        /reentrant/,
      );
    });

    it('is served by what is more, and never waits for itself', async () => {
      await locks.write('a').with(AGAIN, async (writer) => {
        await locks.read('a').with(AGAIN, (reader) => assert.equal(reader, writer));
      });
      await locks.several(['a', 'b', 'c']).with(AGAIN, async (all) => {
        await locks.several(['c', 'a']).with(AGAIN, (some) => assert.equal(some, all));
        await locks.with('b', AGAIN, (one) => assert.equal(one, all));
        await assert.rejects(
          locks.several(['b', 'd']).with({ reentrant: true }, () => {}),
          /itself/,
        );
      });
      await locks.read('a').with(AGAIN, async () => {
        await assert.rejects(
          locks.with('a', { reentrant: true }, () => {}),
          /itself/,
        );
      });
    });

    it('is served by what the lease is by then', async () => {
      await locks.write('a').with(AGAIN, async (lease) => {
        await lease.downgrade();
        await locks.read('a').with(AGAIN, (reader) => assert.equal(reader, lease));
        await other.locks.read('a').with({ wait: 0 }, () =>
          assert.rejects(
            locks.write('a').with({ reentrant: true }, () => {}),
            /itself/,
          ),
        );
        await lease.upgrade();
        await locks.write('a').with(AGAIN, (writer) => assert.equal(writer, lease));
      });
    });

    it('may end last, and then gives it back', async () => {
      let child: Promise<bigint> | undefined;
      const fence = await locks.with('a', AGAIN, async (lease) => {
        child = locks.with('a', AGAIN, async (same) => {
          await pause(100);
          assert.equal(await server.call('EXISTS', 'a'), 1);
          return same.fence;
        });
        return lease.fence;
      });
      assert.equal(await child, fence);
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('asks anew for what was lost', async () => {
      await locks.with('a', AGAIN, async (first) => {
        await server.call('DEL', 'a');
        await first.extend();
        await locks.with('a', AGAIN, async (second) => {
          assert(second.fence > first.fence);
          await locks.with('a', AGAIN, (third) => assert.equal(third, second));
        });
      });
    });
  });
}
