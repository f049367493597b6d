/**
 * The clock that leases are measured by.
 *
 * It is monotonic, and it counts the time in which the whole machine sleeps: the server's clock goes on then, and so do
 * leases. `performance.now()` stops on Linux and macOS. `os.uptime()` does not, but it is coarse: so it only tells how
 * much later it is than the other one says.
 */
import { uptime } from 'node:os';

/** Milliseconds, of no account but for their differences. */
export type Moment = number;

/** `os.uptime()` has whole seconds on some systems. A shorter sleep than this is not seen. */
const COARSE = 2_000;

export function makeClock(fine: () => number, coarse: () => number): () => Moment {
  const origin = coarse() - fine();
  let asleep = 0;
  return () => {
    const here = fine();
    const gap = coarse() - here - origin;
    if (gap - asleep > COARSE) asleep = gap;
    return here + asleep;
  };
}

export const now: () => Moment = makeClock(
  () => performance.now(),
  () => uptime() * 1_000,
);
