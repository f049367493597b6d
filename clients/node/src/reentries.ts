/** Work inside the work under the same lock: it has the same lease, and asks nobody. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { SettingError } from './errors.js';
import type { Lease } from './lease.js';
import type { Work } from './lock.js';
import { EXCLUSIVE, type Share } from './questions.js';
import type { Name } from './settings.js';

interface Block {
  readonly keys: ReadonlySet<string>;
  readonly lease: Lease;
  /** How many are in it. */
  users: number;
}

export class Reentries {
  /** Those outside, the last one first. */
  readonly #blocks = new AsyncLocalStorage<readonly Block[]>();

  /** Whoever leaves last gives the lock back: work that was begun inside may outlast what began it. */
  async run<T>(names: readonly Name[], share: Share, ask: () => Promise<Lease>, work: Work<T>): Promise<T> {
    const keys = new Set(names.map((name) => Buffer.from(name).toString('latin1')));
    const outside = (this.#blocks.getStore() ?? []).filter(isOpen);
    for (const block of outside) {
      const common = [...keys].filter((key) => block.keys.has(key));
      if (common.length === 0) continue;
      // A writer's serves a reader, and that of several locks some of them.
      const serves = common.length === keys.size && (block.lease.share === EXCLUSIVE || block.lease.share === share);
      if (!serves) throw new SettingError('reentrant', 'it is held in another way already, and would wait for itself');
      return use(block, work);
    }
    const mine = { keys, lease: await ask(), users: 0 };
    return this.#blocks.run([mine, ...outside], () => use(mine, work));
  }
}

function isOpen({ users, lease }: Block): boolean {
  return users > 0 && lease.validFor() > 0;
}

async function use<T>(block: Block, work: Work<T>): Promise<T> {
  block.users++;
  try {
    return await work(block.lease);
  } finally {
    block.users--;
    if (block.users === 0) await block.lease[Symbol.asyncDispose]();
  }
}
