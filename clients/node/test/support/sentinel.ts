/** A primary, its replica, and one sentinel that watches them. */
import { spawn, type ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { eventually } from './eventually.js';
import { freePort, TestServer } from './server.js';

export class Watched {
  private constructor(
    readonly primary: TestServer,
    readonly replica: TestServer,
    readonly port: number,
    readonly sentinel: Redis,
    readonly process: ChildProcess,
  ) {}

  static async start(): Promise<Watched> {
    const primary = await TestServer.start({ tcp: true, config: ['--repl-diskless-sync-delay', '0'] });
    const follows = ['--replicaof', `127.0.0.1 ${primary.port}`, '--repl-diskless-sync-delay', '0'];
    const replica = await TestServer.start({ tcp: true, config: follows });
    await eventually(async () => /master_link_status:up/.test(await replica.control.info('replication')), 30_000);
    const port = await freePort();
    const config = join(primary.directory, 'sentinel.conf');
    const lines = [
      `port ${port}`,
      `dir ${primary.directory}`,
      `logfile ${primary.directory}/sentinel.log`,
      `sentinel monitor primary 127.0.0.1 ${primary.port} 1`,
      'sentinel down-after-milliseconds primary 500',
      'sentinel failover-timeout primary 5000',
    ];
    writeFileSync(config, `${lines.join('\n')}\n`);
    const program = process.env['LEASEHOLD_SERVER'] ?? 'redis-server';
    const child = spawn(program, [config, '--sentinel'], { stdio: 'ignore' });
    process.on('exit', () => child.kill('SIGKILL'));
    const sentinel = new Redis({ port, retryStrategy: () => 50, maxRetriesPerRequest: null });
    sentinel.on('error', () => {});
    await eventually(
      async () => ((await sentinel.call('SENTINEL', 'REPLICAS', 'primary')) as unknown[]).length === 1,
      30_000,
    );
    return new Watched(primary, replica, port, sentinel, child);
  }

  /** Until the former replica is the primary. */
  async taken(): Promise<void> {
    await eventually(async () => /role:master/.test(await this.replica.control.info('replication')), 30_000);
  }

  async stop(): Promise<void> {
    this.sentinel.disconnect();
    this.process.kill('SIGKILL');
    await Promise.all([this.primary.stop(), this.replica.stop()]);
  }
}
