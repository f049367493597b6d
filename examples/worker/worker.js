/** A worker that takes jobs off a stream, several at a time, but one at a time for each customer. */
import { setTimeout as sleep } from 'node:timers/promises';
import { BusyError } from 'leasehold';
import { JOBS, WORKERS } from './files.js';

/** How often it looks for what dead workers have left. */
const LOOK = 1_000;
/** How long an invoice takes. */
const PRINTER = Number(process.env.PRINTER_MS ?? 200);

export class Worker {
  #client;
  #locks;
  #name;
  #print;
  #slots;
  #leftFor;
  #tell;
  #busy = new Set();
  #isStopped = false;

  /**
   * `client` is one of node-redis with the scripts of files.js, and `print(job, number, signal)` makes an invoice of a
   * job. A job that a worker has taken and not done for `leftFor` milliseconds is looked at by another one. It begins the
   * job only if the lock is free: a worker that lives, and is slow, has it.
   */
  constructor({ client, locks, name, print, slots = 100, leftFor = 30_000, tell = console.log }) {
    this.#client = client;
    this.#locks = locks;
    this.#name = name;
    this.#print = print;
    this.#slots = slots;
    this.#leftFor = leftFor;
    this.#tell = tell;
  }

  /** Until it is stopped, and has finished what it has begun. */
  async run() {
    await this.#client.xGroupCreate(JOBS, WORKERS, '0', { MKSTREAM: true }).catch((error) => {
      if (!error.message.startsWith('BUSYGROUP')) throw error;
    });
    // It blocks its connection while it waits for jobs. The leases are renewed on the other one.
    const reading = this.#client.duplicate().on('error', (error) => this.#tell(`${this.#name}: ${error.message}`));
    await reading.connect();
    while (!this.#isStopped) {
      await this.#take(reading).catch(() => sleep(LOOK)); // it was told
      while (this.#busy.size >= this.#slots) await Promise.race(this.#busy);
    }
    reading.destroy();
    await Promise.all(this.#busy);
  }

  stop() {
    this.#isStopped = true;
  }

  async #take(reading) {
    const left = await reading.xAutoClaim(JOBS, WORKERS, this.#name, this.#leftFor, '0', { COUNT: 1 });
    for (const { id, message } of left.messages) this.#begin(id, message, { wait: 0 });
    const from = { key: JOBS, id: '>' };
    const streams = await reading.xReadGroup(WORKERS, this.#name, from, { COUNT: 1, BLOCK: LOOK });
    for (const { id, message } of streams?.[0].messages ?? []) this.#begin(id, message, {});
  }

  #begin(id, job, options) {
    const work = this.#do(id, job, options).catch((error) => {
      // Somebody has the lock, and may be doing this job. Nobody has acknowledged it, so it is looked for again.
      if (error instanceof BusyError) return;
      this.#tell(`${this.#name}: ${job.item} is left: ${error.cause?.message ?? error.message}`);
    });
    this.#busy.add(work);
    work.finally(() => this.#busy.delete(work));
  }

  async #do(id, job, options) {
    const { customer } = job;
    await this.#locks.with(customer, options, async ({ fence, signal }) => {
      const last = await this.#client.openFile(customer, fence, id);
      if (last === null) return; // done by another worker
      const invoice = await this.#print(job, last + 1, signal);
      const isFiled = await this.#client.file(customer, fence, id, last + 1, invoice);
      this.#tell(`${this.#name}: ${invoice}${isFiled ? '' : ' comes too late'}`);
    });
  }
}

/** Takes a moment, and stops when the lock is lost. */
export async function print({ customer, item }, number, signal) {
  await sleep(PRINTER, undefined, { signal });
  return `invoice ${number} of ${customer}, for ${item}`;
}
