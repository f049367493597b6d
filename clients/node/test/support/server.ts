/** Servers of Redis and Valkey for tests: each in a directory of its own, on a unix socket and perhaps a port. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { eventually } from './eventually.js';

export interface ServerOptions {
  /** Without the module. */
  plain?: boolean;
  /** Listens on a port, too. */
  tcp?: boolean;
  /** Another server than the one of the run. */
  program?: string;
  config?: string[];
}

const running = new Set<TestServer>();
process.on('exit', () => {
  for (const server of running) server.kill();
});

export class TestServer {
  readonly directory = mkdtempSync(join(tmpdir(), 'leasehold-node-'));
  readonly socket = join(this.directory, 'socket');
  readonly #options: ServerOptions;
  port = 0;
  #process: ChildProcess | undefined;
  #control: Redis | undefined;

  private constructor(options: ServerOptions) {
    this.#options = options;
  }

  static async start(options: ServerOptions = {}): Promise<TestServer> {
    const server = new TestServer(options);
    if (options.tcp) server.port = await freePort();
    await server.run();
    return server;
  }

  /** Starts it, or starts it again. */
  async run(): Promise<void> {
    const { plain, program = process.env['LEASEHOLD_SERVER'] ?? 'redis-server', config = [] } = this.#options;
    const module = plain ? [] : ['--loadmodule', process.env['LEASEHOLD_MODULE'] ?? ''];
    const own = ['--port', String(this.port), '--unixsocket', this.socket, '--dir', this.directory, '--save', ''];
    const log = join(this.directory, 'log');
    const child = spawn(program, [...own, '--logfile', log, ...config, ...module], {
      stdio: 'ignore',
    });
    this.#process = child;
    running.add(this);
    try {
      await eventually(async () => {
        if (child.exitCode !== null) throw new Error('the server has ended');
        return (await this.control.ping()) === 'PONG';
      }, 20_000);
    } catch (error) {
      throw new Error(`the server does not start:\n${this.log()}`, { cause: error });
    }
  }

  /** A connection for the test itself. */
  get control(): Redis {
    this.#control ??= new Redis({
      path: this.socket,
      retryStrategy: () => 20,
      maxRetriesPerRequest: null,
    }).on('error', () => {}) as Redis;
    return this.#control;
  }

  call(command: string, ...args: (string | Buffer | number)[]): Promise<unknown> {
    return this.control.call(command, ...args);
  }

  /** The server stands still, and does not close anything. */
  pause(): void {
    this.#process?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#process?.kill('SIGCONT');
  }

  kill(): void {
    this.#process?.kill('SIGKILL');
    running.delete(this);
  }

  async died(): Promise<void> {
    const child = this.#process;
    this.kill();
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      await new Promise((resolve) => child.once('exit', resolve));
    }
  }

  async stop(): Promise<void> {
    this.#control?.disconnect();
    await this.died();
    rmSync(this.directory, { recursive: true, force: true });
  }

  log(): string {
    try {
      return readFileSync(join(this.directory, 'log'), 'utf8').split('\n').slice(-30).join('\n');
    } catch {
      return 'no log';
    }
  }

  /** Who waits for a lock, by name. */
  async waiters(key: string | Buffer): Promise<number> {
    return ((await this.call('LOCK.WAITERS', key)) as unknown[]).length;
  }

  /** Whether any release was asked for since the last `CONFIG RESETSTAT`. */
  async hasReleased(): Promise<boolean> {
    return /cmdstat_lock.release:calls=[1-9]/i.test(await this.control.info('commandstats'));
  }

  /** All connections but those of the test itself. */
  async killClients(): Promise<void> {
    await this.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await this.call('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes');
  }
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
