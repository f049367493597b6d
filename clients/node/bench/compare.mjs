// Sixteen workers of one program that want one lock all the time, and a single one that nobody disturbs: by this package,
// by what one would use instead, and by hand with bare commands over the same client, which is the bound.
//
//   npm install --no-save redlock@5.0.0-beta.2 redlock-universal@0.8.5
//   LEASEHOLD_MODULE=… node bench/compare.mjs           both tables, in some minutes
//   … node bench/compare.mjs --rounds 1 --millis 200    whether it runs
//   … node bench/compare.mjs --check                    fails where a ratio is a fifth below its goal
//
// It starts its servers, with LEASEHOLD_SERVER unless that is redis-server. Each contender is a process of its own. They take
// turns, round by round, and the medians are shown. All have the settings that their makers chose, but for trying until they have the lock.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';

const { values } = parseArgs({
  options: {
    ...{ rounds: { type: 'string' }, millis: { type: 'string' }, check: { type: 'boolean' } },
    // A contender, and the socket of its server.
    ...{ contender: { type: 'string' }, socket: { type: 'string' } },
  },
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
  };
}

const leasehold = (redis) => {
  const locks = new Leasehold(redis, { ttl: TTL });
  const pair = async () => (await locks.acquire('alone')).release();
  return { run: (work) => locks.with('compared', work), pair };
};

/** Whether its server has the module, and what it does. */
const CONTENDERS = {
  [OURS]: { hasModule: true, make: leasehold },
  'two bare commands': { hasModule: true, make: byHand },
  'leasehold, without it': { hasModule: false, make: leasehold },
  'redlock 5': {
    hasModule: false,
    async make(redis) {
      const { default: Redlock } = await import('redlock');
      const locks = new Redlock([redis], { retryCount: -1 });
      const pair = async () => (await locks.acquire(['alone'], TTL)).release();
      return { run: (work) => locks.using(['compared'], TTL, work), pair };
    },
  },
  'redlock-universal': {
    hasModule: false,
    async make(redis) {
      const { createLock, IoredisAdapter } = await import('redlock-universal');
      const adapter = new IoredisAdapter(redis);
      const lock = (key) => createLock({ adapter, key, ttl: TTL, retryAttempts: 1_000_000 });
      const pair = async () => {
        const one = lock('alone');
        await one.release(await one.acquire());
      };
      return { run: (work) => lock('compared').using(work), pair };
    },
  },
};

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

/** In a process of its own: measures when it is told to, until it is killed. */
async function contend(name, socket) {
  const redis = new Redis(socket, { retryStrategy: () => 50 });
  redis.on('error', () => {});
  const observer = redis.duplicate();
  observer.on('error', () => {});
  await observer.ping();
  const made = await CONTENDERS[name].make(redis, socket);
  const measures = { contended, alone };
  process.on('message', async (what) => process.send(await measures[what]({ redis, observer, ...made })));
  process.send('ready');
}

/** One that is not installed is left out. */
async function start(name, socket) {
  const child = fork(fileURLToPath(import.meta.url), [
    ...process.argv.slice(2),
    '--contender',
    name,
    '--socket',
    socket,
  ]);
  const said = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  if (said[0] !== 'ready') return undefined;
  const measure = async (what) => {
    child.send(what);
    const [measured] = await once(child, 'message');
    return measured;
  };
  return { name, child, measure };
}

const median = (numbers) => numbers.sort((one, other) => one - other)[Math.floor(numbers.length / 2)];

function show(all, came) {
  const of = (what, name, field) => median(came[what].get(name).map((one) => one[field]));
  console.log('| 16 workers, one lock | grants a second | longest wait | client CPU a grant | commands a grant |');
  console.log('|---|---:|---:|---:|---:|');
  for (const { name } of all) {
    const [rate, longest, cpu, each] = ['rate', 'longest', 'cpu', 'each'].map((field) => of('contended', name, field));
    const figures = [rate.toFixed(0), `${longest.toFixed(0)} ms`, `${cpu.toFixed(0)} µs`, each.toFixed(1)];
    console.log(`| ${name} | ${figures.join(' | ')} |`);
  }
  console.log('\n| alone, acquire and release | pairs a second | client CPU a pair |');
  console.log('|---|---:|---:|');
  for (const { name } of all) {
    console.log(`| ${name} | ${of('alone', name, 'rate').toFixed(0)} | ${of('alone', name, 'cpu').toFixed(0)} µs |`);
  }
  console.log();
}

/** Fails where one is a fifth below its goal. */
function compareWithGoals(came) {
  for (const [what, goals] of Object.entries(GOALS)) {
    for (const [name, goal] of Object.entries(goals)) {
      const theirs = came[what].get(name);
      // Of the same round: what else the machine does then slows both.
      const ratio = theirs && median(came[what].get(OURS).map(({ rate }, round) => rate / theirs[round].rate));
      console.log(`${what}: ${ratio?.toFixed(2) ?? 'not compared'} of ${name}, and the goal is ${goal}`);
      if (values.check && !(ratio >= goal * 0.8)) process.exitCode = 1;
    }
  }
}

async function main() {
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-compared-'));
  const processes = [];
  const serve = (name, ...more) => {
    const socket = join(directory, name);
    const where = ['--port', '0', '--unixsocket', socket, '--dir', directory, '--save', ''];
    processes.push(spawn(process.env.LEASEHOLD_SERVER ?? 'redis-server', [...where, ...more], { stdio: 'ignore' }));
    return socket;
  };
  try {
    const withModule = serve('with', '--loadmodule', process.env.LEASEHOLD_MODULE);
    const without = serve('without');
    const all = [];
    for (const [name, { hasModule }] of Object.entries(CONTENDERS)) {
      const contender = await start(name, hasModule ? withModule : without);
      if (contender === undefined) continue;
      processes.push(contender.child);
      all.push(contender);
    }
    const came = { contended: new Map(), alone: new Map() };
    for (const measured of Object.values(came)) for (const { name } of all) measured.set(name, []);
    // The first round is for the compiler.
    for (let round = 0; round <= ROUNDS; round++) {
      for (const { name, measure } of all) {
        for (const what of Object.keys(came)) {
          const one = await measure(what);
          if (round > 0) came[what].get(name).push(one);
        }
      }
    }
    show(all, came);
    compareWithGoals(came);
  } finally {
    for (const one of processes) one.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  }
}

if (values.contender === undefined) await main();
else await contend(values.contender, values.socket);
