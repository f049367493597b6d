/**
 * A job that cron starts on several machines at the same time of day, and that one of them does.
 *
 *   0 3 * * *  REDIS_URL=redis://redis:6379 node nightly.js
 *
 * The lock is renewed while the job runs, and stays held for longer than the clocks of the machines can differ: the first
 * one may be done, or may have crashed, before the clock of another one strikes three. A job that hangs does not keep the
 * lock for ever: after `BOX_MS` it is not renewed any more, and the job is stopped.
 */
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';

const { REDIS_URL = 'redis://127.0.0.1:6379', HOST: host = hostname() } = process.env;

/** The clocks of the machines differ by less. In your own program these would be minutes, and the box an hour or two. */
const CLOCKS_DIFFER = Number(process.env.CLOCKS_MS ?? 3_000);
const BOX = Number(process.env.BOX_MS ?? 10_000);
const JOB = Number(process.env.JOB_MS ?? 300);

// Where no server answers, cron mails that: it does not wait for one.
const redis = new Redis(REDIS_URL);
redis.on('error', () => {});
const locks = new Leasehold(redis, { ttl: CLOCKS_DIFFER });
try {
  await tonight();
} catch (error) {
  console.error(`${host}: ${error.cause?.message ?? error.message}`);
  process.exitCode = 1;
} finally {
  await locks.close();
  redis.disconnect();
}

async function tonight() {
  const lease = await locks.tryAcquire('nightly', { holdAtLeast: CLOCKS_DIFFER, renew: BOX });
  if (lease === null) return console.log(`${host}: another machine does the job tonight`);
  try {
    console.log(`${host}: begins the job, with fence ${lease.fence}`);
    await job(lease);
    console.log(`${host}: the job is done`);
  } finally {
    await lease.release();
  }
}

/** The work. It gives the fence along with what it writes, and stops when the lock is lost. */
async function job({ signal }) {
  await sleep(JOB, undefined, { signal });
}
