// The package as users have it: packed, installed from its file into a clean project, and run. LEASEHOLD_PACKED names a file
// that is packed already.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, it } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

const USE = `
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { once } from 'node:events';
import { start } from 'leasehold-server';

const begun = performance.now();
await using server = await start('--databases', '3');
async function ask(line) {
  const connection = connect(server.port, '127.0.0.1');
  connection.write(line + '\\r\\n');
  const [reply] = await once(connection, 'data');
  connection.destroy();
  return String(reply);
}
assert.match(await ask('LOCK.ACQUIRE printer alice 30000'), /^:17/);
const took = performance.now() - begun;
console.log('first grant after', Math.round(took), 'ms');
assert(took <= 10_000);
assert.equal(await ask('LOCK.ACQUIRE printer bob 30000'), '$-1\\r\\n');
assert.match(await ask('SELECT 3'), /^-ERR/);
await server.flush();
assert.equal(await ask('DBSIZE'), ':0\\r\\n');
await assert.rejects(start('--no-such-option', '1'), /no-such-option/);
const closed = await start('--requirepass', 'secret');
await assert.rejects(closed.flush(), /NOAUTH/);
await closed.stop();
`;

let project;
let packed;
const { LEASEHOLD_MODULE, LEASEHOLD_PACKED, ...others } = process.env;
before(() => {
  project = mkdtempSync(join(tmpdir(), 'leasehold-server-test-'));
  packed = LEASEHOLD_PACKED ?? pack();
  writeFileSync(join(project, 'package.json'), '{"private":true}\n');
  const words = ['install', '--no-audit', '--no-fund', '--loglevel=error', packed];
  execFileSync('npm', words, { cwd: project, stdio: 'inherit' });
});
after(() => {
  rmSync(project, { recursive: true, force: true });
  rmSync(new URL('../modules', import.meta.url), { recursive: true, force: true });
});

function pack() {
  const modules = ['gnu', 'musl'].map((libc) => `${process.arch}-${libc}=${resolve(LEASEHOLD_MODULE)}`);
  const env = { ...others, LEASEHOLD_MODULES: modules.join() };
  const root = new URL('..', import.meta.url);
  const told = execFileSync('npm', ['pack', '--json', '--pack-destination', project], { cwd: root, env });
  const [{ filename }] = JSON.parse(told.toString().slice(told.indexOf('[')));
  return join(project, filename);
}

it('starts a server of its own for tests', () => {
  // Node 20 has no syntax for `await using`.
  const plain = USE.replace('await using server', 'const server').concat('await server.stop();\n');
  writeFileSync(join(project, 'use.mjs'), plain);
  execFileSync(process.execPath, ['use.mjs'], { cwd: project, env: others, stdio: 'inherit', timeout: 60_000 });
});

it('ends the server of a program that ends without a word', async () => {
  const program = "import { start } from 'leasehold-server'; console.log((await start()).port); process.exit(0);";
  writeFileSync(join(project, 'ends.mjs'), program);
  const port = String(execFileSync(process.execPath, ['ends.mjs'], { cwd: project, env: others })).trim();
  await assert.rejects(fetch(`http://127.0.0.1:${port}`));
});

it('is the server as a command', async () => {
  const socket = join(project, 'socket');
  writeFileSync(join(project, 'server.conf'), `port 0\nunixsocket ${socket}\ndir ${project}\n`);
  const command = join(project, 'node_modules/.bin/leasehold-server');
  const running = spawn(command, ['server.conf', '--maxmemory', '100mb'], {
    cwd: project,
    env: others,
    stdio: 'ignore',
  });
  for (let turns = 0; !existsSync(socket) && turns < 2_000; turns++) await pause(10);
  assert(existsSync(socket));
  running.kill('SIGTERM');
  assert.deepEqual(await once(running, 'exit'), [0, null]);
});

it('is a lock by two commands of the README', async () => {
  const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
  const [, serve, ask] = /^\| to try it with Node alone \| `(.*?)`, then `(.*?)` \|/m.exec(readme);
  assert.equal(serve, 'npx leasehold-server');
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const port = String(probe.address().port);
  probe.close();
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-server-npx-'));
  const command = ['--yes', '--package', packed, '--', 'leasehold-server', '--port', port];
  const running = spawn('npx', command, { cwd: folder, env: others, stdio: 'ignore', detached: true });
  try {
    let told;
    for (const end = performance.now() + 60_000; told === undefined && performance.now() < end; ) {
      await pause(50);
      const asking = () => execFileSync('sh', ['-c', ask.replace('6379', port)], { stdio: ['ignore', 'pipe', 'ignore'] });
      try {
        told = String(asking());
      } catch {
        // The server is not there yet.
      }
    }
    assert.match(told, /^:17\d{14}\r\n\+OK\r\n$/);
  } finally {
    process.kill(-running.pid, 'SIGTERM');
    await once(running, 'exit');
    rmSync(folder, { recursive: true, force: true });
  }
});
