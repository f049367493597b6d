// Puts modules into the package: LEASEHOLD_MODULES names them, such as x64-gnu=target/release/libleasehold.so,arm64-musl=…
// The server and the licences that lie beside a module go with it.
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';

const given = process.env.LEASEHOLD_MODULES;
if (!given) throw new Error('LEASEHOLD_MODULES must name the modules: x64-gnu=target/release/libleasehold.so');
rmSync('modules', { recursive: true, force: true });
for (const each of given.split(',')) {
  const [machine, path] = each.split('=');
  if (!/^(x64|arm64)-(gnu|musl)$/.test(machine) || !path) throw new Error(`what is ${each}?`);
  mkdirSync(`modules/${machine}`, { recursive: true });
  copyFileSync(path, `modules/${machine}/libleasehold.so`);
  for (const name of ['THIRD-PARTY', 'valkey-server', 'LICENSE.valkey']) {
    const beside = join(dirname(path), name);
    if (existsSync(beside)) copyFileSync(beside, `modules/${machine}/${name}`);
  }
}
