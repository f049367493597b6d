/** The message is the grant: the work begins when it comes, and the server hears of that with the first renewal. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a message, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    before(async () => {
      server = await TestServer.start();
      one = await leasehold(library, server);
      other = await leasehold(library, server);
      // Both hear of grants from now on.
      for (const [holder, next] of [
        [one, other],
        [other, one],
      ] as const) {
        const lease = await holder.locks.acquire('a');
        const { waiting } = await waits(next, {});
        await eventually(async () => (await calls('subscribe')) === (holder === one ? 1 : 2));
        await lease.release();
        await (await waiting).release();
      }
    });
    after(async () => {
      await one.close();
      await other.close();
      await server.stop();
    });

    const calls = async (command: string) => {
      const found = new RegExp(`cmdstat_${command}:calls=(\\d+)`, 'i').exec(await server.control.info('commandstats'));
      return Number(found?.[1] ?? 0);
    };

    const waits = async (setup: Setup, options: object) => {
      const waiting = setup.locks.acquire('a', options);
      waiting.catch(() => {});
      await eventually(async () => (await server.waiters('a')) === 1);
      return { waiting };
    };
    const channels = async () => (await server.call('PUBSUB', 'CHANNELS', 'leasehold:*')) as string[];

    it('makes a grant two commands, and nothing is made that nobody asks for', async () => {
      const Controller = globalThis.AbortController;
      let controllers = 0;
      globalThis.AbortController = class extends Controller {
        constructor() {
          super();
          controllers++;
        }
      };
      let grants = 0;
      let inside = 0;
      const worker = async () => {
        for (let round = 0; round < 25; round++) {
          await one.locks.with('a', async () => {
            assert.equal(++inside, 1);
            grants++;
            await new Promise((resolve) => setImmediate(resolve));
            inside--;
          });
        }
      };
      await worker();
      await server.call('CONFIG', 'RESETSTAT');
      controllers = 0;
      await Promise.all(Array.from({ length: 16 }, worker));
      globalThis.AbortController = Controller;
      assert.equal(grants, 425);
      const asked = (await calls('lock.acquire')) + (await calls('lock.release')) + (await calls('lock.extend'));
      // A place may be due to be asked for again.
      assert(asked >= 2 * 400 && asked <= 2 * 400 + 16, `${asked}`);
      assert.equal(controllers, 0);
    });

    it('is claimed by the first renewal, at once if there is no other', async () => {
      for (const options of [{ ttl: 60_000, renew: false }, { ttl: 900 }]) {
        const lease = await other.locks.acquire('a');
        const { waiting } = await waits(one, options);
        await server.call('CONFIG', 'RESETSTAT');
        await lease.release();
        const mine = await waiting;
        assert.equal(await calls('lock.acquire'), 0);
        const { ttl } = options;
        await eventually(async () => (await server.control.pttl('a')) > ttl * 0.9);
        await eventually(() => mine.validFor() > ttl * 0.9);
        assert.equal(await mine.release(), 'released');
      }
    });

    it('that is kept stays for its ttl', async () => {
      const lease = await other.locks.acquire('a');
      const { waiting } = await waits(one, { ttl: 60_000 });
      await lease.release();
      const mine = await waiting;
      mine.detach();
      await eventually(async () => (await server.control.pttl('a')) > 50_000);
      await server.call('DEL', 'a');
    });

    it('that somebody forged is found out by the first renewal, the release, or before the work if it is to be confirmed', async () => {
      const forge = async (owner: string) => {
        for (const channel of await channels()) {
          await server.call('PUBLISH', channel, `9007199254740000 ${Buffer.byteLength(owner)} ${owner} a`);
        }
      };
      const ownerOf = async () => {
        const [waiter = []] = (await server.call('LOCK.WAITERS', 'a')) as string[][];
        return waiter[waiter.indexOf('owner') + 1] ?? '';
      };
      const theirs = await other.locks.acquire('a', { ttl: 60_000 });
      const careful = await waits(one, { confirm: true });
      let isGranted = false;
      careful.waiting.then(
        () => {
          isGranted = true;
        },
        () => {},
      );
      const asked = await calls('lock.acquire');
      await forge(await ownerOf());
      await eventually(async () => (await calls('lock.acquire')) > asked);
      assert.equal(isGranted, false);
      await theirs.release();
      assert.equal(await (await careful.waiting).release(), 'released');
      assert.equal((await channels()).length, 2);

      const held = await other.locks.acquire('a', { ttl: 60_000 });
      for (const ttl of [60_000, 900]) {
        const { waiting } = await waits(one, { ttl });
        await forge(await ownerOf());
        const believed = await waiting;
        if (ttl === 900) assert.equal(await believed.lost, 'taken');
        assert.equal(await believed.release(), 'late');
        assert.equal(await server.call('LOCK.CHECK', 'a', held.owner), Number(held.fence));
        await eventually(async () => (await server.waiters('a')) === 0);
      }
      assert.equal(await held.release(), 'released');
    });

    it('keeps the places of many with few requests, all of which are granted in the end', async () => {
      const many = await leasehold(library, server, { slice: 900 });
      const lease = await other.locks.acquire('a', { ttl: 60_000 });
      const waiting = Array.from({ length: 90 }, () => many.locks.with('a', () => {}));
      await eventually(async () => (await server.waiters('a')) === 90);
      await server.call('CONFIG', 'RESETSTAT');
      const end = performance.now() + 3_000;
      await eventually(() => performance.now() > end);
      assert.equal(await server.waiters('a'), 90);
      const asked = await calls('lock.acquire');
      assert(asked >= 2 * 90 && asked <= 8 * 90, `${asked}`);
      await lease.release();
      await Promise.all(waiting);
      await many.close();
    });
  });
}
