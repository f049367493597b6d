#!/usr/bin/env node
// The server, on port 6379 unless told otherwise: leasehold-server [FILE] [--option value …]
import { spawn } from 'node:child_process';
import { module, server } from './index.js';

const words = process.argv.slice(2);
// The server takes a file as its first word alone.
const file = words[0]?.startsWith('-') === false ? [words.shift()] : [];
try {
  const running = spawn(server(), [...file, '--loadmodule', module(), ...words], { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => running.kill(signal));
  running.on('error', (error) => fail(error));
  running.on('exit', (code, signal) => {
    process.exitCode = code ?? (signal ? 1 : 0);
  });
} catch (error) {
  fail(error);
}

function fail(error) {
  console.error(`leasehold-server: ${error.message}`);
  process.exitCode = 1;
}
