// Compiles the tests and runs them. What follows the name of the script goes to `node --test`, or names test files.
//
// LEASEHOLD_MODULE names the module that servers load, and LEASEHOLD_SERVER the server, if it is not the one in PATH.
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
if (!process.env.LEASEHOLD_MODULE) {
  console.error('LEASEHOLD_MODULE must name the module, such as target/release/libleasehold.so');
  process.exit(1);
}
rmSync(`${root}/.build`, { recursive: true, force: true });
const tsc = `${root}/node_modules/typescript/bin/tsc`;
execFileSync(process.execPath, [tsc, '-p', 'tsconfig.json'], { cwd: root, stdio: 'inherit' });

const given = process.argv.slice(2);
const options = given.filter((word) => word.startsWith('-'));
const named = given.filter((word) => !word.startsWith('-'));
const all = readdirSync(`${root}/.build/test`).filter((file) => file.endsWith('.test.js'));
const files = named.length > 0 ? named.map((name) => `${name}.test.js`) : all;
const paths = files.map((file) => `.build/test/${file}`);
const run = ['--test', '--test-concurrency=1', '--test-timeout=60000', ...options, ...paths];
const { status } = spawnSync(process.execPath, run, { cwd: root, stdio: 'inherit' });
process.exit(status ?? 1);
