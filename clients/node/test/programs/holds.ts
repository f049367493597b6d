/** Holds a lock, and says what it knows of it whenever a line comes in. */
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { Leasehold } from '../../src/index.js';

const [library = '', path = '', ttl = '', grace] = process.argv.slice(2);
const client = library === 'ioredis' ? new Redis({ path }) : createClient({ socket: { path, tls: false } });
client.on('error', () => {});
if (!(client instanceof Redis)) await client.connect();
const locks = new Leasehold(client, { onTrouble: () => {} });
const lease = await locks.acquire('a', { ttl: Number(ttl), ephemeral: grace === undefined ? grace : Number(grace) });
const { signal } = lease;
console.log('held');
process.stdin.on('data', () => {
  // The first thing that this program does when it goes on.
  console.log(`aborted ${signal.aborted} valid ${lease.validFor()}`);
});
