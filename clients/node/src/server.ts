/** Asks a question in the commands of the module, or in scripts where the server has no module. */
import { type Moment, now } from './clock.js';
import type { Connection, Dedicated, Word } from './connection.js';
import { plainly, type Script } from './plain.js';
import { type Question, words } from './questions.js';
import { integer } from './reply.js';
import { verdict } from './verdict.js';

/** A server that had no module is taken to have none for so long. It may have been replaced by one that has it. */
const PLAIN_FOR = 10_000;

export class Server {
  #plainUntil: Moment = Number.NEGATIVE_INFINITY;
  readonly #known = new Set<Script>();

  constructor(readonly connection: Connection) {}

  /** Whether the server keeps no queue, as far as is known. */
  isPlain(): boolean {
    return now() < this.#plainUntil;
  }

  async ask(key: Buffer, question: Question): Promise<bigint | null> {
    if (this.isPlain()) return this.#askPlainly(key, question);
    try {
      return integer(await this.connection.send(key, words(key, question)));
    } catch (error) {
      if (verdict(error) !== 'unknown command') throw error;
      this.#plainUntil = now() + PLAIN_FOR;
      return this.#askPlainly(key, question);
    }
  }

  /** The same on a connection that does nothing else. */
  async askAlone(dedicated: Dedicated, key: Buffer, question: Question): Promise<bigint | null> {
    return integer(await dedicated.send(words(key, question)));
  }

  /** A command that only reads. */
  read(key: Buffer, command: readonly Word[]): Promise<unknown> {
    return this.connection.send(key, command);
  }

  async #askPlainly(key: Buffer, question: Question): Promise<bigint | null> {
    try {
      return await this.#run(key, plainly(key, question));
    } catch (error) {
      if (verdict(error) !== 'has the module') throw error;
      this.#plainUntil = Number.NEGATIVE_INFINITY;
      return integer(await this.connection.send(key, words(key, question)));
    }
  }

  async #run(key: Buffer, { script, args }: { script: Script; args: Word[] }): Promise<bigint | null> {
    // By its digest only once the server has run it: a digest that it does not know is an error, which it counts.
    if (this.#known.has(script)) {
      try {
        return integer(await this.connection.send(key, ['EVALSHA', script.digest, ...args]));
      } catch (error) {
        if (verdict(error) !== 'unknown script') throw error;
      }
    }
    const reply = await this.connection.send(key, ['EVAL', script.text, ...args]);
    this.#known.add(script);
    return integer(reply);
  }
}
