/** What happens where nobody awaits it. */
import type { LeaseholdError } from './errors.js';

export interface Trouble {
  readonly kind: /** A lease was lost before it was released. */
    | 'lost'
    /** The server refused to renew a lease, which therefore ends. */
    | 'renewal refused'
    /** The program dropped a lease without releasing it. The lock is released, as the garbage collector finds out. */
    | 'forgotten'
    /** A release failed. The lock stays until its lease ends. */
    | 'release failed';
  readonly name: string;
  readonly owner: string;
  readonly error: LeaseholdError;
}

export type Tell = (trouble: Trouble) => void;

/** What it throws has nothing to do with the lock, and with whoever looks at it: that is a warning. */
export function telling<T>(tell: (told: T) => void): (told: T) => void {
  return (told) => {
    try {
      tell(told);
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : String(error));
    }
  };
}

export function warn({ kind, error, owner }: Trouble): void {
  const does = kind === 'release failed' || kind === 'renewal refused';
  const what = does ? `a ${kind}: ${error.message}` : error.message;
  process.emitWarning(what, { type: 'LeaseholdWarning', detail: `owner ${owner}` });
}
