// node-redlock and Leasehold on one lock: npm ci && npm start, on a server of `make run`.
import Redis from 'ioredis';
import Redlock from 'redlock';
import { randomUUID } from 'node:crypto';

const URL = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const NAME = 'lock:table:3';
const TTL = 5000;
const SHORT = 300;
const PATIENCE = 10_000;

const redis = new Redis(URL);
// A wait stalls its connection.
const queue = redis.duplicate();

// --- the old client: this is what you have ----------------------------------------------------------

const redlock = new Redlock([redis], { retryCount: 0 });

// --- the Leasehold client: this is what it becomes --------------------------------------------------

/** The fence, or null if the lock is held for as long as the patience lasts. */
async function acquire(owner, patience = 0) {
  const request = ['LOCK.ACQUIRE', NAME, owner, TTL];
  const end = performance.now() + patience;
  for (;;) {
    const asked = performance.now();
    const fence = await redis.call(...request);
    // If the reply is read so late that the lease may be over, ask again.
    if (fence !== null && performance.now() < asked + TTL) return fence;
    const left = Math.ceil(end - performance.now());
    if (fence === null && left <= 0) return null;
    if (fence === null) await queue.call(...request, 'BLOCK', left); // a grant is confirmed by asking again
  }
}

const extend = (owner, fence) => redis.call('LOCK.EXTEND', NAME, owner, TTL, fence);
const release = (owner, fence) => redis.call('LOCK.RELEASE', NAME, owner, fence);

// --- the story ------------------------------------------------------------------------------------

function tell(who, what, outcome) {
  console.log(`  ${who.padEnd(6)} ${what.padEnd(42)} ${outcome}`);
}

const attempt = (work) => work.then(() => 'done', (error) => error.name);

async function story() {
  const nina = `${process.pid}:${randomUUID()}`;

  console.log('node-redlock holds the lock');
  let olga = await redlock.acquire([NAME], TTL);
  tell('olga', 'redlock.acquire', 'done');
  tell('nina', 'LOCK.ACQUIRE', await acquire(nina));
  tell('nina', 'LOCK.RELEASE of a lock that is not hers', await release(nina, 0));
  olga = await olga.extend(TTL);
  tell('olga', 'lock.extend', 'done');
  tell('olga', 'lock.release', await attempt(olga.release()));

  console.log('Leasehold holds the lock');
  let fence = await acquire(nina);
  tell('nina', 'LOCK.ACQUIRE', fence);
  tell('olga', 'redlock.acquire', await attempt(redlock.acquire([NAME], TTL)));
  tell('nina', 'LOCK.EXTEND', await extend(nina, fence));
  tell('nina', 'LOCK.RELEASE', await release(nina, fence));

  console.log('node-redlock holds the lock, Leasehold waits for it');
  olga = await redlock.acquire([NAME], TTL);
  tell('olga', 'redlock.acquire', 'done');
  const granted = acquire(nina, PATIENCE);
  while ((await redis.call('LOCK.WAITERS', NAME)).length === 0);
  tell('olga', 'lock.release', await attempt(olga.release()));
  fence = await granted;
  tell('nina', `LOCK.ACQUIRE BLOCK ${PATIENCE}`, fence);
  tell('nina', 'LOCK.RELEASE', await release(nina, fence));

  console.log('node-redlock is too slow');
  olga = await redlock.acquire([NAME], SHORT);
  tell('olga', 'redlock.acquire', 'done');
  fence = await acquire(nina, PATIENCE);
  tell('nina', `LOCK.ACQUIRE BLOCK ${PATIENCE}`, fence);
  tell('olga', 'lock.release of a lock that is not hers', await attempt(olga.release()));
  tell('nina', 'LOCK.RELEASE', await release(nina, fence));
}

try {
  await redis.call('LOCK.HELP');
} catch {
  console.error(`No server with Leasehold at ${URL}. Start one: make run`);
  process.exit(1);
}
await story();
process.exit(0);
