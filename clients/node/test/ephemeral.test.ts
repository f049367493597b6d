/** Locks that end with a connection of the program. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NeedsModuleError } from '../src/index.js';
import { Child } from './support/child.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { Gate } from './support/gate.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`an ephemeral lock, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    stage(library, (scene) => ({ server, one, other } = scene));
    const ended = async () => Number(/bindings_ended:(\d+)/.exec(await server.control.info('leasehold'))?.[1]);

    it("of a program that is killed is the next one's at once", async () => {
      const child = new Child('holds', [library.name, server.socket, '60000', '0']);
      await child.said('held');
      const waits = other.locks.acquire('a', { wait: 20_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      const begun = performance.now();
      child.process.kill('SIGKILL');
      const lease = await waits;
      const took = performance.now() - begun;
      assert(took < 50, `${took}`);
      await lease.release();
    });

    it('is bound to another connection when its own is lost, within the grace: by the same fence', async () => {
      const lease = await one.locks.acquire('b', { ttl: 60_000, ephemeral: 1_500 });
      for (let times = 0; times < 2; times++) {
        const before = await ended();
        await server.killClients();
        await eventually(async () => (await ended()) > before);
        await eventually(async () => (await server.control.pttl('b')) > 50_000);
      }
      const end = performance.now() + 2_500; // longer than the grace
      await eventually(() => performance.now() > end);
      assert.equal(await server.control.get('b'), `${lease.fence}:${lease.owner}`);
      assert(lease.validFor() > 30_000);
      assert.equal(await lease.release(), 'released');
    });

    it('is lost at once with its connection if it has no grace', async () => {
      const lease = await one.locks.acquire('b', { ttl: 60_000, ephemeral: 0 });
      await server.killClients();
      assert.equal(await lease.lost, 'expired');
      assert.equal(one.troubles.pop()?.kind, 'lost');
      await eventually(async () => (await server.call('EXISTS', 'b')) === 0);
      assert.equal(await lease.release(), 'late');
    });

    it('is lost when the grace is over before the server is heard again', async () => {
      const gate = await Gate.start(server);
      const cut = await leasehold(library, { socket: gate.socket } as TestServer);
      const lease = await cut.locks.acquire('b', { ttl: 60_000, ephemeral: 300 });
      gate.cut();
      assert.equal(await lease.lost, 'expired');
      const next = await other.locks.acquire('b', { wait: 5_000 });
      gate.mend();
      assert.equal(await lease.release(), 'late');
      assert.equal(await next.release(), 'released');
      await cut.close();
      gate.stop();
    });

    it('is waited for in the queue, and bound when it is granted', async () => {
      const first = await other.locks.acquire('c');
      const waits = one.locks.acquire('c', { wait: 20_000, ephemeral: 0 });
      await eventually(async () => (await server.waiters('c')) === 1);
      await first.release();
      const lease = await waits;
      await server.killClients();
      await eventually(async () => (await server.call('EXISTS', 'c')) === 0);
      assert.equal(await lease.lost, 'expired');
      one.troubles.length = 0;
    });

    it('is bound too if it was waited for on a connection, as where there are no tickets', async () => {
      await server.call('ACL', 'SETUSER', 'deaf', 'on', '>secret', '+@all', '~*', 'resetchannels');
      const { client, close } = await library.connect(server, { username: 'deaf', password: 'secret' });
      const { Leasehold } = await import('../src/index.js');
      const locks = new Leasehold(client, { onTrouble: () => {} });
      const first = await other.locks.acquire('d');
      const waits = locks.acquire('d', { wait: 20_000, ephemeral: 0 });
      await eventually(async () => (await server.waiters('d')) === 1);
      await first.release();
      const lease = await waits;
      assert.equal(await server.control.get('d'), `${lease.fence}:${lease.owner}`);
      await server.killClients();
      assert.equal(await lease.lost, 'expired');
      await eventually(async () => (await server.call('EXISTS', 'd')) === 0);
      await locks.close();
      close();
    });

    it('needs the module', async () => {
      const plain = await TestServer.start({ plain: true });
      const { locks, close } = await leasehold(library, plain);
      await assert.rejects(locks.tryAcquire('a', { ephemeral: 0 }), NeedsModuleError);
      await assert.rejects(locks.acquire('a', { ephemeral: 0 }), NeedsModuleError);
      await close();
      await plain.stop();
    });
  });
}
