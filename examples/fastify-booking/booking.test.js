import assert from 'node:assert/strict';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';
import { Child } from '../../clients/node/.build/test/support/child.js';
import { eventually } from '../../clients/node/.build/test/support/eventually.js';
import { TestServer } from '../../clients/node/.build/test/support/server.js';
import { theatre } from './app.js';
import { Book } from './book.js';

/** Longer than a test takes. */
const LONG = 60_000;

/** A bank that keeps everybody waiting: those who listen until they are stopped, the others until it answers. */
class SlowBank {
  isAsked = new Promise((resolve) => {
    this.asked = resolve;
  });
  answered = new Promise((resolve) => {
    this.answer = resolve;
  });

  whoListens = (_guest, signal) => {
    this.asked();
    return sleep(LONG, undefined, { signal });
  };

  whoIsDeaf = () => {
    this.asked();
    return this.answered;
  };
}

describe('the theatre', () => {
  let server;
  let file;
  let number = 0;
  let seat;
  let lock;
  const ends = [];
  before(async () => {
    server = await TestServer.start({ tcp: true });
    file = join(server.directory, 'seats.db');
  });
  beforeEach(() => {
    number += 1;
    seat = `${number}A`;
    lock = `seat:${seat}`;
  });
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
  });
  after(() => server.stop());

  /** With connections of its own, as another process would have. */
  function service({ authorize = async () => {}, wait = LONG, ttl = LONG, at = server } = {}) {
    const redis = new Redis({ path: at.socket }).on('error', () => {});
    const locks = new Leasehold(redis, { prefix: 'seat:', ttl, onTrouble: () => {} });
    const book = new Book(file);
    const app = theatre({ locks, book, authorize, wait });
    ends.push(async () => {
      await app.close();
      assert.deepEqual(await locks.close(), []);
      redis.disconnect();
      book.close();
    });
    return app;
  }

  const books = (app, guest) => app.inject({ method: 'POST', url: `/seats/${seat}`, payload: { guest } });

  /** The service as a process of its own, and how to book there. */
  async function program(environment) {
    const child = new Child(new URL('main.js', import.meta.url), [], {
      REDIS_URL: `redis://127.0.0.1:${server.port}`,
      BOOK: file,
      PORT: '0',
      ...environment,
    });
    ends.push(() => child.process.kill('SIGKILL'));
    const address = (await child.said('listening on ')).split(' ').pop();
    const post = (guest) =>
      fetch(`${address}/seats/${seat}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ guest }),
      });
    return { child, post };
  }

  const isHeld = async () => (await server.call('EXISTS', lock)) === 1;

  it('books a free seat, and refuses one that is taken', async () => {
    const app = service();
    const first = await books(app, 'anna');
    assert.equal(first.statusCode, 201);
    assert.deepEqual(first.json(), { seat, guest: 'anna' });
    const second = await books(app, 'ben');
    assert.equal(second.statusCode, 409);
    assert.deepEqual(second.json(), { error: `${seat} is taken` });
    assert.equal(await isHeld(), false);
  });

  it('gives a seat to one of many who ask at once, at two services', async () => {
    let inside = 0;
    let most = 0;
    const authorize = async () => {
      inside += 1;
      most = Math.max(most, inside);
      await sleep(5);
      inside -= 1;
    };
    const services = [service({ authorize }), service({ authorize })];
    const all = Array.from({ length: 20 }, (_, guest) => books(services[guest % 2], `guest ${guest}`));
    const codes = (await Promise.all(all)).map(({ statusCode }) => statusCode);
    assert.deepEqual(codes.sort(), [201, ...Array(19).fill(409)]);
    assert.equal(most, 1);
  });

  it('asks a guest to come again if others take too long', async () => {
    await server.call('LOCK.ACQUIRE', lock, 'somebody', LONG);
    const answer = await books(service({ wait: 200 }), 'anna');
    assert.equal(answer.statusCode, 503);
    assert.equal(answer.headers['retry-after'], '1');
    assert.match(answer.json().error, /held by others/);
    await eventually(async () => (await server.waiters(lock)) === 0);
  });

  it('asks a guest to come again if no server answers', async () => {
    const gone = await TestServer.start();
    await gone.stop();
    const answer = await books(service({ at: gone, wait: 500 }), 'anna');
    assert.equal(answer.statusCode, 503);
    assert.doesNotMatch(answer.json().error, /held by others/);
    assert.equal((await books(service(), 'anna')).statusCode, 201);
  });

  it('stops the work and books nothing if the lock is lost', async () => {
    const bank = new SlowBank();
    const anna = books(service({ authorize: bank.whoListens, ttl: 3_000 }), 'anna');
    await bank.isAsked;
    await server.call('DEL', lock);
    const answer = await anna;
    assert.equal(answer.statusCode, 503);
    assert.match(answer.json().error, /is lost/);
    assert.equal((await books(service(), 'ben')).statusCode, 201);
  });

  it('has its book refuse a guest whose lock was lost and who does not know it', async () => {
    const bank = new SlowBank();
    const anna = books(service({ authorize: bank.whoIsDeaf }), 'anna');
    await bank.isAsked;
    await server.call('DEL', lock);
    assert.equal((await books(service(), 'ben')).statusCode, 201);
    bank.answer();
    const late = await anna;
    assert.equal(late.statusCode, 409);
    assert.match(late.json().error, /somebody else meanwhile/);
    const book = new Book(file);
    assert.equal(book.guestOf(seat, Number.MAX_SAFE_INTEGER), 'ben');
    book.close();
  });

  it('takes a guest who is gone out of the queue', async () => {
    await server.call('LOCK.ACQUIRE', lock, 'somebody', LONG);
    const address = await service().listen({ port: 0, host: '127.0.0.1' });
    const headers = { 'content-type': 'application/json' };
    const asking = request(`${address}/seats/${seat}`, { method: 'POST', headers, agent: false });
    asking.on('error', () => {}).end('{"guest":"anna"}');
    await eventually(async () => (await server.waiters(lock)) === 1);
    asking.destroy();
    await eventually(async () => (await server.waiters(lock)) === 0);
  });

  it('finishes its requests on SIGTERM, and ends', async () => {
    const { child, post } = await program({ BANK_MS: '2000' });
    const asking = post('anna');
    await eventually(isHeld);
    child.process.kill('SIGTERM');
    assert.equal((await asking).status, 201);
    assert.equal(await child.ended(), 0);
    await child.said('closed');
    assert.equal(await isHeld(), false);
  });

  it('cuts a request that takes too long when it is to end', async () => {
    const { child, post } = await program({ BANK_MS: `${LONG}`, GRACE_MS: '100' });
    const asking = post('anna');
    await eventually(isHeld);
    child.process.kill('SIGTERM');
    const answer = await asking;
    assert.equal(answer.status, 503);
    assert.match((await answer.json()).error, /closed/);
    assert.equal(await child.ended(), 0);
    await child.said('closed');
    assert.equal(await isHeld(), false);
  });
});
