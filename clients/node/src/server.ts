/** Asks a question in the commands of the module, or in scripts where the server has no module. */
import { type Moment, now } from './clock.js';
import type { Connection, Dedicated, Word } from './connection.js';
import type { LeaseholdError } from './errors.js';
import { plainly, type Script } from './plain.js';
import { type Question, words } from './questions.js';
import { integer } from './reply.js';
import { type Line, Seconds } from './seconds.js';
import { closedClient, told, verdict } from './verdict.js';

/** A server that had no module is taken to have none for so long. It may have been replaced by one that has it. */
const PLAIN_FOR = 10_000;

/** Told of an answer after which another one had counted. */
export interface Late {
  late(number: bigint | null): void;
}

export class Server {
  #plainUntil: Moment = Number.NEGATIVE_INFINITY;
  readonly #known = new Set<Script>();
  readonly #seconds: Seconds;

  constructor(readonly connection: Connection) {
    this.#seconds = new Seconds(connection);
  }

  /** Whether the server keeps no queue, as far as is known. */
  isPlain(): boolean {
    return this.#plainUntil > 0 && now() < this.#plainUntil;
  }

  /** What the caller is told when no more tries are made. */
  told(error: unknown): LeaseholdError {
    return told(error, this.connection.trouble());
  }

  /** No try will be answered. */
  closed(error?: unknown): LeaseholdError {
    return closedClient(this.connection.trouble() ?? error);
  }

  ask(key: Word, question: Question, late: Late): Promise<bigint | null> {
    if (!this.mayHearTwice(key)) return this.#ask(this.connection, key, question);
    return this.#seconds.ask(
      key,
      (line) => this.#ask(line, key, question),
      (number) => late.late(number),
    );
  }

  /** An answer to it was not there in time. */
  silent(key: Word): void {
    this.#seconds.silent(key);
  }

  /** Whether whatever is asked now may be heard twice. */
  mayHearTwice(key: Word): boolean {
    return this.#seconds.has(key);
  }

  #ask(line: Line, key: Word, question: Question): Promise<bigint | null> {
    if (this.isPlain()) return this.#askPlainly(line, key, question);
    return line.send(key, words(key, question)).then(integer, (error) => {
      if (verdict(error) !== 'unknown command') throw error;
      this.#plainUntil = now() + PLAIN_FOR;
      return this.#askPlainly(line, key, question);
    });
  }

  /** The same on a connection that does nothing else. */
  async askAlone(dedicated: Dedicated, key: Word, question: Question): Promise<bigint | null> {
    return integer(await dedicated.send(words(key, question)));
  }

  /** A command that only reads. */
  read(key: Word, command: readonly Word[]): Promise<unknown> {
    return this.#seconds.ask(key, (line) => line.send(key, command));
  }

  async #askPlainly(line: Line, key: Word, question: Question): Promise<bigint | null> {
    try {
      return await this.#run(line, key, plainly(key, question));
    } catch (error) {
      if (verdict(error) !== 'has the module') throw error;
      this.#plainUntil = Number.NEGATIVE_INFINITY;
      return integer(await line.send(key, words(key, question)));
    }
  }

  async #run(line: Line, key: Word, { script, args }: { script: Script; args: Word[] }): Promise<bigint | null> {
    // By its digest only once the server has run it: a digest that it does not know is an error, which it counts.
    if (this.#known.has(script)) {
      try {
        return integer(await line.send(key, ['EVALSHA', script.digest, ...args]));
      } catch (error) {
        if (verdict(error) !== 'unknown script') throw error;
      }
    }
    const reply = await line.send(key, ['EVAL', script.text, ...args]);
    this.#known.add(script);
    return integer(reply);
  }
}
