/** Waiting for a moment or an answer, whichever comes first. */
import { whenAborted } from './aborts.js';

/** Longer than this `setTimeout` does not wait. */
const LONGEST = 2 ** 31 - 1;

/** Nobody answered in time. */
export class Unanswered extends Error {
  override name = 'Unanswered';
}

/** Rejects with the reason of the signal if that is aborted first. */
export function sleep(ms: number, signal?: AbortSignal, { keepsAlive = true } = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(
      () => {
        forget();
        resolve();
      },
      Math.min(Math.max(ms, 0), LONGEST),
    );
    if (!keepsAlive) timer.unref();
    const forget = whenAborted(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}

/** Rejects with `Unanswered` if the answer takes longer. */
export function within<T>(ms: number, answer: Promise<T>, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    // Whoever stops waiting for it has nothing to do with how it fails.
    answer.catch(() => {});
    if (signal?.aborted) return reject(signal.reason);
    const done = () => {
      clearTimeout(timer);
      forget();
    };
    const late = () => {
      done();
      reject(new Unanswered(`no answer within ${Math.round(ms)} ms`));
    };
    // What arrived while the program was busy comes first: that is read before the next `setImmediate`.
    const timer = setTimeout(() => setImmediate(late), Math.min(Math.max(ms, 0), LONGEST));
    const forget = whenAborted(signal, () => {
      done();
      reject(signal?.reason);
    });
    answer.then(
      (value) => {
        done();
        resolve(value);
      },
      (error) => {
        done();
        reject(error);
      },
    );
  });
}

/** A rest between tries, which grows with them: half of it is left to chance, so that many do not try at once. */
export interface Backoff {
  readonly first: number;
  readonly longest: number;
}

export const RETRY: Backoff = { first: 50, longest: 500 };
export const POLL: Backoff = { first: 20, longest: 250 };
export const ROOM: Backoff = { first: 100, longest: 2_000 };

export function rest({ first, longest }: Backoff, tries: number): number {
  const full = Math.min(longest, first * 2 ** Math.min(tries, 16));
  return full / 2 + (Math.random() * full) / 2;
}
