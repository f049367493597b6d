/**
 * Locks in memory, for unit tests: with the interface and the rules of those on a server, and without any server.
 *
 *     const locks = new MemoryLocks(); // in place of new Leasehold(client)
 *     const other = new MemoryLocks({ beside: locks }); // another program, with the same locks
 *
 * There are no replicas to acknowledge a grant, no users, and no events of the server's own, and `top` and `log` are empty.
 * A guarded command is `SET`, `GET`, `INCR` or `DEL`.
 */
import type { Connection, Dedicated, Ear, Listening, Word } from './connection.js';
import { Leasehold } from './leasehold.js';
import { Memory } from './memory.js';
import type { Settings } from './settings.js';

export interface MemorySettings extends Settings {
  /** Whose locks are also those of this one. */
  readonly beside?: MemoryLocks | undefined;
}

/** What a client connects to. */
const memories = new WeakMap<MemoryLocks, Memory>();

export class MemoryLocks extends Leasehold {
  constructor({ beside, ...settings }: MemorySettings = {}) {
    const memory = (beside && memories.get(beside)) ?? new Memory();
    super(new Inside(memory), settings);
    memories.set(this, memory);
  }
}

class Inside implements Connection {
  readonly #memory: Memory;
  readonly #line: Dedicated;

  constructor(memory: Memory) {
    this.#memory = memory;
    this.#line = this.#open();
  }

  #open(ear?: Ear): Dedicated & { send(key: Word, words: readonly Word[]): Promise<unknown> } {
    const session = this.#memory.open((_, message) => ear?.hear(message));
    const tells = new Set<() => void>();
    return {
      send: (_, words) => this.#memory.run(session, words),
      whenEnded: (tell) => {
        tells.add(tell);
        return () => tells.delete(tell);
      },
      close: () => {
        this.#memory.end(session);
        ear?.ended();
        for (const tell of tells) tell();
        tells.clear();
      },
    };
  }

  send(key: Word, words: readonly Word[]): Promise<unknown> {
    return this.#line.send(key, words);
  }

  place(): object {
    return this.#memory;
  }

  async dedicated(): Promise<Dedicated> {
    return this.#open();
  }

  together(_: Word, send: () => void): void {
    send();
  }

  async listen(key: Word, channel: string, _: number, ear: Ear): Promise<Listening> {
    const line = this.#open(ear);
    await line.send(key, ['SUBSCRIBE', channel]);
    return line;
  }

  elsewhere(): void {}

  whenReady(): void {}

  close(): void {
    this.#line.close();
  }

  trouble(): unknown {
    return undefined;
  }

  isClosed(): boolean {
    return false;
  }
}
