import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { LIBRARIES, leasehold } from './support/clients.js';
import { Child } from './support/child.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`a process, with ${library.name}`, () => {
    let server: TestServer;
    before(async () => {
      server = await TestServer.start();
    });
    after(() => server.stop());

    it('that was stopped past its lease knows at once that it is lost', async () => {
      const child = new Child('holds', [library.name, server.socket, '600']);
      await child.said('held');
      child.process.kill('SIGSTOP');
      const other = await leasehold(library, server);
      // It has the lock when the first lease is over.
      const lease = await other.locks.acquire('a', { wait: 20_000 });
      child.process.stdin?.write('?\n');
      child.process.kill('SIGCONT');
      assert.equal(await child.said('aborted'), 'aborted true valid 0');
      child.process.kill('SIGKILL');
      assert.equal(await lease.release(), 'released');
      await other.close();
    });

    it('ends when it has closed, and leaves no lock and no place', async () => {
      const other = await leasehold(library, server);
      const lease = await other.locks.acquire('theirs', { ttl: 60_000 });
      const child = new Child('closes', [library.name, server.socket, 'close']);
      await child.said('waits');
      await eventually(async () => (await server.waiters('theirs')) === 1);
      child.process.stdin?.write('\n');
      assert.equal(await child.said('left'), 'left []');
      assert.equal(await child.ended(), 0);
      await child.said('closed');
      assert.equal(await server.call('EXISTS', 'mine'), 0);
      assert.equal(await server.waiters('theirs'), 0);
      await lease.release();
      await other.close();
    });

    it('ends when its client is closed, though it has forgotten to close', async () => {
      const other = await leasehold(library, server);
      const lease = await other.locks.acquire('theirs', { ttl: 60_000 });
      const child = new Child('closes', [library.name, server.socket, 'forget']);
      await child.said('waits');
      await eventually(async () => (await server.waiters('theirs')) === 1);
      child.process.stdin?.write('\n');
      await child.said('failed UnreachableError');
      assert.equal(await child.ended(), 0);
      await lease.release();
      await other.close();
    });
  });
}

describe('a program that may not read about the system, as in Deno', () => {
  it('imports the package, and has a clock', () => {
    const index = new URL('../src/clock.js', import.meta.url);
    const program = `
      const os = require('node:os');
      os.uptime = () => { throw new Error('Requires sys access to "osUptime"'); };
      require('node:module').syncBuiltinESMExports();
      import(${JSON.stringify(index.href)}).then(({ now }) => console.log(typeof now()));`;
    assert.equal(execFileSync(process.execPath, ['-e', program]).toString(), 'number\n');
  });
});
