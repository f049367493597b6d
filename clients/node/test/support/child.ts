/** Another process, which runs a program of `test/programs`, or one that is elsewhere, and says something in lines. */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { eventually } from './eventually.js';

export class Child {
  readonly lines: string[] = [];
  readonly process: ChildProcess;
  #rest = '';

  constructor(program: string | URL, args: string[] = [], environment: NodeJS.ProcessEnv = {}) {
    const path = fileURLToPath(
      new URL(program instanceof URL ? program : `../programs/${program}.js`, import.meta.url),
    );
    const env = { ...process.env, ...environment };
    this.process = spawn(process.execPath, [path, ...args], { stdio: ['pipe', 'pipe', 'inherit'], env });
    this.process.stdout?.on('data', (data: Buffer) => {
      const lines = (this.#rest + data.toString()).split('\n');
      this.#rest = lines.pop() ?? '';
      this.lines.push(...lines);
    });
  }

  /** The line that begins so. */
  async said(beginning: string): Promise<string> {
    return eventually(() => this.lines.find((line) => line.startsWith(beginning)), 20_000);
  }

  async ended(): Promise<number | null> {
    await eventually(() => this.process.exitCode !== null || this.process.signalCode !== null, 20_000);
    return this.process.exitCode;
  }
}
