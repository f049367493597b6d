/** Holds a lock, waits for another, and closes: then nothing keeps the process alive. */
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { ClosedError, Leasehold } from '../../src/index.js';

const [library = '', path = '', how = ''] = process.argv.slice(2);
const client = library === 'ioredis' ? new Redis({ path }) : createClient({ socket: { path, tls: false } });
client.on('error', () => {});
if (!(client instanceof Redis)) await client.connect();
const locks = new Leasehold(client, { onTrouble: () => {} });
await locks.acquire('mine', { ttl: 60_000 });
const waits = locks.acquire('theirs');
waits.catch((error) => console.log(error instanceof ClosedError ? 'closed' : `failed ${error}`));
console.log('waits');
process.stdin.once('data', async () => {
  process.stdin.destroy();
  if (how === 'close') console.log(`left ${JSON.stringify(await locks.close())}`);
  if (client instanceof Redis) client.disconnect();
  else client.destroy();
});
