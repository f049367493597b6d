/**
 * Adds jobs: for each customer an invoice for an item.
 *
 *   node add.js anna=chair ben=table anna=lamp
 */
import { createClient } from 'redis';
import { JOBS } from './files.js';

const client = await createClient({ url: process.env.REDIS_URL ?? 'redis://127.0.0.1:6379' }).connect();
for (const word of process.argv.slice(2)) {
  const [customer, item] = word.split('=');
  await client.xAdd(JOBS, '*', { customer, item });
}
client.destroy();
