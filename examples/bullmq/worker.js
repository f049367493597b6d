/** A worker; start several: REDIS_URL=redis://127.0.0.1:6379 node worker.js */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { packer } from './orders.js';

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379', { maxRetriesPerRequest: null });
const { close } = packer(redis, async ({ order, customer }, fence, signal) => {
  await sleep(1_000, undefined, { signal });
  console.log(`packed ${order} for ${customer} (${fence})`);
});
process.once('SIGINT', async () => {
  await close();
  redis.disconnect();
});
