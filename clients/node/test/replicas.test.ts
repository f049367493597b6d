/** Replicas that have a grant before the work begins. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { RefusedError, SettingError, TooFewReplicasError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  for (const plain of [false, true]) {
    describe(`replicas, with ${library.name}${plain ? ', without the module' : ''}`, () => {
      let server: TestServer;
      let replica: TestServer;
      let one: Setup;
      before(async () => {
        const config = ['--repl-diskless-sync-delay', '0'];
        server = await TestServer.start({ tcp: true, plain, config });
        const follows = ['--replicaof', `127.0.0.1 ${server.port}`, ...config];
        replica = await TestServer.start({ tcp: true, plain, config: follows });
        await eventually(async () => /master_link_status:up/.test(await replica.control.info('replication')), 30_000);
        one = await leasehold(library, server);
      });
      after(async () => {
        await one.close();
        await replica.stop();
        await server.stop();
      });
      const replicas = { count: 1, within: 20_000 };

      it('have the lock when it is granted', async () => {
        for (const acquire of ['acquire', 'tryAcquire'] as const) {
          const lease = await one.locks[acquire]('a', { replicas });
          assert.equal(await replica.control.get('a'), `${lease?.fence}:${lease?.owner}`);
          assert.equal(await one.locks.tryAcquire('a', { replicas }), null);
          await lease?.release();
        }
      });

      it('do not stop others who use the client', async () => {
        replica.pause();
        try {
          const waits = one.locks.acquire('b', { replicas });
          await eventually(async () => (await server.call('EXISTS', 'b')) === 1);
          await (await one.locks.acquire('c')).release();
          replica.goOn();
          assert.equal(await (await waits).release(), 'released');
        } finally {
          replica.goOn();
        }
      });

      it('are counted when they are too few, and the lock is given back', async () => {
        const asks = one.locks.acquire('a', { replicas: { count: 2, within: 100 } });
        await assert.rejects(asks, (error) => {
          assert(error instanceof TooFewReplicasError);
          assert.deepEqual([error.lock, error.acknowledged, error.wanted], ['a', 1, 2]);
          return true;
        });
        await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
      });

      it('have it on disk where the server can tell', async () => {
        const isKnown = ((await server.call('COMMAND', 'INFO', 'WAITAOF')) as unknown[])[0] !== null;
        const asks = one.locks.acquire('a', { replicas: { count: 1, within: 2_000, durable: true } });
        // There is none without an append-only file.
        await assert.rejects(asks, RefusedError);
        await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
        if (!isKnown) return;
        for (const each of [server, replica]) await each.call('CONFIG', 'SET', 'appendonly', 'yes');
        const lease = await one.locks.acquire('a', { replicas: { ...replicas, durable: true } });
        assert.equal(await lease.release(), 'released');
      });

      it('are named by a count and a time', async () => {
        for (const wrong of [{ count: 0, within: 1 }, { count: 1 }, { count: 1, within: 5, wait: 1 }, 2]) {
          await assert.rejects(one.locks.acquire('a', { replicas: wrong as never }), SettingError);
        }
      });
    });
  }
}
