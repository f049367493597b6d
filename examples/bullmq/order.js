/** Places orders: node order.js 4711=anna 4712=ben */
import { Redis } from 'ioredis';
import { Shop } from './orders.js';

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379', { maxRetriesPerRequest: null });
const shop = new Shop(redis);
for (const word of process.argv.slice(2)) {
  const [order, customer] = word.split('=');
  const job = await shop.place(order, customer);
  console.log(job === null ? `${order} is being packed` : `placed ${order}`);
}
await shop.close();
redis.disconnect();
