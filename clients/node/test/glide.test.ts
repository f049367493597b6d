import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Decoder, GlideClient, GlideClusterClient } from '@valkey/valkey-glide';
import { Leasehold, NeedsModuleError, PermissionError, SettingError, WrongTypeError } from '../src/index.js';
import { TestCluster } from './support/cluster.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

const where = (port: number) => ({ addresses: [{ host: '127.0.0.1', port }] });

describe('Valkey GLIDE', () => {
  let server: TestServer;
  let cluster: TestCluster;
  before(async () => {
    server = await TestServer.start({ tcp: true });
    cluster = await TestCluster.start();
  });
  after(async () => {
    await server.stop();
    await cluster.stop();
  });

  const clients = {
    alone: () => GlideClient.createClient({ ...where(server.port), databaseId: 3, protocol: 0 }),
    'of a cluster': () => GlideClusterClient.createClient(where(cluster.nodes[0]?.port ?? 0)),
  };
  for (const [kind, connect] of Object.entries(clients)) {
    it(`has locks, ${kind}`, async () => {
      const [client, another] = [await connect(), await connect()];
      const [locks, others] = [new Leasehold(client), new Leasehold(another)];
      for (const name of ['a', 'b', 'c', Buffer.from([0xff, 0x00])]) {
        const lease = await locks.acquire(name, { ttl: 5_000 });
        assert.equal(await others.tryAcquire(name), null);
        const waiting = others.acquire(name, { wait: 60_000, ttl: 60_000 });
        await eventually(async () => (await locks.waiters(name)).length === 1);
        assert.equal((await others.info(name))?.fence, lease.fence);
        const begun = performance.now();
        await lease.release();
        const next = await waiting;
        // By the message, and not when it asks again.
        assert(performance.now() - begun < 900);
        assert(next.fence > lease.fence);
        assert.equal(await next.guard('SET', name, 'x').catch(({ name }) => name), 'OK');
        await assert.rejects(next.guard('GET', name), { name: 'LostError' });
      }
      const [first] = await others.holders('d');
      assert.equal(first, undefined);
      await assert.rejects(locks.acquire('d', { ephemeral: 0 }), SettingError);
      assert.deepEqual(await Promise.all([locks.close(), others.close()]), [[], []]);
      client.close();
      await assert.rejects(new Leasehold(client).acquire('a'));
      another.close();
    });
  }

  it('tells what the server refuses, and works without the module', async () => {
    const client = await GlideClient.createClient(where(server.port));
    const locks = new Leasehold(client);
    await server.call('LPUSH', 'list', '1');
    await assert.rejects(locks.acquire('list'), WrongTypeError);
    await server.call('ACL', 'SETUSER', 'poor', 'on', '>p', '~*', '+ping', '+client', '+hello', '+info');
    const credentials = { username: 'poor', password: 'p' };
    const poor = await GlideClient.createClient({ ...where(server.port), credentials, defaultDecoder: Decoder.Bytes });
    await assert.rejects(new Leasehold(poor).acquire('a'), PermissionError);
    const bare = await TestServer.start({ tcp: true, plain: true });
    const plain = await GlideClient.createClient(where(bare.port));
    const plainly = new Leasehold(plain);
    await plainly.with('a', async () => assert.equal(await plainly.tryAcquire('a'), null));
    await assert.rejects(plainly.read('a').acquire(), NeedsModuleError);
    await Promise.all([locks.close(), plainly.close()]);
    for (const each of [client, poor, plain]) each.close();
    await bare.stop();
  });
});
