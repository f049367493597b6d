/** A server with the module Leasehold: the command `leasehold-server`, and `start` for tests. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, closeSync, constants, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** Until a server that was started answers. */
const PATIENCE = 20_000;

/** The path of the module: LEASEHOLD_MODULE, or that of this package for this machine. */
export function module() {
  const given = process.env.LEASEHOLD_MODULE;
  if (given) return given;
  const path = packed('libleasehold.so');
  if (!existsSync(path)) throw new Error(`there is no ${path}: set LEASEHOLD_MODULE`);
  return path;
}

/** A file of this package for this machine and its C library. */
function packed(name) {
  process.report.excludeNetwork = true;
  const libc = process.report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl';
  return fileURLToPath(new URL(`modules/${process.arch}-${libc}/${name}`, import.meta.url));
}

/** The path of the server: LEASEHOLD_SERVER, that of this package, or what is in PATH. */
export function server() {
  const given = process.env.LEASEHOLD_SERVER;
  if (given) return given;
  const path = packed('valkey-server');
  if (existsSync(path)) return path;
  for (const name of ['valkey-server', 'redis-server']) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // It is not there.
      }
    }
  }
  throw new Error('no server: install valkey-server or redis-server, or set LEASEHOLD_SERVER');
}

/** A server of one's own, on a free port of this machine, with nothing on disk. It ends with `stop`, and with the program, unless
 * that is killed. */
export class Server {
  #process;
  #folder = mkdtempSync(join(tmpdir(), 'leasehold-server-'));
  #end = () => this.#process?.kill('SIGKILL');

  /** The port that it listens on. */
  port = 0;

  /** For clients: `redis://127.0.0.1:…`. */
  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** What the server has said so far. */
  get log() {
    const path = join(this.#folder, 'log');
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  }

  /** @internal */
  async start(options) {
    const end = performance.now() + PATIENCE;
    process.once('exit', this.#end);
    do {
      this.port = await freePort();
      const where = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.#folder];
      const words = [...where, '--save', '', '--appendonly', 'no', '--loadmodule', module(), ...options];
      const log = openSync(join(this.#folder, 'log'), 'w');
      this.#process = spawn(server(), words, { stdio: ['ignore', log, log], cwd: this.#folder });
      closeSync(log);
      this.#process.once('error', () => {});
      while (this.#process.exitCode === null && this.#process.pid !== undefined && performance.now() < end) {
        if (/^(\+PONG|-NOAUTH)/.test(await this.#ask('PING').catch(() => ''))) return this;
        await pause(10);
      }
    } while (this.log.includes('Address already in use') && performance.now() < end);
    const said = this.log.slice(-2_000);
    await this.stop();
    throw new Error(`the server does not start: ${said}`);
  }

  /** Deletes all keys, and so all locks. */
  async flush() {
    const reply = await this.#ask('FLUSHALL');
    if (reply !== '+OK\r\n') throw new Error(`FLUSHALL is answered ${reply}`);
  }

  /** Ends it. */
  async stop() {
    process.off('exit', this.#end);
    const running = this.#process;
    if (running?.pid !== undefined && running.exitCode === null && running.signalCode === null) {
      running.kill('SIGKILL');
      await once(running, 'exit');
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }

  async #ask(command) {
    const connection = connect(this.port, '127.0.0.1');
    try {
      await once(connection, 'connect');
      connection.write(`${command}\r\n`);
      for await (const reply of connection) return String(reply);
      return '';
    } finally {
      connection.destroy();
    }
  }
}

/** Starts a server of one's own, with these options of the server behind those that it needs. */
export function start(...options) {
  return new Server().start(options);
}

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  return port;
}
