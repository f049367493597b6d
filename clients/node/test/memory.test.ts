/** Locks in memory. What they do is in the list of clients/conformance; this is how programs get them. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Leasehold } from '../src/index.js';
import { MemoryLocks } from '../src/testing.js';
import { eventually } from './support/eventually.js';

it('takes turns without a server', async () => {
  await using locks = new MemoryLocks();
  await using other = new MemoryLocks({ beside: locks });
  assert(locks instanceof Leasehold);
  const held = await other.acquire('printer');
  assert.equal(await locks.tryAcquire('printer'), null);
  const order: number[] = [];
  const fences: bigint[] = [held.fence];
  const works = [];
  for (const number of [0, 1, 2, 3]) {
    works.push(
      locks.with('printer', { wait: 60_000 }, async ({ fence }) => {
        order.push(number);
        fences.push(fence);
      }),
    );
    await eventually(async () => (await other.waiters('printer')).length === works.length);
  }
  await held.release();
  await Promise.all(works);
  assert.deepEqual(order, [0, 1, 2, 3]);
  assert.deepEqual(fences, [...new Set(fences)].sort());
});

it('ends a lease that is not renewed, and renews others', async () => {
  await using locks = new MemoryLocks({ ttl: 150 });
  const lease = await locks.acquire('printer', { renew: false });
  const next = await locks.acquire('printer', { wait: 60_000 });
  assert(lease.signal.aborted);
  assert.equal(await locks.acquire('printer', { wait: 600 }).catch(({ name }) => name), 'BusyError');
  assert(!next.signal.aborted);
});

it('keeps what guarded commands write', async () => {
  await using locks = new MemoryLocks();
  const lease = await locks.acquire('printer');
  assert.equal(await lease.guard('SET', 'page', 17), 'OK');
  assert.equal(await lease.guard('INCR', 'page'), 18);
  await lease.release();
  await assert.rejects(lease.guard('SET', 'page', 19));
});
