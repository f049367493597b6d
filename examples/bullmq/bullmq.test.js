import assert from 'node:assert/strict';
import { afterEach, beforeEach, it } from 'node:test';
import { Redis } from 'ioredis';
import { eventually } from '../../clients/node/.build/test/support/eventually.js';
import { TestServer } from '../../clients/node/.build/test/support/server.js';
import { packer, Shop } from './orders.js';

let server;
let redis;
const ends = [];
beforeEach(async () => {
  server = await TestServer.start({ tcp: true });
  redis = new Redis(`redis://127.0.0.1:${server.port}`, { maxRetriesPerRequest: null });
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  redis.disconnect();
  await server.stop();
});

function shop() {
  const one = new Shop(redis);
  ends.push(() => one.close());
  return one;
}

/** Two workers, whose work ends when it is told to. */
function workers() {
  const begun = [];
  const pack = (data, fence) => new Promise((finish) => begun.push({ ...data, fence, finish }));
  for (let number = 0; number < 2; number++) {
    const { close } = packer(redis, pack);
    ends.push(close);
  }
  return begun;
}

it('an order is locked from the moment in which it is placed until it is packed', async () => {
  const place = shop();
  assert(await place.place('1', 'anna'));
  assert.equal(await place.place('1', 'anna'), null);
  const [fence] = String(await server.call('GET', 'order:1')).split(':');
  const begun = workers();
  await eventually(() => begun.length === 1);
  assert.equal(begun[0].fence, BigInt(fence));
  assert.equal(await place.place('1', 'anna'), null);
  begun[0].finish();
  await eventually(async () => (await server.call('EXISTS', 'order:1')) === 0);
  assert(await place.place('1', 'anna'));
  await eventually(() => begun.length === 2);
  assert(begun[1].fence > begun[0].fence);
  begun[1].finish();
});

it('the orders of a customer are packed one at a time, and those of others beside them', async () => {
  const place = shop();
  for (const order of ['1', '2', '3']) await place.place(order, 'anna');
  await place.place('4', 'ben');
  const begun = workers();
  await eventually(() => begun.length === 2);
  assert.deepEqual(begun.map(({ customer }) => customer).sort(), ['anna', 'ben']);
  await eventually(async () => (await server.waiters('customer:anna')) === 2);
  assert.equal(begun.length, 2);
  for (let number = 0; number < 4; number++) {
    await eventually(() => begun.length > number);
    begun[number].finish();
  }
  await eventually(async () => (await server.call('EXISTS', 'order:1', 'order:2', 'order:3', 'order:4')) === 0);
});
