import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Child } from '../../clients/node/.build/test/support/child.js';
import { eventually } from '../../clients/node/.build/test/support/eventually.js';
import { TestServer } from '../../clients/node/.build/test/support/server.js';

/** For so long after a grant nobody else does the job. */
const A_NIGHT = 3_000;

describe('the nightly job', () => {
  let server;
  before(async () => {
    server = await TestServer.start({ tcp: true });
  });
  beforeEach(() => server.call('FLUSHALL'));
  after(() => server.stop());

  /** Cron starts the job on this machine. */
  const strikes = (host, environment = {}) =>
    new Child(new URL('nightly.js', import.meta.url), [], {
      REDIS_URL: `redis://127.0.0.1:${server.port}`,
      HOST: host,
      ...environment,
    });

  const done = async (child) => {
    assert.equal(await child.ended(), 0);
    await eventually(() => child.lines.length > 0);
    return child.lines.some((line) => line.endsWith('the job is done'));
  };

  it('is done by one of three machines, and by no later one before the clocks agree', async () => {
    const hosts = ['one', 'two', 'three'].map((host) => strikes(host));
    const results = await Promise.all(hosts.map(done));
    assert.equal(results.filter(Boolean).length, 1);
    const left = await server.call('PTTL', 'nightly');
    const late = strikes('late');
    const lateIsDone = await done(late);
    // A machine that was so slow that the night is over says nothing of this.
    if ((await server.call('PTTL', 'nightly')) > 0) {
      assert.equal(lateIsDone, false);
      assert.deepEqual(late.lines, ['late: another machine does the job tonight']);
    }
    assert(left > 0 && left <= A_NIGHT, `${left}`);
    await eventually(async () => (await server.call('EXISTS', 'nightly')) === 0);
    assert.equal(await done(strikes('tomorrow')), true);
  });

  it('is begun by nobody else when the machine that does it dies', async () => {
    const first = strikes('one', { JOB_MS: '60000' });
    await first.said('one: begins');
    first.process.kill('SIGKILL');
    const left = await server.call('PTTL', 'nightly');
    assert(left > 0 && left <= A_NIGHT, `${left}`);
    await eventually(async () => (await server.call('EXISTS', 'nightly')) === 0);
  });

  it('is stopped when it takes longer than its box', async () => {
    const child = strikes('one', { JOB_MS: '60000', BOX_MS: '1' });
    await child.said('one: begins');
    assert.equal(await child.ended(), 1);
    assert.equal(child.lines.length, 1);
    assert.equal(await server.call('EXISTS', 'nightly'), 0);
  });
});
