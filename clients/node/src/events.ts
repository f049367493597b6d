/** What happens to locks, step by step: for traces and measures. */
import type { LeaseholdError, Loss } from './errors.js';
import type { Released } from './hold.js';

export interface LockEvent {
  readonly step: /** A lock is asked for. */
    | 'asked'
    /** It is waited for in the server's queue. */
    | 'queued'
    | 'granted'
    /** Nobody has it for this: others do, or `error` says why. */
    | 'refused'
    /** Its lease was extended. */
    | 'renewed'
    | 'lost'
    /** It was given up, with the `outcome`, or left to its lease as `error` says. */
    | 'released';
  /** The same number for all steps of what was asked for once. */
  readonly request: number;
  /** The lock, or several. */
  readonly name: string;
  readonly owner: string;
  /** From the grant on. */
  readonly fence?: bigint;
  /** How many milliseconds after it was asked for, until it is granted or refused; and after the grant from then on. */
  readonly after: number;
  readonly outcome?: Loss | Released;
  readonly error?: LeaseholdError;
}

export type Emit = (event: LockEvent) => void;
