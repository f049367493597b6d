// Takes a lock and ends as by a power failure: no finally, no goodbye.
//
//   node crash.js key owner ttl     prints the fence
import { createClient } from 'redis';

const redis = await createClient({ url: process.env.REDIS_URL }).connect();
const fence = await redis.sendCommand(['LOCK.ACQUIRE', ...process.argv.slice(2)]);
process.stdout.write(String(fence), () => process.kill(process.pid, 'SIGKILL'));
