// The package for Node, as the driver of the conformance scenarios talks to it: one JSON object a line.
//
//   node adapter.mjs ioredis | node-redis
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Leasehold, Quorum } from '../../../node/dist/esm/index.js';

const library = process.argv[2];
// The libraries that the package is tested with.
const require = createRequire(new URL('../../../node/package.json', import.meta.url));

/** The client of the program, its connections, and how to end them. */
let locks;
const ends = [];
let isTold = false;
const leases = new Map();
const waits = new Map();
const works = new Map();

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const whole = (duration) => Math.max(0, Math.floor(duration));

const commands = {
  async open({ url, cluster, sentinel, quorum, ca, certificate, key, settings = {} }) {
    const encrypted = (url ?? '').startsWith('rediss');
    const pem = (file) => (file === undefined ? undefined : readFileSync(file));
    const tls = encrypted ? { ca: pem(ca), cert: pem(certificate), key: pem(key) } : undefined;
    const opened = (quorum ?? [url]).map((each) =>
      (library === 'ioredis' ? openIoredis : openNodeRedis)({ url: each, cluster, sentinel, tls }),
    );
    const client = opened[0];
    const { unreachable_after, wait_connections, ...same } = settings;
    const chosen = {
      ...same,
      ...(unreachable_after === undefined ? {} : { unreachableAfter: unreachable_after }),
      ...(wait_connections === undefined ? {} : { waitConnections: wait_connections }),
      onEvent: ({ step, name }) => isTold && write({ event: 'step', step, name }),
      onTrouble: ({ kind, error }) => write({ event: 'trouble', kind, text: String(error) }),
    };
    locks = quorum === undefined ? new Leasehold(client, chosen) : new Quorum(opened, chosen);
    if (library === 'node-redis') await Promise.all(opened.map(connected));
    return {};
  },

  async acquire(request) {
    const lease = await asked(request, (lock, options) => lock.acquire(options));
    return held(request.lease, lease);
  },

  async try(request) {
    const lease = await asked(request, (lock, options) => lock.tryAcquire(options));
    return lease === null ? { held: false } : held(request.lease, lease);
  },

  async run(request) {
    const work = new Promise((resolve, reject) => works.set(request.lease, { resolve, reject }));
    work.catch(() => {});
    const result = await asked(request, (lock, options) =>
      lock.with(options, async (lease) => {
        keep(request.lease, lease);
        write({ event: 'working', lease: request.lease, fence: String(lease.fence) });
        return work;
      }),
    );
    return { result };
  },

  finish({ lease, result, error }) {
    const work = works.get(lease);
    if (error === undefined) work.resolve(result);
    else work.reject(new WorkError(error));
    return {};
  },

  cancel({ request }) {
    waits.get(request)?.abort(new CancelledError('cancelled'));
    return {};
  },

  state: ({ lease }) => state(leases.get(lease)),

  /** Nothing else runs meanwhile: no timer, no answer. */
  block({ for: duration, lease }) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, duration);
    return state(leases.get(lease));
  },

  async extend({ lease, ttl }) {
    return { outcome: await leases.get(lease).extend(ttl) };
  },

  async release({ lease }) {
    return { outcome: await leases.get(lease).release() };
  },

  async upgrade({ lease }) {
    const fence = await leases.get(lease).upgrade();
    return fence === null ? { held: false } : granted(leases.get(lease));
  },

  async downgrade({ lease }) {
    await leases.get(lease).downgrade();
    return granted(leases.get(lease));
  },

  async guard({ lease, command }) {
    return { reply: await leases.get(lease).guard(...command) };
  },

  detach: ({ lease }) => ({ text: String(leases.get(lease).detach()) }),

  async adopt({ lease, text }) {
    return held(lease, await locks.adopt(text));
  },

  async extend_by({ lease, by }) {
    return { outcome: await leases.get(lease).extendBy(by) };
  },

  async info({ name }) {
    const info = await locks.info(name);
    if (info === null) return null;
    const { holder, fence, holders, waiters } = info;
    return { holder, fence: String(fence), holders, waiters };
  },

  async holders({ name }) {
    return (await locks.holders(name)).map(({ owner, fence }) => ({ owner, fence: String(fence) }));
  },

  waiters: ({ name }) => locks.waiters(name),
  top: () => locks.top(),
  log: () => locks.log(),

  async campaign({ lease, name, candidate, ttl }) {
    const term = await locks.election(name, candidate).campaign({ ttl });
    return held(lease, term.lease);
  },

  async resign({ lease }) {
    return { outcome: await leases.get(lease).release() };
  },

  async leader({ name }) {
    const leader = await locks.election(name, '').leader();
    return leader === null ? null : { candidate: leader.candidate, fence: String(leader.fence) };
  },

  events() {
    isTold = true;
    return {};
  },

  async observe({ name, observer }) {
    const tell = async () => {
      for await (const leader of locks.election(name, '').observe()) {
        const { candidate = null, fence = null } = leader ?? {};
        write({ event: 'leader', observer, candidate, fence: fence && String(fence) });
      }
    };
    tell().catch((error) => write({ event: 'trouble', kind: 'observe', text: String(error) }));
    return {};
  },

  async close({ limit }) {
    const left = await locks.close(limit);
    for (const end of ends) end();
    return { left };
  },
};

