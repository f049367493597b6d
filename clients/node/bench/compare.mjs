// Sixteen workers of one program that want one lock all the time, and a single one that nobody disturbs: by this package,
// by what one would use instead, and by hand with bare commands over the same client, which is the bound.
//
//   npm install --no-save redlock@5.0.0-beta.2 redlock-universal@0.8.5
//   LEASEHOLD_MODULE=… node bench/compare.mjs           both tables, in some minutes
//   … node bench/compare.mjs --rounds 1 --millis 200    whether it runs
//   … node bench/compare.mjs --check                    fails where a ratio is a fifth below its goal
//
// It starts its servers, with LEASEHOLD_SERVER unless that is redis-server. The contenders take turns, round by round, and
// the medians are shown. All have the settings that their makers chose, but for trying until they have the lock.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';

const { values } = parseArgs({
  options: { rounds: { type: 'string' }, millis: { type: 'string' }, check: { type: 'boolean' } },
});
const ROUNDS = Number(values.rounds ?? 7);
const MILLIS = Number(values.millis ?? 1_500);
const WORKERS = 16;
const TTL = 10_000;

/** Grants a second, or pairs: of the package with the module, divided by those of another one. */
const GOALS = {
  contended: { 'redlock 5': 1.5, 'two bare commands': 0.8 },
  alone: { 'redlock 5': 1, 'two bare commands': 0.75 },
};
const OURS = 'leasehold, with the module';

const directory = mkdtempSync(join(tmpdir(), 'leasehold-compared-'));
const servers = [];

function serve(name, ...more) {
  const socket = join(directory, name);
  const where = ['--port', '0', '--unixsocket', socket, '--dir', directory, '--save', ''];
  servers.push(spawn(process.env.LEASEHOLD_SERVER ?? 'redis-server', [...where, ...more], { stdio: 'ignore' }));
  return socket;
}

/** The message is the grant, and nothing is looked after: no renewal, no limit, no loss, no lost message. */
async function byHand(redis, socket) {
  const channel = 'by-hand';
  const waiting = new Map();
  const subscription = new Redis(socket);
  await subscription.subscribe(channel);
  subscription.on('message', (_, message) => {
    const [fence, , owner] = message.split(' ');
    waiting.get(owner)?.(fence);
  });
  let count = 0;
  return {
    async run(work) {
      const owner = `by-hand-${count++}`;
      const told = new Promise((resolve) => waiting.set(owner, resolve));
      const words = ['compared', owner, TTL, 'TICKET', 15_000, 'NOTIFY', channel];
      const fence = (await redis.call('LOCK.ACQUIRE', ...words)) ?? (await told);
      waiting.delete(owner);
      await work();
      await redis.call('LOCK.RELEASE', 'compared', owner, fence);
    },
    async pair() {
      const owner = `by-hand-${count++}`;
      const fence = await redis.call('LOCK.ACQUIRE', 'alone', owner, TTL);
      await redis.call('LOCK.RELEASE', 'alone', owner, fence);
    },
    end: () => subscription.disconnect(),
  };
}

async function contenders() {
  const withModule = serve('with', '--loadmodule', process.env.LEASEHOLD_MODULE);
  const without = serve('without');
  const found = [];
  const add = async (name, socket, make) => {
    const redis = new Redis(socket, { retryStrategy: () => 50 });
    redis.on('error', () => {});
    found.push({ name, redis, observer: new Redis(socket), ...(await make(redis, socket)) });
  };
  const leasehold = (redis) => {
    const locks = new Leasehold(redis, { ttl: TTL });
    const pair = async () => (await locks.acquire('alone')).release();
    return { run: (work) => locks.with('compared', work), pair, end: () => locks.close() };
  };
  await add(OURS, withModule, leasehold);
  await add('two bare commands', withModule, byHand);
  await add('leasehold, without it', without, leasehold);
  const { default: Redlock } = await import('redlock');
  await add('redlock 5', without, (redis) => {
    const redlock = new Redlock([redis], { retryCount: -1 });
    const pair = async () => (await redlock.acquire(['alone'], TTL)).release();
    return { run: (work) => redlock.using(['compared'], TTL, work), pair, end: () => {} };
  });
  const universal = await import('redlock-universal').catch(() => undefined);
  if (universal === undefined) return found;
  await add('redlock-universal', without, (redis) => {
    const adapter = new universal.IoredisAdapter(redis);
    const lock = (key) => universal.createLock({ adapter, key, ttl: TTL, retryAttempts: 1_000_000 });
    const pair = async () => {
      const one = lock('alone');
      await one.release(await one.acquire());
    };
    return { run: (work) => lock('compared').using(work), pair, end: () => {} };
  });
  return found;
}

