// Takes a lock and ends as by a power failure: no finally, no goodbye.
//
//   node crash.js key owner ttl     prints the fence
import Redis from 'ioredis';

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379');
const fence = await redis.call('LOCK.ACQUIRE', ...process.argv.slice(2));
process.stdout.write(String(fence), () => process.kill(process.pid, 'SIGKILL'));
