import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import {
  AuthenticationError,
  Leasehold,
  type LeaseholdError,
  LostError,
  OutOfMemoryError,
  PermissionError,
  QueueFullError,
  ReadOnlyError,
  RefusedError,
  type Trouble,
  UnreachableError,
  WrongTypeError,
} from '../src/index.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`what a server refuses, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    before(async () => {
      server = await TestServer.start({ tcp: true });
      one = await leasehold(library, server);
    });
    after(async () => {
      await one.close();
      await server.stop();
    });

    it('a key that is no lock', async () => {
      await server.call('LPUSH', 'list', 'x');
      await assert.rejects(one.locks.tryAcquire('list'), WrongTypeError);
      await assert.rejects(one.locks.acquire('list', { wait: 5_000 }), WrongTypeError);
      await assert.rejects(one.locks.info('list'), WrongTypeError);
    });

    it('a ttl that is too long, in the words of the server', async () => {
      const refused = (error: unknown) =>
        error instanceof RefusedError && error.code === 'ERR' && /ttl/.test(error.message);
      await assert.rejects(one.locks.tryAcquire('a', { ttl: 10 ** 10 }), refused);
    });

    it('an extension that is too long, and renews the lease as before', async () => {
      const lease = await one.locks.acquire('a', { ttl: 600 });
      const begun = performance.now();
      await assert.rejects(lease.extend(10 ** 10), RefusedError);
      await eventually(() => performance.now() - begun > 1_300);
      assert(lease.validFor() > 0);
      assert.equal(await lease.release(), 'released');
    });

    it('a grant above its memory, and not a release', async () => {
      const lease = await one.locks.acquire('a');
      await server.call('CONFIG', 'SET', 'maxmemory', '1');
      await assert.rejects(one.locks.tryAcquire('b'), OutOfMemoryError);
      assert.equal(await lease.extend(), 'extended');
      assert.equal(await lease.release(), 'released');
      await server.call('CONFIG', 'SET', 'maxmemory', '0');
    });

    it('more places than there are, until patience has ended', async () => {
      await server.call('CONFIG', 'SET', 'leasehold.max-tickets', '1');
      const lease = await one.locks.acquire('a');
      const waits = one.locks.acquire('a', { wait: 20_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      const begun = performance.now();
      await assert.rejects(one.locks.acquire('a', { wait: 600 }), QueueFullError);
      assert(performance.now() - begun >= 590);
      await server.call('CONFIG', 'SET', 'leasehold.max-tickets', '1000');
      await lease.release();
      await (await waits).release();
    });

    it('a user who may not', async () => {
      await server.call('ACL', 'SETUSER', 'nobody', 'on', '>secret', '+@connection', '~*');
      const connected = await library.connect(server, { username: 'nobody', password: 'secret' });
      const troubles: Trouble[] = [];
      const locks = new Leasehold(connected.client, { onTrouble: (trouble) => troubles.push(trouble) });
      await assert.rejects(locks.tryAcquire('a'), PermissionError);
      await assert.rejects(locks.info('a'), PermissionError);
      await locks.close();
      assert.deepEqual(troubles, []);
      connected.close();
    });

    it('a lock for which there is a user of another key', async () => {
      await server.call('ACL', 'SETUSER', 'half', 'on', '>secret', '+@all', '&*', '~mine:*');
      const connected = await library.connect(server, { username: 'half', password: 'secret' });
      const locks = new Leasehold(connected.client, { prefix: 'mine:' });
      assert.equal(await (await locks.acquire('a')).release(), 'released');
      const others = new Leasehold(connected.client);
      await assert.rejects(others.acquire('a'), PermissionError);
      await Promise.all([locks.close(), others.close()]);
      connected.close();
    });

    it('a replica, until there is no more time', async () => {
      const replica = await TestServer.start({ config: ['--replicaof', `127.0.0.1 ${server.port}`] });
      await eventually(async () => /master_link_status:up/.test(await replica.control.info('replication')));
      const setup = await leasehold(library, replica, { within: 300 });
      await assert.rejects(setup.locks.tryAcquire('a'), ReadOnlyError);
      await assert.rejects(setup.locks.acquire('a', { wait: 300 }), ReadOnlyError);
      await setup.close();
      await replica.stop();
    });

    describe('tickets to whoever has no channel', () => {
      let two: Leasehold;
      let close: () => void;
      before(async () => {
        await server.call('ACL', 'SETUSER', 'mute', 'on', '>secret', '+@all', '~*', 'resetchannels');
        const connected = await library.connect(server, { username: 'mute', password: 'secret' });
        two = new Leasehold(connected.client, { waitConnections: 4, slice: 300 });
        close = connected.close;
      });
      after(async () => {
        await two.close();
        close();
      });

      it('who waits on connections then, four at a time', async () => {
        const lease = await one.locks.acquire('a', { ttl: 60_000 });
        const waits = Array.from({ length: 12 }, async () => {
          const mine = await two.acquire('a', { wait: 60_000 });
          assert.equal(await mine.release(), 'released');
        });
        await eventually(async () => (await server.waiters('a')) === 12);
        const blocked = async () => String(await server.call('CLIENT', 'LIST')).match(/ flags=\w*b/g)?.length;
        await eventually(async () => (await blocked()) === 4);
        await lease.release();
        await Promise.all(waits);
      });

      it('who asks again when the connections are killed', async () => {
        const lease = await one.locks.acquire('a', { ttl: 60_000 });
        const waits = two.acquire('a', { wait: 30_000 });
        await eventually(async () => (await server.waiters('a')) === 1);
        await server.killClients();
        await eventually(async () => (await server.waiters('a')) === 1);
        await lease.release();
        assert.equal(await (await waits).release(), 'released');
      });

      it('who leaves no place when patience ends, or the server is silent, or the wait is stopped', async () => {
        const lease = await one.locks.acquire('a', { ttl: 60_000 });
        await assert.rejects(two.acquire('a', { wait: 300 }), /held by others/);
        await eventually(async () => (await server.waiters('a')) === 0);
        const stop = new AbortController();
        const stopped = two.acquire('a', { signal: stop.signal });
        await eventually(async () => (await server.waiters('a')) === 1);
        stop.abort(new Error('stop'));
        await assert.rejects(stopped, /stop/);
        await eventually(async () => (await server.waiters('a')) === 0);
        const begun = performance.now();
        const waits = two.acquire('a', { wait: 1_000, ttl: 60_000 });
        waits.catch(() => {});
        await eventually(async () => (await server.waiters('a')) === 1);
        server.pause();
        await assert.rejects(waits);
        assert(performance.now() - begun < 1_700);
        server.goOn();
        await eventually(async () => (await server.waiters('a')) === 0);
        await lease.release();
        assert.equal(await server.call('EXISTS', 'a'), 0);
      });
    });
  });
}

