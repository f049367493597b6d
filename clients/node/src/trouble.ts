/** What happens where nobody awaits it. */
import type { LeaseholdError } from './errors.js';

export interface Trouble {
  readonly kind: /** A lease was lost before it was released. */
    | 'lost'
    /** A release failed. The lock stays until its lease ends. */
    | 'release failed';
  /** The lock. */
  readonly name: string;
  readonly owner: string;
  readonly error: LeaseholdError;
}

export type Tell = (trouble: Trouble) => void;

/** What it throws has nothing to do with the lock, and with whoever looks at it: that is a warning. */
export function telling(tell: Tell): Tell {
  return (trouble) => {
    try {
      tell(trouble);
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : String(error));
    }
  };
}

export function warn({ kind, error, owner }: Trouble): void {
  const what = kind === 'lost' ? error.message : `a release failed: ${error.message}`;
  process.emitWarning(what, { type: 'LeaseholdWarning', detail: `owner ${owner}` });
}
