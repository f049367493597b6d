// Sixteen workers of one program want one lock all the time, by this package and by what one would use instead.
//
//   npm install --no-save redlock@5.0.0-beta.2 redlock-universal
//   node bench/compare.mjs redis://127.0.0.1:6379 redis://127.0.0.1:6380     with the module, and without it
//
// The contenders take turns, round by round, and the median of the rounds is shown. All of them have the settings that
// their makers chose, but for trying until they have the lock.
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';

const [withModule, without] = process.argv.slice(2);
const WORKERS = 16;
const ROUNDS = 5;
const MILLIS = 4_000;
const TTL = 10_000;

async function contenders() {
  const found = [];
  const add = (name, url, make) => {
    const redis = new Redis(url);
    found.push({ name, redis, observer: new Redis(url), once: make(redis) });
  };
  const leasehold = (redis) => {
    const locks = new Leasehold(redis, { ttl: TTL });
    return { run: (work) => locks.with('compared', work), end: () => locks.close() };
  };
  add('leasehold, with the module', withModule, leasehold);
  add('leasehold, without it', without, leasehold);
  const { default: Redlock } = await import('redlock');
  add('redlock 5', without, (redis) => {
    const redlock = new Redlock([redis], { retryCount: -1 });
    return { run: (work) => redlock.using(['compared'], TTL, work), end: () => {} };
  });
  const { createLock, IoredisAdapter } = await import('redlock-universal');
  add('redlock-universal', without, (redis) => {
    const settings = { adapter: new IoredisAdapter(redis), key: 'compared', ttl: TTL, retryAttempts: 1_000_000 };
    return { run: (work) => createLock(settings).using(work), end: () => {} };
  });
  return found;
}

/** How many commands the server has run, without those that look. */
async function commands(observer) {
  const stats = await observer.info('commandstats');
  const calls = [...stats.matchAll(/cmdstat_([^:]*):calls=(\d+)/g)];
  return calls
    .filter(([, name]) => !/^(info|cmdstat|client|hello)/.test(name))
    .reduce((sum, [, , n]) => sum + Number(n), 0);
}

async function round({ redis, observer, once }) {
  const before = await commands(observer);
  const end = performance.now() + MILLIS;
  let sections = 0;
  let longest = 0;
  let inside = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const asked = performance.now();
      await once.run(async () => {
        longest = Math.max(longest, performance.now() - asked);
        if (++inside > 1) throw new Error('two at a time');
        await redis.incr('done');
        inside--;
        sections++;
      });
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
  // The command of the work itself is not the lock's.
  const each = ((await commands(observer)) - before - sections) / sections;
  return { throughput: (sections / MILLIS) * 1_000, longest, each };
}

const median = (numbers) => numbers.sort((one, other) => one - other)[Math.floor(numbers.length / 2)];

const all = await contenders();
const rounds = new Map(all.map(({ name }) => [name, []]));
for (let count = 0; count < ROUNDS; count++) {
  for (const contender of all) rounds.get(contender.name).push(await round(contender));
}
console.log('| 16 workers, one lock | sections a second | longest wait | commands for each |');
console.log('|---|---|---|---|');
for (const [name, came] of rounds) {
  const of = (field) => median(came.map((one) => one[field]));
  console.log(
    `| ${name} | ${of('throughput').toFixed(0)} | ${of('longest').toFixed(0)} ms | ${of('each').toFixed(1)} |`,
  );
}
for (const { redis, observer, once } of all) {
  await once.end();
  redis.disconnect();
  observer.disconnect();
}
