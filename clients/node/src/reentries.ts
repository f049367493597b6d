/** Work inside the work under the same lock: it has the same lease, and asks nobody. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lease } from './lease.js';

interface Block {
  readonly lease: Lease;
  /** How many are in it. */
  users: number;
}

export class Reentries {
  readonly #blocks = new AsyncLocalStorage<ReadonlyMap<string, Block>>();

  /** Whoever leaves last gives the lock back: work that was begun inside may outlast what began it. */
  async run<T>(what: string, ask: () => Promise<Lease>, work: (lease: Lease) => T | PromiseLike<T>): Promise<T> {
    const outside = this.#blocks.getStore();
    const block = outside?.get(what);
    if (block !== undefined && block.users > 0 && block.lease.validFor() > 0) return use(block, work);
    const mine = { lease: await ask(), users: 0 };
    return this.#blocks.run(new Map(outside).set(what, mine), () => use(mine, work));
  }
}

async function use<T>(block: Block, work: (lease: Lease) => T | PromiseLike<T>): Promise<T> {
  block.users++;
  try {
    return await work(block.lease);
  } finally {
    block.users--;
    if (block.users === 0) await block.lease[Symbol.asyncDispose]();
  }
}
