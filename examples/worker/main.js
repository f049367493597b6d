/**
 * A worker; start several.
 *
 *   REDIS_URL=redis://127.0.0.1:6379 WORKER=one node main.js
 */
import { hostname } from 'node:os';
import { Leasehold } from 'leasehold';
import { createClient } from 'redis';
import { scripts } from './files.js';
import { print, Worker } from './worker.js';

const { REDIS_URL = 'redis://127.0.0.1:6379', WORKER: name = `${hostname()}:${process.pid}` } = process.env;

/** How long a customer waits for the next worker after one has died. */
const TTL = Number(process.env.LOCK_TTL_MS ?? 10_000);
/** How long jobs may take to end when the worker is to stop. */
const GRACE = Number(process.env.GRACE_MS ?? 10_000);

const client = createClient({ url: REDIS_URL, scripts });
client.on('error', (error) => console.error(`${REDIS_URL}: ${error.message}`));
await client.connect();
const locks = new Leasehold(client, { prefix: 'customer:', ttl: TTL });
const worker = new Worker({ client, locks, name, print, leftFor: TTL });

process.once('SIGTERM', stop);
process.once('SIGINT', stop);
console.log(`${name}: waits for jobs`);
await worker.run();
const left = await locks.close();
if (left.length > 0) console.error(`not released: ${left.join(', ')}`);
client.destroy();

function stop() {
  worker.stop();
  // Jobs end as they would. Those that take too long lose their locks, and are left to other workers.
  setTimeout(() => locks.close(), GRACE).unref();
}
