/** Asks a question in the commands of the module, or in scripts where the server has no module. */
import { barely, isWithoutScripts } from './bare.js';
import { type Moment, now } from './clock.js';
import type { Connection, Dedicated, Line, Word } from './connection.js';
import type { LeaseholdError } from './errors.js';
import { Own } from './own.js';
import { beside, plainly, type Script } from './plain.js';
import { binds, type Claim, type Question, words } from './questions.js';
import { Seconds } from './seconds.js';
import { closedClient, told, verdict } from './verdict.js';

/** A server that had no module is taken to have none for so long. It may have been replaced by one that has it. */
const PLAIN_FOR = 10_000;

/** What became of tries that were not answered in time. */
export interface Fate {
  /** Nobody knows whether it was heard. */
  unknown(): void;
  /** The reply came when nobody waited for it any more, or another one had come before. */
  late(): void;
  /** The connection on which a hold was last asked for that is bound to it. */
  bond?: Dedicated;
}

export class Server {
  #plainUntil: Moment = Number.NEGATIVE_INFINITY;
  /** This user may not run scripts, as far as is known. */
  #bareUntil: Moment = Number.NEGATIVE_INFINITY;
  readonly #known = new Set<Script>();
  readonly seconds: Seconds;
  /** For holds that end with their connection. */
  readonly #bound: Own;
  /** For guarded commands. */
  readonly own: Own | undefined;

  constructor(readonly connection: Connection) {
    this.seconds = new Seconds(connection);
    this.#bound = new Own(connection);
    this.own = new Own(connection);
  }

  /** Whether the server keeps no queue, as far as is known. */
  isPlain(): boolean {
    return this.#plainUntil > 0 && now() < this.#plainUntil;
  }

  told(error: unknown): LeaseholdError {
    return told(error, this.connection.trouble());
  }

  closed(error?: unknown): LeaseholdError {
    return closedClient(this.connection.trouble() ?? error);
  }

  ask(claim: Claim, question: Question, fate: Fate): Promise<unknown> {
    const { key } = claim;
    if (binds(claim, question) && !this.isPlain()) return this.#askBound(claim, question, fate);
    const late = () => fate.late();
    return this.seconds.ask(key, (line) => this.askOn(line, claim, question), late);
  }

  /** Whether an error says in which other words it is to be asked. */
  learns(error: unknown): boolean {
    const means = verdict(error);
    if (means === 'unknown command') this.#plainUntil = now() + PLAIN_FOR;
    else if (means === 'has the module') this.#plainUntil = Number.NEGATIVE_INFINITY;
    else if (means === 'unknown script') this.#known.clear();
    else return false;
    return true;
  }

  silent(claim: Claim, asked: Pick<Question, 'ask'>): void {
    if (binds(claim, asked)) this.#bound.silent(claim.key);
    else this.seconds.silent(claim.key);
  }

  askOn(line: Line, claim: Claim, question: Question): Promise<unknown> {
    return this.isPlain() ? this.#askPlainly(line, claim, question) : line.send(claim.key, words(claim, question));
  }

  read(key: Word, command: readonly Word[]): Promise<unknown> {
    return this.seconds.ask(key, (line) => line.send(key, command));
  }

  async #askBound(claim: Claim, question: Question, fate: Fate): Promise<unknown> {
    const line = await this.#bound.line(claim.key);
    fate.bond = line;
    try {
      return await line.send(claim.key, words(claim, question));
    } catch (error) {
      await this.#bound.failed(line, claim.key, error);
      throw error;
    }
  }

  async #askPlainly(line: Line, claim: Claim, question: Question): Promise<unknown> {
    if (now() < this.#bareUntil) return barely(line, claim, question);
    try {
      return await this.#run(line, claim, question);
    } catch (error) {
      if (!isWithoutScripts(error)) throw error;
      // It changes nothing. Where the server does not know `IFEQ` either, it is the script that counts.
      const probe = ['SET', beside(claim.key), '0', 'IFEQ', 'none', 'PX', '1'];
      await line.send(claim.key, probe).catch(() => Promise.reject(error));
      this.#bareUntil = now() + PLAIN_FOR;
      return barely(line, claim, question);
    }
  }

  async #run(line: Line, claim: Claim, question: Question): Promise<unknown> {
    const { key } = claim;
    const { script, args } = plainly(claim, question);
    // By its digest only once the server has run it: a digest that it does not know is an error, which it counts.
    if (this.#known.has(script)) return line.send(key, ['EVALSHA', script.digest, ...args]);
    const reply = await line.send(key, ['EVAL', script.text, ...args]);
    this.#known.add(script);
    return reply;
  }
}
