/** Commands that the server runs for the holder of a lock, once at the most. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Cluster } from 'ioredis';
import { Leasehold, LostError, NeedsModuleError, RefusedError, SettingError, UnansweredError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup, stage } from './support/clients.js';
import { TestCluster } from './support/cluster.js';
import { Gate } from './support/gate.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a guarded command, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    stage(library, (scene) => ({ server, one } = scene));

    it('is run for the holder, and its reply is what it comes to', async () => {
      await using lease = await one.locks.acquire('a');
      assert.equal(await lease.guard('SET', 'page', 'snow ☃'), 'OK');
      assert.equal(await lease.guard('GET', 'page'), 'snow ☃');
      assert.equal(await lease.guard('GET', 'none'), null);
      assert.equal(await lease.guard('INCRBY', 'count', 7), 7);
      assert.deepEqual(await lease.guard('MGET', 'page', 'count'), ['snow ☃', '7']);
      assert.equal(await lease.guard('SET', 'bytes', Buffer.from([0, 255])), 'OK');
      assert.deepEqual(await lease.guardBuffer('GET', 'bytes'), Buffer.from([0, 255]));
    });

    it('is not run for a lease that is lost, which is told so', async () => {
      const lease = await one.locks.acquire('a', { ttl: 60_000 });
      await server.call('DEL', 'a');
      await assert.rejects(
        lease.guard('SET', 'late', 1),
        (error) => error instanceof LostError && error.loss === 'taken',
      );
      assert.equal(await server.call('EXISTS', 'late'), 0);
      assert(lease.signal.aborted);
      await assert.rejects(lease.guard('SET', 'late', 1), LostError);
      const released = await one.locks.acquire('a');
      await released.release();
      await assert.rejects(released.guard('SET', 'late', 1), LostError);
      assert.equal(await server.call('EXISTS', 'late'), 0);
    });

    it('may be refused by the server, and the lock stays', async () => {
      await using lease = await one.locks.acquire('a');
      await server.call('RPUSH', 'list', 'x');
      await assert.rejects(lease.guard('INCR', 'list'), /WRONGTYPE/);
      await assert.rejects(lease.guard('MULTI'), RefusedError);
      await assert.rejects(lease.guard(), SettingError);
      await assert.rejects(lease.guard('SET', 'x', {} as never), SettingError);
      assert.equal(lease.signal.aborted, false);
    });

    it('is sent once, and nobody knows what became of it when the connection is lost', async () => {
      const gate = await Gate.start(server);
      const { locks, close } = await leasehold(library, { socket: gate.socket } as TestServer, { response: 400 });
      const lease = await locks.acquire('b', { ttl: 60_000 });
      assert.equal(await lease.guard('SET', 'sent', 0), 'OK');
      gate.deafen();
      await assert.rejects(lease.guard('INCR', 'sent'), UnansweredError);
      gate.cut();
      gate.mend();
      // What comes behind it is answered on a connection of its own.
      assert.equal(await lease.guard('INCR', 'sent'), 2);
      const waits = lease.guard('INCR', 'sent');
      gate.cut();
      await assert.rejects(waits, UnansweredError);
      gate.mend();
      assert.equal(await lease.release(), 'released');
      assert(Number(await server.call('GET', 'sent')) <= 3);
      await close();
      gate.stop();
    });

    it('needs the module', async () => {
      const plain = await TestServer.start({ plain: true });
      const { locks, close } = await leasehold(library, plain);
      const lease = await locks.acquire('a');
      await assert.rejects(lease.guard('SET', 'x', 1), NeedsModuleError);
      await lease.release();
      await close();
      await plain.stop();
    });
  });
}

describe('a guarded command in a cluster', () => {
  it('follows its lock to another node', async () => {
    const cluster = await TestCluster.start();
    const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
    const locks = new Leasehold(client);
    const lease = await locks.acquire('{a}lock');
    assert.equal(await lease.guard('SET', '{a}page', 1), 'OK');
    await cluster.move('{a}lock');
    assert.equal(await lease.guard('INCR', '{a}page'), 2);
    assert.equal(await lease.release(), 'released');
    await locks.close();
    client.disconnect();
    await cluster.stop();
  });
});
