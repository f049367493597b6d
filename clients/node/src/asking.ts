/**
 * A question, asked until it is answered or there is no more time.
 *
 * Every question may be asked twice: the same owner gets the same grant, and whoever is not the holder changes nothing.
 */
import { RETRY, rest } from './backoff.js';
import { type Moment, now } from './clock.js';
import type { Word } from './connection.js';
import { SurpriseError } from './errors.js';
import type { Question } from './questions.js';
import type { Server } from './server.js';
import { type Steps, Unanswered } from './steps.js';
import { verdict } from './verdict.js';

export interface Limits {
  /** For each try. */
  readonly each: number;
  /** For all of them. */
  readonly until: Moment;
  readonly steps: Steps;
}

export interface Answer {
  /** Nil is null. */
  readonly number: bigint | null;
  /** When the try was made that was answered. */
  readonly asked: Moment;
  /** An earlier try may have been heard too. */
  readonly repeated: boolean;
}

/** What became of tries that were not answered in time. */
export interface Fate {
  /** Nobody knows whether it was heard. */
  unknown(): void;
  /** The reply came when nobody waited for it any more, or another one had come before. */
  late(number: bigint | null): void;
}

const NO_MATTER: Fate = { unknown: () => {}, late: () => {} };

export async function ask(
  server: Server,
  key: Word,
  question: Question,
  limits: Limits,
  fate: Fate = NO_MATTER,
): Promise<Answer> {
  let repeated = false;
  for (let tries = 0; ; tries++) {
    const asked = now();
    repeated ||= server.mayHearTwice(key);
    try {
      const number = await askOnce(server, key, question, limits, fate);
      return { number, asked, repeated };
    } catch (error) {
      limits.steps.throwIfStopped();
      const means = verdict(error);
      if (means === 'refused' || means === 'replaced' || means === 'unknown script') throw server.told(error);
      if (server.connection.isClosed()) throw server.closed(error);
      if (means === 'elsewhere') server.connection.elsewhere();
      repeated ||= means === 'broken';
      const resting = rest(RETRY, tries);
      if (now() + resting >= limits.until) throw server.told(error);
      await limits.steps.sleep(resting);
    }
  }
}

/** One try, which takes no longer than each may, nor longer than there is time. */
export async function askOnce(
  server: Server,
  key: Word,
  question: Question,
  { each, until, steps }: Limits,
  fate: Fate,
): Promise<bigint | null> {
  steps.throwIfStopped();
  const answer = server.ask(key, question, fate);
  const limit = Math.max(0, Math.min(each, until - now()));
  try {
    return await steps.within(limit, answer);
  } catch (error) {
    const isOwn = error instanceof Unanswered;
    if (isOwn ? limit >= each : isTimeout(error)) server.silent(key);
    if (steps.areStopped || verdict(error) === 'broken' || error instanceof SurpriseError) fate.unknown();
    if (steps.areStopped || isOwn)
      answer.then(
        (number) => fate.late(number),
        () => {},
      );
    throw error;
  }
}

/** The client library has given up, by a limit of the program for its own commands. The connection may be dead. */
function isTimeout(error: unknown): boolean {
  return error instanceof Error && (error.name === 'TimeoutError' || error.message === 'Command timed out');
}
