/** Each step that a lock takes is told of. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { BusyError, type LockEvent, LostError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`the steps of a lock, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let told: LockEvent[] = [];
    before(async () => {
      server = await TestServer.start();
      one = await leasehold(library, server, { onEvent: (event) => told.push(event) });
    });
    after(async () => {
      await one.close();
      await server.stop();
    });
    const steps = () => told.map(({ step }) => step).join(' ');

    it('are told with its name, owner, fence and times', async () => {
      told = [];
      const first = await one.locks.acquire('a');
      const waits = one.locks.acquire('a', { wait: 20_000 });
      await eventually(() => told.some(({ step }) => step === 'queued'));
      const begun = performance.now();
      await eventually(() => performance.now() > begun + 30);
      await first.release();
      const second = await waits;
      await second.extend();
      await second.release();
      assert.equal(steps(), 'asked granted asked queued released granted renewed released');
      assert(told.every(({ name, after }) => name === 'a' && after >= 0));
      const [, , , queued, , granted, renewed, released] = told;
      assert.deepEqual([queued?.owner, queued?.fence], [second.owner, undefined]);
      assert.deepEqual([granted?.owner, granted?.fence], [second.owner, second.fence]);
      assert(granted && granted.after >= 30);
      assert(renewed && renewed.after < granted.after && renewed.fence === second.fence);
      assert.equal(released?.outcome, 'released');
    });

    it('are told when it is refused, lost, or left', async () => {
      const held = await one.locks.acquire('a');
      told = [];
      assert.equal(await one.locks.tryAcquire('a'), null);
      await assert.rejects(one.locks.acquire('a', { wait: 50 }), BusyError);
      await held.release();
      assert.equal(steps(), 'asked refused asked queued refused released');
      const left = await one.locks.acquire('a', { ttl: 100 });
      told = [];
      left.detach();
      const lease = await one.locks.acquire('b', { ttl: 60_000 });
      await server.call('DEL', 'b');
      await lease.extend();
      assert.equal(await lease.release(), 'late');
      assert.equal(steps(), 'released asked granted lost released');
      assert.deepEqual(
        told.map(({ outcome }) => outcome),
        ['later', undefined, undefined, 'taken', 'late'],
      );
      assert(told[3]?.error instanceof LostError);
      one.troubles.length = 0;
    });

    it('do not matter to a lock if they are told to somebody who throws', async () => {
      const warnings: Error[] = [];
      const warned = (warning: Error) => warnings.push(warning);
      process.on('warning', warned);
      const throws = () => {
        throw new Error('not ready for this');
      };
      const { locks, close } = await leasehold(library, server, { onEvent: throws });
      assert.equal(await (await locks.acquire('c')).release(), 'released');
      await eventually(() => warnings.length >= 3);
      assert(warnings.every(({ message }) => message === 'not ready for this'));
      process.off('warning', warned);
      await close();
    });
  });
}
