// Builds the package twice: for `import` and for `require`.
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url));
const build = (...options) =>
  execFileSync(process.execPath, [tsc, '-p', 'tsconfig.build.json', ...options], { cwd: root, stdio: 'inherit' });

rmSync(`${root}/dist`, { recursive: true, force: true });
build('--outDir', 'dist/esm');
const required = ['--module', 'commonjs', '--moduleResolution', 'bundler', '--verbatimModuleSyntax', 'false'];
build('--outDir', 'dist/cjs', ...required);
for (const [folder, type] of [
  ['esm', 'module'],
  ['cjs', 'commonjs'],
]) {
  writeFileSync(`${root}/dist/${folder}/package.json`, `${JSON.stringify({ type })}\n`);
}
