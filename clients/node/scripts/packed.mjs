// Packs the package, installs the file into a clean project beside the client libraries, and runs it there: by `import`
// and by `require`, with both libraries, and under the strict types of a program that has no types of its own.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const project = mkdtempSync(join(tmpdir(), 'leasehold-packed-'));
const run = (command, args, options = {}) =>
  execFileSync(command, args, { cwd: project, stdio: 'inherit', ...options });
const socket = join(project, 'socket');
let server;
try {
  const packed = execFileSync('npm', ['pack', '--json', '--pack-destination', project], { cwd: root });
  const [{ filename, files }] = JSON.parse(packed.toString().slice(packed.indexOf('[')));
  const strange = files.filter(({ path }) => !/^(dist\/|package\.json$|README\.md$|LICENSE$)/.test(path));
  if (strange.length > 0) throw new Error(`in the package: ${strange.map(({ path }) => path).join(', ')}`);

  writeFileSync(join(project, 'package.json'), '{"private":true}\n');
  const peers = ['ioredis', 'redis', 'typescript', '@types/node'].map((name) => `${name}@${devDependencies[name]}`);
  run('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error', `./${filename}`, ...peers]);
  const { dependencies = {} } = JSON.parse(readFileSync(join(project, 'node_modules/leasehold/package.json'), 'utf8'));
  if (Object.keys(dependencies).length > 0) throw new Error('it has dependencies');

  const use = (open, close) => `
    const locks = new Leasehold(${open});
    const fence = await locks.with('a', { ttl: 5000, wait: 5000 }, async (lease) => lease.fence);
    if (typeof fence !== 'bigint') throw new Error('the fence is ' + typeof fence);
    const left = await locks.close();
    if (left.length > 0) throw new Error('not released');
    ${close}
    console.log('ok', fence);`;
  const ioredis = use(`client`, 'client.disconnect();');
  const path = JSON.stringify(socket);
  writeFileSync(
    join(project, 'imports.mjs'),
    `import { Leasehold } from 'leasehold'; import { Redis } from 'ioredis';
    import Redlock from 'leasehold/redlock';
    const client = new Redis(${path});
    await new Redlock([client]).using(['b'], 5000, async () => {});
    ${ioredis}`,
  );
  writeFileSync(
    join(project, 'requires.cjs'),
    `const { Leasehold } = require('leasehold'); const { createClient } = require('redis');
    (async () => { const client = await createClient({ socket: { path: ${path} } }).connect();
    ${use('client', 'client.destroy();')} })();`,
  );
  const typed = `import { type Lease, Leasehold } from 'leasehold';
    import { Lock } from 'leasehold/redlock';
    export const fence = (lock: Lock): bigint => lock.fence;
    import { Redis } from 'ioredis';
    export async function work(client: Redis): Promise<bigint> {
      await using locks = new Leasehold(client, { ttl: 5_000 });
      await using lease: Lease = await locks.acquire('a', { signal: AbortSignal.timeout(1_000) });
      const fence: bigint = lease.fence;
      // @ts-expect-error
      const wrong: number = lease.fence;
      return wrong === 0 ? 0n : fence;
    }\n`;
  writeFileSync(join(project, 'typed.mts'), typed);
  writeFileSync(join(project, 'typed.cts'), typed);
  const strict = ['--strict', '--noEmit', '--target', 'es2022', '--lib', 'es2022,esnext.disposable'];
  const modules = ['--module', 'nodenext', '--types', 'node', '--skipLibCheck'];
  run('node_modules/.bin/tsc', [...strict, ...modules, 'typed.mts', 'typed.cts']);

  const program = process.env.LEASEHOLD_SERVER ?? 'redis-server';
  const where = ['--port', '0', '--unixsocket', socket, '--dir', project, '--save', ''];
  server = spawn(program, [...where, '--loadmodule', process.env.LEASEHOLD_MODULE], { stdio: 'ignore' });
  // ioredis connects again until the server is there.
  run(process.execPath, ['imports.mjs'], { timeout: 30_000 });
  run(process.execPath, ['requires.cjs'], { timeout: 30_000 });
} finally {
  server?.kill('SIGKILL');
  rmSync(project, { recursive: true, force: true });
}
