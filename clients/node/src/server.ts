/** Asks a question in the commands of the module, or in scripts where the server has no module. */
import { type Moment, now } from './clock.js';
import type { Connection, Dedicated, Word } from './connection.js';
import type { LeaseholdError } from './errors.js';
import { plainly, type Script } from './plain.js';
import { type Question, words } from './questions.js';
import { integer } from './reply.js';
import { Seconds, type Send } from './seconds.js';
import { closedClient, told, verdict } from './verdict.js';

/** A server that had no module is taken to have none for so long. It may have been replaced by one that has it. */
const PLAIN_FOR = 10_000;

export class Server {
  #plainUntil: Moment = Number.NEGATIVE_INFINITY;
  readonly #known = new Set<Script>();
  readonly #seconds: Seconds;

  constructor(readonly connection: Connection) {
    this.#seconds = new Seconds(connection);
  }

  /** Whether the server keeps no queue, as far as is known. */
  isPlain(): boolean {
    return now() < this.#plainUntil;
  }

  /** What the caller is told when no more tries are made. */
  told(error: unknown): LeaseholdError {
    return told(error, this.connection.trouble());
  }

  /** No try will be answered. */
  closed(error?: unknown): LeaseholdError {
    return closedClient(this.connection.trouble() ?? error);
  }

  /** `late` is told of an answer after which another one had counted. */
  ask(key: Buffer, question: Question, late: (number: bigint | null) => void): Promise<bigint | null> {
    return this.#seconds.ask(key, (send) => this.#ask(send, key, question), late);
  }

  /** An answer to it was not there in time. */
  silent(key: Buffer): void {
    this.#seconds.silent(key);
  }

  /** Whether whatever is asked now may be heard twice. */
  mayHearTwice(key: Buffer): boolean {
    return this.#seconds.has(key);
  }

  async #ask(send: Send, key: Buffer, question: Question): Promise<bigint | null> {
    if (this.isPlain()) return this.#askPlainly(send, key, question);
    try {
      return integer(await send(words(key, question)));
    } catch (error) {
      if (verdict(error) !== 'unknown command') throw error;
      this.#plainUntil = now() + PLAIN_FOR;
      return this.#askPlainly(send, key, question);
    }
  }

  /** The same on a connection that does nothing else. */
  async askAlone(dedicated: Dedicated, key: Buffer, question: Question): Promise<bigint | null> {
    return integer(await dedicated.send(words(key, question)));
  }

  /** A command that only reads. */
  read(key: Buffer, command: readonly Word[]): Promise<unknown> {
    return this.#seconds.ask(key, (send) => send(command));
  }

  async #askPlainly(send: Send, key: Buffer, question: Question): Promise<bigint | null> {
    try {
      return await this.#run(send, plainly(key, question));
    } catch (error) {
      if (verdict(error) !== 'has the module') throw error;
      this.#plainUntil = Number.NEGATIVE_INFINITY;
      return integer(await send(words(key, question)));
    }
  }

  async #run(send: Send, { script, args }: { script: Script; args: Word[] }): Promise<bigint | null> {
    // By its digest only once the server has run it: a digest that it does not know is an error, which it counts.
    if (this.#known.has(script)) {
      try {
        return integer(await send(['EVALSHA', script.digest, ...args]));
      } catch (error) {
        if (verdict(error) !== 'unknown script') throw error;
      }
    }
    const reply = await send(['EVAL', script.text, ...args]);
    this.#known.add(script);
    return integer(reply);
  }
}
