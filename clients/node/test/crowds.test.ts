/** Many at once over one client and one signal, and what happens in the same moment. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { Leasehold } from '../src/index.js';
import { LIBRARIES, leasehold } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

describe('many at once', () => {
  let server: TestServer;
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  before(async () => {
    server = await TestServer.start();
    process.on('warning', warned);
  });
  after(async () => {
    process.off('warning', warned);
    await server.stop();
  });

  for (const library of LIBRARIES) {
    it(`wait by one signal, without a warning, with ${library.name}`, async () => {
      const setup = await leasehold(library, server);
      const lease = await setup.locks.acquire('a');
      const stop = new AbortController();
      const waits = Array.from({ length: 50 }, () => setup.locks.acquire('a', { wait: 60_000, signal: stop.signal }));
      const ended = Promise.allSettled(waits);
      await eventually(async () => (await server.waiters('a')) === 50);
      stop.abort(new Error('enough'));
      for (const one of await ended) {
        assert(one.status === 'rejected' && one.reason.message === 'enough');
      }
      await eventually(async () => (await server.waiters('a')) === 0);
      assert.equal(await lease.release(), 'released');
      await setup.close();
      assert.deepEqual(warnings, []);
    });

    it(`use one client, without a warning, with ${library.name}`, async () => {
      const { client, close } = await library.connect(server);
      for (let round = 0; round < 30; round++) {
        const locks = new Leasehold(client);
        await locks.with('b', async () => {});
        if (round % 2 === 0) await locks.close();
      }
      close();
      assert.deepEqual(warnings, []);
    });
  }
});

describe('in the same moment', () => {
  let server: TestServer;
  before(async () => {
    server = await TestServer.start();
  });
  after(() => server.stop());

  it('a grant and an abort leave no lock', async () => {
    const client = new Redis({ path: server.socket });
    const locks = new Leasehold(client);
    for (let turns = 0; turns < 12; turns++) {
      const stop = new AbortController();
      // The reply is read, and so many turns of the microtasks later the signal is aborted.
      const call = client.sendCommand.bind(client);
      client.sendCommand = (command, stream) => {
        const answer = call(command, stream) as Promise<unknown>;
        const abortAfter = (left: number): void => {
          if (left === 0) stop.abort(new Error('aborted'));
          else queueMicrotask(() => abortAfter(left - 1));
        };
        if (command.name.toUpperCase() === 'LOCK.ACQUIRE') answer.then(() => abortAfter(turns));
        return answer;
      };
      const lease = await locks.acquire('a', { ttl: 60_000, signal: stop.signal }).catch(() => null);
      client.sendCommand = call;
      await lease?.release();
      await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
    }
    assert.deepEqual(await locks.close(), []);
    client.disconnect();
  });

  it('a transaction of the program that has the request leaves no lock', async () => {
    const client = new Redis({ path: server.socket });
    const locks = new Leasehold(client);
    await client.call('MULTI');
    await assert.rejects(locks.tryAcquire('a', { ttl: 60_000 }), /unexpected type/);
    await client.call('EXEC');
    await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
    assert.deepEqual(await locks.close(), []);
    client.disconnect();
  });

  it('a program that was busy past its lease is stopped by throwIfAborted', async () => {
    const client = new Redis({ path: server.socket });
    const locks = new Leasehold(client);
    const lease = await locks.acquire('a', { ttl: 200 });
    const end = performance.now() + 300;
    while (performance.now() < end);
    assert.throws(() => lease.signal.throwIfAborted());
    await locks.close();
    client.disconnect();
  });
});
