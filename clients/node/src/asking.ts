/**
 * A question, asked until it is answered or there is no more time.
 *
 * Every question may be asked twice: the same owner gets the same grant, and whoever is not the holder changes nothing.
 */
import { RETRY, rest } from './backoff.js';
import { type Moment, now } from './clock.js';
import { SurpriseError } from './errors.js';
import type { Claim, Question } from './questions.js';
import { integer } from './reply.js';
import type { Fate, Server } from './server.js';
import { type Steps, Unanswered } from './steps.js';
import { verdict } from './verdict.js';

export interface Limits {
  readonly each: number;
  readonly until: Moment;
  readonly steps: Steps;
}

export interface Answer {
  readonly number: number | null;
  /** When the try was made that was answered. */
  readonly asked: Moment;
  /** An earlier try may have been heard too. */
  readonly repeated: boolean;
}

const NO_MATTER: Fate = { unknown: () => {}, late: () => {} };

/** So often it is asked at once in other words. */
const MOST_WORDS = 2;

export async function ask(
  server: Server,
  claim: Claim,
  question: Question,
  limits: Limits,
  fate: Fate = NO_MATTER,
): Promise<Answer> {
  const { key } = claim;
  let repeated = false;
  for (let tries = 0; ; tries++) {
    limits.steps.throwIfStopped();
    const asked = now();
    repeated ||= server.seconds.has(key);
    try {
      const answer = server.ask(claim, question, fate);
      const reply = await limits.steps.limited<unknown>(Math.min(asked + limits.each, limits.until), (step) => {
        const broke = (error: unknown) => step.fail(error);
        answer.then((came) => (step.isOver ? fate.late() : step.arrive(came)), broke);
      });
      return { number: integer(reply), asked, repeated };
    } catch (error) {
      failed(error, server, claim, question, limits, asked, fate);
      limits.steps.throwIfStopped();
      const means = verdict(error);
      if (server.learns(error) && tries < MOST_WORDS) continue;
      if (means === 'refused' || means === 'replaced') throw server.told(error);
      if (server.connection.isClosed()) throw server.closed(error);
      if (means === 'elsewhere') server.connection.elsewhere();
      repeated ||= means === 'broken';
      const resting = rest(RETRY, tries);
      if (now() + resting >= limits.until) throw server.told(error);
      await limits.steps.sleep(resting);
    }
  }
}

/** What it says of a server, and of what that may have done, that a try came to this error. */
export function failed(
  error: unknown,
  server: Server,
  claim: Claim,
  question: Pick<Question, 'ask'>,
  { each, until, steps }: Limits,
  asked: Moment,
  fate: Fate,
): void {
  const isSilent = error instanceof Unanswered ? asked + each <= until : isTimeout(error);
  if (isSilent) server.silent(claim, question);
  if (steps.areStopped || verdict(error) === 'broken' || error instanceof SurpriseError) fate.unknown();
}

/** The client library has given up, by a limit of the program for its own commands. The connection may be dead. */
function isTimeout(error: unknown): boolean {
  return error instanceof Error && (error.name === 'TimeoutError' || error.message === 'Command timed out');
}