/** How many commands the server has run, without those that look. */
async function commands(observer) {
  const stats = await observer.info('commandstats');
  const calls = [...stats.matchAll(/cmdstat_([^:]*):calls=(\d+)/g)];
  return calls
    .filter(([, name]) => !/^(info|cmdstat|client|hello|subscribe)/.test(name))
    .reduce((sum, [, , n]) => sum + Number(n), 0);
}

async function contended({ redis, observer, run }) {
  const before = await commands(observer);
  const cpu = process.cpuUsage();
  const begun = performance.now();
  const end = begun + MILLIS;
  let [grants, longest, inside] = [0, 0, 0];
  const worker = async () => {
    while (performance.now() < end) {
      const asked = performance.now();
      await run(async () => {
        longest = Math.max(longest, performance.now() - asked);
        if (++inside > 1) throw new Error('two at a time');
        await redis.incr('done');
        inside--;
        grants++;
      });
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
  const { user, system } = process.cpuUsage(cpu);
  const rate = (grants / (performance.now() - begun)) * 1_000;
  // The command of the work itself is not the lock's.
  const each = ((await commands(observer)) - before - grants) / grants;
  return { rate, longest, cpu: (user + system) / grants, each };
}

async function alone({ pair }) {
  const cpu = process.cpuUsage();
  const begun = performance.now();
  let pairs = 0;
  while (performance.now() < begun + MILLIS / 2) {
    await pair();
    pairs++;
  }
  const { user, system } = process.cpuUsage(cpu);
  return { rate: (pairs / (performance.now() - begun)) * 1_000, cpu: (user + system) / pairs };
}

const median = (numbers) => numbers.sort((one, other) => one - other)[Math.floor(numbers.length / 2)];

try {
  const all = await contenders();
  const came = { contended: new Map(), alone: new Map() };
  for (const measured of Object.values(came)) for (const { name } of all) measured.set(name, []);
  // The first round is for the compiler.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const contender of all) {
      for (const [what, measure] of Object.entries({ contended, alone })) {
        const one = await measure(contender);
        if (round > 0) came[what].get(contender.name).push(one);
      }
    }
  }
  const of = (what, name, field) => median(came[what].get(name).map((one) => one[field]));
  console.log('| 16 workers, one lock | grants a second | longest wait | client CPU a grant | commands a grant |');
  console.log('|---|---:|---:|---:|---:|');
  for (const { name } of all) {
    const [rate, longest, cpu, each] = ['rate', 'longest', 'cpu', 'each'].map((field) => of('contended', name, field));
    console.log(
      `| ${name} | ${rate.toFixed(0)} | ${longest.toFixed(0)} ms | ${cpu.toFixed(0)} µs | ${each.toFixed(1)} |`,
    );
  }
  console.log('\n| alone, acquire and release | pairs a second | client CPU a pair |');
  console.log('|---|---:|---:|');
  for (const { name } of all) {
    console.log(`| ${name} | ${of('alone', name, 'rate').toFixed(0)} | ${of('alone', name, 'cpu').toFixed(0)} µs |`);
  }
  console.log();
  for (const [what, goals] of Object.entries(GOALS)) {
    for (const [name, goal] of Object.entries(goals)) {
      // Of the same round: what else the machine does then slows both.
      const ratios = came[what].get(OURS).map(({ rate }, round) => rate / came[what].get(name)[round].rate);
      const ratio = median(ratios);
      console.log(`${what}: ${ratio.toFixed(2)} of ${name}, and the goal is ${goal}`);
      if (values.check && ratio < goal * 0.8) process.exitCode = 1;
    }
  }
  for (const { redis, observer, end } of all) {
    await end();
    redis.disconnect();
    observer.disconnect();
  }
} finally {
  for (const server of servers) server.kill('SIGKILL');
  rmSync(directory, { recursive: true, force: true });
}
