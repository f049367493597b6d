import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Child } from '../../clients/node/.build/test/support/child.js';
import { eventually } from '../../clients/node/.build/test/support/eventually.js';
import { TestServer } from '../../clients/node/.build/test/support/server.js';

/** Longer than a test takes. */
const LONG = 60_000;

describe('the nightly job', () => {
  let server;
  const started = [];
  before(async () => {
    server = await TestServer.start({ tcp: true });
  });
  beforeEach(() => server.call('FLUSHALL'));
  afterEach(() => {
    for (const child of started.splice(0)) child.process.kill('SIGKILL');
  });
  after(() => server.stop());

  /** Cron starts the job on this machine. */
  function strikes(host, environment) {
    const own = { REDIS_URL: `redis://127.0.0.1:${server.port}`, HOST: host };
    const child = new Child(new URL('nightly.js', import.meta.url), [], { ...own, ...environment });
    started.push(child);
    return child;
  }

  /** Whether it does the job. */
  async function isDone(child) {
    assert.equal(await child.ended(), 0);
    const last = await eventually(() => child.lines.find((line) => /: (the job is done|another machine)/.test(line)));
    return last.endsWith('the job is done');
  }

  it('is done by one of three machines, and by no later one before the clocks agree', async () => {
    const clocks = { CLOCKS_MS: `${LONG}` };
    const hosts = ['one', 'two', 'three'].map((host) => strikes(host, clocks));
    const done = await Promise.all(hosts.map(isDone));
    assert.deepEqual(done.sort(), [false, false, true]);
    assert.equal(await isDone(strikes('late', clocks)), false);
    const left = await server.call('PTTL', 'nightly');
    assert(left > 0 && left <= LONG, `${left}`);
  });

  it('is begun by nobody else when the machine that does it dies', async () => {
    const clocks = { CLOCKS_MS: `${LONG}` };
    const first = strikes('one', { ...clocks, JOB_MS: `${LONG}` });
    await first.said('one: begins');
    first.process.kill('SIGKILL');
    assert.equal(await isDone(strikes('late', clocks)), false);
    const left = await server.call('PTTL', 'nightly');
    assert(left > 0 && left <= LONG, `${left}`);
  });

  it('is stopped when it takes longer than its box, and the lock is free', async () => {
    const child = strikes('one', { CLOCKS_MS: '2000', JOB_MS: `${LONG}`, BOX_MS: '1' });
    await child.said('one: begins');
    assert.equal(await child.ended(), 1);
    assert.equal(child.lines.length, 1);
    assert.equal(await server.call('EXISTS', 'nightly'), 0);
  });
});
