import assert from 'node:assert/strict';
import { rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { connectionOf } from '../src/adapters/choose.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { Gate } from './support/gate.js';
import { TestServer } from './support/server.js';

async function channels(server: TestServer): Promise<string[]> {
  return (await server.call('PUBSUB', 'CHANNELS', 'leasehold:*')) as string[];
}

for (const library of LIBRARIES) {
  describe(`being told of grants, with ${library.name}`, () => {
    let server: TestServer;
    let other: Setup;
    before(async () => {
      server = await TestServer.start();
      other = await leasehold(library, server);
    });
    after(async () => {
      await other.close();
      await server.stop();
    });

    it('whoever waits is granted the lock in time where a connection for being told of it is never answered', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer);
      await (await through.locks.acquire('warm')).release();
      const told = ((await server.call('PUBSUB', 'CHANNELS')) as string[]).length;
      gate.ignore();
      const lease = await other.locks.acquire('a');
      const waiting = through.locks.acquire('a', { wait: 900 });
      waiting.catch(() => {});
      await eventually(async () => (await server.waiters('a')) === 1, 900);
      assert.equal(await lease.release(), 'released');
      assert.equal(await (await waiting).release(), 'released');
      // It is told of grants again as soon as that is possible.
      const second = await other.locks.acquire('a');
      const patient = through.locks.acquire('a', { wait: 20_000 });
      gate.mend();
      await eventually(async () => ((await server.call('PUBSUB', 'CHANNELS')) as string[]).length > told, 15_000);
      assert.equal(await second.release(), 'released');
      assert.equal(await (await patient).release(), 'released');
      await through.close();
      gate.stop();
    });

    it('a connection is not left behind that was still being opened at the end', async () => {
      const lone = await TestServer.start();
      const { client, close } = await library.connect(lone);
      const connections = async () => ((await lone.call('CLIENT', 'LIST')) as string).trim().split('\n').length;
      await connectionOf(client).send('c', ['PING']);
      const usual = await connections();
      const deaf = { hear() {}, ended() {} };
      for (let turns = 0; turns < 12; turns++) {
        const connection = connectionOf(client);
        const listening = connection.listen('c', 'leasehold:c', 2_000, deaf).catch(() => {});
        for (let turn = 0; turn < turns; turn++) await Promise.resolve();
        connection.close();
        await listening;
      }
      // The server has accepted each connection that was begun before this one.
      const last = connectionOf(client);
      await last.listen('c', 'leasehold:c', 2_000, deaf);
      await eventually(async () => (await connections()) === usual + 1, 5_000);
      last.close();
      close();
      await lone.stop();
    });

    it('whoever waits is told by the server that the address leads to, and by no former one', async () => {
      const next = await TestServer.start();
      const socket = join(server.directory, 'address');
      symlinkSync(server.socket, socket);
      const through = await leasehold(library, { socket } as TestServer);
      const there = await leasehold(library, next);
      const first = await other.locks.acquire('b');
      const busy = through.locks.acquire('b', { wait: 10_000 });
      await eventually(async () => (await channels(server)).length === 1, 5_000);
      assert.equal(await first.release(), 'released');
      assert.equal(await (await busy).release(), 'released');
      rmSync(socket);
      symlinkSync(next.socket, socket);
      await server.call('CLIENT', 'KILL', 'TYPE', 'normal');
      const second = await there.locks.acquire('b');
      const waiting = through.locks.acquire('b', { wait: 20_000 });
      await eventually(async () => (await channels(next)).length === 1, 5_000);
      assert.deepEqual(await channels(server), []);
      assert.equal(await second.release(), 'released');
      assert.equal(await (await waiting).release(), 'released');
      await through.close();
      await there.close();
      await next.stop();
    });
  });
}