function openIoredis({ url, cluster, sentinel, tls }) {
  const { Cluster, Redis } = require('ioredis');
  const quiet = (client) => {
    client.on('error', () => {});
    ends.push(() => client.disconnect());
    return client;
  };
  if (cluster !== undefined) return quiet(new Cluster(cluster));
  if (sentinel !== undefined) {
    const sentinels = sentinel.urls.map((each) => ({ host: new URL(each).hostname, port: Number(new URL(each).port) }));
    return quiet(new Redis({ sentinels, name: sentinel.service }));
  }
  return quiet(new Redis(url, tls === undefined ? {} : { tls }));
}

function openNodeRedis({ url, cluster, sentinel, tls }) {
  const { createClient, createCluster, createSentinel } = require('redis');
  const place = (each) => ({ host: new URL(each).hostname, port: Number(new URL(each).port) });
  let client;
  if (cluster !== undefined) client = createCluster({ rootNodes: cluster.map((each) => ({ url: each })) });
  else if (sentinel !== undefined) {
    client = createSentinel({ name: sentinel.service, sentinelRootNodes: sentinel.urls.map(place) });
  } else client = createClient({ url, ...(tls === undefined ? {} : { socket: { tls: true, ...tls } }) });
  client.on('error', () => {});
  ends.push(() => client.destroy());
  return client;
}

/** It goes on trying when the server refuses the password, which it says again when it is asked. */
async function connected(client) {
  const connecting = client.connect().catch(() => {});
  await Promise.race([connecting, new Promise((resolve) => setTimeout(resolve, 2_000))]);
}

/** The lock that a request names, in its way. */
function lockOf({ name, name_hex, mode = 'write', permits, also }) {
  const named = name ?? Buffer.from(name_hex, 'hex');
  if (locks instanceof Quorum) {
    const calls = ['acquire', 'tryAcquire', 'with'].map((call) => [call, (...given) => locks[call](named, ...given)]);
    return Object.fromEntries(calls);
  }
  if (also !== undefined) return locks.several([named, ...also]);
  return mode === 'semaphore' ? locks.semaphore(named, permits) : locks[mode](named);
}

/** Asks for a lock with the options of a request, so that `cancel` can end it. */
async function asked(request, ask) {
  const { id, ttl, wait, renew, hold_at_least, owner, ephemeral } = request;
  const { replicas: count, replicas_within: within = 1_000 } = request;
  const replicas = count === undefined ? undefined : { count, within };
  const waiting = new AbortController();
  const lock = lockOf(request);
  const given = { ttl, wait, renew, holdAtLeast: hold_at_least, owner, ephemeral, replicas, signal: waiting.signal };
  const options = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  waits.set(id, waiting);
  try {
    return await ask(lock, options);
  } finally {
    waits.delete(id);
  }
}

function held(id, lease) {
  keep(id, lease);
  return granted(lease);
}

function granted(lease) {
  const { fence, owner } = lease;
  return { held: true, fence: String(fence), owner, valid_for: whole(lease.validFor()) };
}

function keep(id, lease) {
  leases.set(id, lease);
  lease.lost.then((loss) => write({ event: 'lost', lease: id, loss }));
}

function state(lease) {
  const isLost = lease.signal.aborted;
  const loss = isLost ? (lease.signal.reason?.loss ?? 'closed') : null;
  return { valid_for: whole(lease.validFor()), loss };
}

class WorkError extends Error {}
class CancelledError extends Error {}

const KINDS = {
  BusyError: 'busy',
  UnreachableError: 'unreachable',
  TooLateError: 'too late',
  TooFewReplicasError: 'too few replicas',
  LostError: 'lost',
  ClosedError: 'closed',
  UnansweredError: 'unanswered',
  NeedsModuleError: 'needs the module',
  SettingError: 'setting',
  SurpriseError: 'refused',
  PermissionError: 'not permitted',
  AuthenticationError: 'wrong password',
  OutOfMemoryError: 'out of memory',
  ReadOnlyError: 'read only',
  QueueFullError: 'queue full',
  WrongTypeError: 'wrong type',
  RefusedError: 'refused',
};

function trouble(error) {
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof WorkError) return { kind: 'work', code: '', text };
  if (error instanceof CancelledError) return { kind: 'cancelled', code: '', text };
  return { kind: KINDS[error?.name] ?? `not of the package: ${error?.name}`, code: error?.code ?? '', text };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[request.do](request))
    .then(
      (ok) => write({ id: request.id, ok }),
      (error) => write({ id: request.id, error: trouble(error) }),
    );
}
process.exit(0);
