import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Leasehold } from 'leasehold';
import { createClient } from 'redis';
import { Child } from '../../clients/node/.build/test/support/child.js';
import { eventually } from '../../clients/node/.build/test/support/eventually.js';
import { TestServer } from '../../clients/node/.build/test/support/server.js';
import { JOBS, scripts, WORKERS } from './files.js';
import { Worker } from './worker.js';

/** Longer than a test takes. */
const LONG = 60_000;

const text = ({ customer, item }, number) => `${number} ${customer} ${item}`;

/** It says when it begins, and goes on until it is told to finish. */
class SlowPrinter {
  hasBegun = new Promise((resolve) => {
    this.begin = resolve;
  });
  isToFinish = new Promise((resolve) => {
    this.finish = resolve;
  });

  print = async (job, number) => {
    this.begin();
    await this.isToFinish;
    return text(job, number);
  };
}

describe('workers', () => {
  let server;
  let client;
  const ends = [];
  beforeEach(async () => {
    server = await TestServer.start({ tcp: true });
    client = await createClient({ url: url() }).connect();
  });
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
    client.destroy();
    await server.stop();
  });

  const url = () => `redis://127.0.0.1:${server.port}`;

  /** With connections of its own, as another process would have. */
  async function worker(name, print, { slots, ttl = LONG } = {}) {
    const told = [];
    const own = await createClient({ url: url(), scripts }).connect();
    const locks = new Leasehold(own, { prefix: 'customer:', ttl, onTrouble: () => {} });
    const one = new Worker({ client: own, locks, name, print, slots, leftFor: 500, tell: (line) => told.push(line) });
    const running = one.run();
    ends.push(async () => {
      one.stop();
      await running;
      assert.deepEqual(await locks.close(), []);
      own.destroy();
    });
    return { told };
  }

  const program = async (name, environment) => {
    const where = { REDIS_URL: url(), WORKER: name, LOCK_TTL_MS: '3000' };
    const child = new Child(new URL('main.js', import.meta.url), [], { ...where, ...environment });
    ends.push(() => child.process.kill('SIGKILL'));
    await child.said(`${name}: waits`);
    return child;
  };

  const add = (customer, item) => client.xAdd(JOBS, '*', { customer, item });

  /** No job is new or in work. */
  const allDone = () =>
    eventually(async () => {
      const [group] = await client.xInfoGroups(JOBS);
      return group.lag === 0 && group.pending === 0;
    }, 20_000);

  /** The invoices of a customer, by number. */
  async function invoices(customer) {
    const file = await client.hGetAll(`file:${customer}`);
    return Array.from({ length: Number(file.last) }, (_, at) => file[`invoice:${at + 1}`]);
  }

  const isHeld = async (customer) => (await client.exists(`customer:${customer}`)) === 1;

  it('number the invoices of each customer without gaps, and make each once', async () => {
    const customers = ['anna', 'ben', 'carl'];
    const items = Array.from({ length: 20 }, (_, at) => `item-${at}`);
    const inside = new Set();
    let most = 0;
    const print = async (job, number) => {
      assert(!inside.has(job.customer), 'two at a time for one customer');
      inside.add(job.customer);
      most = Math.max(most, inside.size);
      await sleep(10);
      inside.delete(job.customer);
      return text(job, number);
    };
    for (const item of items) {
      for (const customer of customers) await add(customer, item);
    }
    const workers = [await worker('one', print), await worker('two', print)];
    await allDone();
    for (const customer of customers) {
      const made = (await invoices(customer)).map((invoice) => invoice.split(' '));
      const numbers = made.map(([number]) => Number(number));
      assert.deepEqual(
        numbers,
        Array.from(items.keys(), (at) => at + 1),
      );
      assert.deepEqual(new Set(made.map(([, , item]) => item)), new Set(items));
    }
    assert.equal(most, customers.length);
    for (const { told } of workers) assert(told.length > 0, 'both of them work');
    assert.equal(workers.flatMap(({ told }) => told).length, items.length * customers.length);
  });

  it('do the jobs of others while one customer waits', async () => {
    const printer = new SlowPrinter();
    ends.push(printer.finish);
    const print = (job, number) => (job.item === 'long' ? printer.print(job, number) : text(job, number));
    await worker('one', print, { ttl: 3_000 });
    await add('anna', 'long');
    await add('anna', 'next');
    await add('ben', 'quick');
    await eventually(async () => (await invoices('ben')).length === 1);
    // It is longer than a lease, and than a job is left for.
    const end = performance.now() + 3_500;
    await eventually(() => performance.now() > end);
    assert(await isHeld('anna'));
    assert.deepEqual(await invoices('anna'), []);
    printer.finish();
    await allDone();
    assert.deepEqual(await invoices('anna'), ['1 anna long', '2 anna next']);
  });

  it('stop a job when its lock is lost, and do it again', async () => {
    const printer = new SlowPrinter();
    let isFirst = true;
    const { told } = await worker(
      'one',
      async (job, number, signal) => {
        if (!isFirst) return text(job, number);
        isFirst = false;
        printer.begin();
        return sleep(LONG, undefined, { signal });
      },
      { ttl: 3_000 },
    );
    await add('anna', 'chair');
    await printer.hasBegun;
    await client.del('customer:anna');
    await allDone();
    assert.deepEqual(await invoices('anna'), ['1 anna chair']);
    assert.match(told[0], /chair is left: .*is lost/);
  });

  it('file no invoice of a worker whose lock was lost and who does not know it', async () => {
    const [deaf, next] = [new SlowPrinter(), new SlowPrinter()];
    ends.push(deaf.finish, next.finish);
    // It has no place for a second job, which would be the same one.
    const { told } = await worker('deaf', deaf.print, { slots: 1 });
    await add('anna', 'chair');
    await deaf.hasBegun;
    await client.del('customer:anna');
    await worker('next', next.print);
    await next.hasBegun;
    deaf.finish();
    await eventually(() => told.length > 0);
    assert.deepEqual(told, ['deaf: 1 anna chair comes too late']);
    assert.deepEqual(await invoices('anna'), []);
    next.finish();
    await allDone();
    assert.deepEqual(await invoices('anna'), ['1 anna chair']);
  });

  it('do what one of them was doing that is killed', async () => {
    const first = await program('first', { PRINTER_MS: `${LONG}` });
    await add('anna', 'chair');
    await eventually(() => isHeld('anna'));
    first.process.kill('SIGKILL');
    const second = await program('second', { PRINTER_MS: '1' });
    assert.equal(await second.said('second: invoice'), 'second: invoice 1 of anna, for chair');
    await allDone();
    second.process.kill('SIGTERM');
    assert.equal(await second.ended(), 0);
    assert.equal(await isHeld('anna'), false);
  });

  it('finish on SIGTERM what they have begun', async () => {
    const child = await program('one', { PRINTER_MS: '2000' });
    await add('anna', 'chair');
    await eventually(() => isHeld('anna'));
    child.process.kill('SIGTERM');
    assert.equal(await child.ended(), 0);
    assert.deepEqual(await invoices('anna'), ['invoice 1 of anna, for chair']);
    assert.equal((await client.xPending(JOBS, WORKERS)).pending, 0);
  });
});