describe('a password that is wrong', () => {
  it('is told as such, with ioredis', async () => {
    const server = await TestServer.start();
    await server.call('CONFIG', 'SET', 'requirepass', 'secret');
    const client = new Redis({
      path: server.socket,
      password: 'wrong',
      maxRetriesPerRequest: 1,
      retryStrategy: () => 20,
    });
    client.on('error', () => {});
    const locks = new Leasehold(client, { within: 1_000 });
    const isIt = (error: LeaseholdError) => error instanceof AuthenticationError;
    await assert.rejects(locks.tryAcquire('a'), isIt);
    await locks.close(100);
    client.disconnect();
    await server.stop();
  });

  // The default user has no password here, and may do everything.
  it('lets nothing run as another user, with node-redis', async () => {
    const server = await TestServer.start();
    await server.call('ACL', 'SETUSER', 'worker', 'on', '>secret', '~*', '&*', '+@all');
    const login = { username: 'worker', password: 'wrong', socket: { path: server.socket, tls: false as const } };
    const isIt = (error: LeaseholdError) => error instanceof AuthenticationError;
    for (let round = 0; round < 10; round++) {
      const client = createClient(login);
      client.on('error', () => {});
      void client.connect().catch(() => {});
      const locks = new Leasehold(client, { within: 1_000 });
      await assert.rejects(locks.tryAcquire('a'), isIt);
      assert.equal(await server.call('EXISTS', 'a'), 0);
      await locks.close(100);
      client.destroy();
    }
    await server.stop();
  });

  it('is told again at once, while node-redis rests before its next try', async () => {
    const server = await TestServer.start();
    await server.call('ACL', 'SETUSER', 'worker', 'on', '>secret', '~*', '&*', '+@all');
    const socket = { path: server.socket, tls: false as const, reconnectStrategy: () => 2_500 };
    const client = createClient({ username: 'worker', password: 'wrong', socket });
    client.on('error', () => {});
    void client.connect().catch(() => {});
    const locks = new Leasehold(client);
    const isIt = (error: LeaseholdError) => error instanceof AuthenticationError;
    await assert.rejects(locks.tryAcquire('a'), isIt);
    const begun = performance.now();
    await assert.rejects(locks.acquire('a', { wait: 60_000 }), isIt);
    assert(performance.now() - begun < 1_000);
    await server.call('ACL', 'SETUSER', 'worker', 'resetpass', '>wrong');
    await eventually(async () => (await locks.tryAcquire('a').catch(() => null)) !== null);
    assert.deepEqual(await locks.close(), []);
    client.destroy();
    await server.stop();
  });
});

for (const library of LIBRARIES) {
  describe(`a server that is not there, with ${library.name}`, () => {
    it('is told with the cause, for a request, a wait and a look', async () => {
      const server = await TestServer.start();
      const setup = await leasehold(library, server, { within: 700, unreachableAfter: 700 });
      await (await setup.locks.acquire('a')).release();
      await server.died();
      const isRefused = (error: Error) =>
        error instanceof UnreachableError &&
        /ECONNREFUSED|ENOENT/.test(error.message) &&
        /ECONNREFUSED|ENOENT/.test(String((error.cause as NodeJS.ErrnoException).code));
      await assert.rejects(setup.locks.tryAcquire('a'), isRefused);
      await assert.rejects(setup.locks.acquire('a'), isRefused);
      await assert.rejects(setup.locks.info('a'), isRefused);
      await setup.close();
      await server.stop();
    });

    it('is told with the cause by the lease that is lost', async () => {
      const server = await TestServer.start();
      const setup = await leasehold(library, server);
      const lease = await setup.locks.acquire('a', { ttl: 1_200 });
      await server.died();
      assert.equal(await lease.lost, 'expired');
      const { reason } = lease.signal;
      assert(reason instanceof LostError && reason.cause instanceof UnreachableError);
      assert.match(reason.message, /ECONNREFUSED|ENOENT/);
      await setup.locks.close(100);
      await setup.close();
      await server.stop();
    });
  });
}

describe('an error of ioredis that nobody listens to', () => {
  it('is printed, as without this package', async () => {
    const printed: unknown[][] = [];
    const print = console.error;
    console.error = (...words) => printed.push(words);
    const client = new Redis({ path: '/nowhere', retryStrategy: null });
    const locks = new Leasehold(client, { within: 200 });
    await assert.rejects(locks.tryAcquire('a'), /ENOENT/);
    console.error = print;
    assert.match(printed.join(), /\[ioredis\] Unhandled error event:.*ENOENT/);
    await locks.close(100);
  });
});
