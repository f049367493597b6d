/**
 * The service.
 *
 *   REDIS_URL=redis://127.0.0.1:6379 BOOK=/tmp/seats.db PORT=8080 node main.js
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';
import { theatre } from './app.js';
import { Book } from './book.js';

const { REDIS_URL = 'redis://127.0.0.1:6379', BOOK = '/tmp/seats.db', PORT = '8080' } = process.env;

/** How long a bank takes. */
const BANK = Number(process.env.BANK_MS ?? 200);
/** How long requests may take to end when the service is to stop. */
const GRACE = Number(process.env.GRACE_MS ?? 10_000);

const redis = new Redis(REDIS_URL);
redis.on('error', (error) => console.error(`${REDIS_URL}: ${error.message}`));
const locks = new Leasehold(redis, { prefix: 'seat:', ttl: 10_000 });
const book = new Book(BOOK);
const authorize = (_guest, signal) => sleep(BANK, undefined, { signal });
const app = theatre({ locks, book, authorize });

process.once('SIGTERM', stop);
process.once('SIGINT', stop);
console.log(`listening on ${await app.listen({ port: Number(PORT), host: '127.0.0.1' })}`);

async function stop() {
  // Requests end as they would. Those that take too long lose their locks, and are answered 503.
  const cut = setTimeout(() => locks.close(), GRACE);
  await app.close();
  clearTimeout(cut);
  const left = await locks.close();
  if (left.length > 0) console.error(`not released: ${left.join(', ')}`);
  redis.disconnect();
  book.close();
  console.log('closed');
}
