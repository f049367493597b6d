import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { createLock, createRedlock, IoredisAdapter, LockAcquisitionError } from '../src/redlock-universal.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

describe('the locks of redlock-universal', () => {
  const servers: TestServer[] = [];
  const clients: Redis[] = [];
  before(async () => {
    for (let number = 0; number < 3; number++) {
      const server = await TestServer.start();
      servers.push(server);
      clients.push(new Redis({ path: server.socket }));
    }
  });
  after(async () => {
    for (const client of clients) client.disconnect();
    for (const server of servers) await server.stop();
  });

  it('are held for as long as the work takes, and waited for in the queue', async () => {
    const [client] = clients as [Redis];
    const adapter = new IoredisAdapter(client);
    const lock = createLock({ adapter, key: 'a', ttl: 300, retryAttempts: 600 });
    const order: string[] = [];
    const first = lock.using(async (signal) => {
      await eventually(async () => ((await client.call('LOCK.WAITERS', 'a')) as unknown[]).length === 1);
      const begun = performance.now();
      await eventually(() => performance.now() - begun > 700);
      assert(!signal.aborted);
      order.push('first');
    });
    await eventually(() => lock.isLocked('a'));
    await lock.using(async () => order.push('second'));
    await first;
    assert.deepEqual(order, ['first', 'second']);
    await assert.rejects(
      lock.using(() => Promise.reject(new Error('of the work'))),
      /of the work/,
    );
    assert(!(await lock.isLocked('a')));
  });

  it('tell their work of a loss', async () => {
    const [client] = clients as [Redis];
    const lock = createLock({ adapter: new IoredisAdapter(client), key: 'b', ttl: 300 });
    const told = await lock.using(async (signal) => {
      await client.del('b');
      await eventually(() => signal.aborted);
      return signal.error?.name;
    });
    assert.equal(told, 'LostError');
  });

  it('are acquired and released by hand, on one server and on several', async () => {
    for (const make of [
      () => createLock({ adapter: new IoredisAdapter(clients[0] as Redis), key: 'c', retryAttempts: 0 }),
      () => createRedlock({ adapters: clients.map((each) => new IoredisAdapter(each)), key: 'd', retryAttempts: 0 }),
    ]) {
      const [lock, other] = [make(), make()];
      const handle = await lock.acquire();
      assert.equal(typeof handle.fence, 'bigint');
      await assert.rejects(other.acquire(), LockAcquisitionError);
      assert(await lock.extend(handle, 60_000));
      // The handle is all that it takes, as when another process goes on with it.
      const sent = { ...handle };
      assert(await other.extend(sent, 60_000));
      assert(await other.release(sent));
      assert(!(await other.extend(sent, 60_000)));
      assert(!(await lock.release(handle)));
      await other.release(await other.acquire());
    }
  });
});
