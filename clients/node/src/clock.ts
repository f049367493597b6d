/**
 * The clock that leases are measured by.
 *
 * It is monotonic, and it counts the time in which the whole machine sleeps: the server's clock goes on then, and so do
 * leases. `performance.now()` stops on Linux and macOS. The clock on the wall does not, but somebody may set it; `os.uptime()`
 * does not either, but it is coarse, and it reads a file. So it is read once a second, and when the clock on the wall
 * has jumped: as after a sleep.
 */
import { uptime } from 'node:os';

/** Milliseconds, of no account but for their differences. */
export type Moment = number;

/** `os.uptime()` has whole seconds on some systems. A shorter sleep than this is not seen. */
const COARSE = 2_000;

/** How much the clock on the wall may run ahead before somebody looks. */
const JUMP = 100;
const LOOKED_AT_EVERY = 1_000;

/** `coarse` may throw where a program is not allowed to read it, as in Deno: then the clock on the wall counts alone. */
export function makeClock(fine: () => number, wall: () => number, coarse: () => number): () => Moment {
  let mayRead = true;
  let origin: number | undefined;
  let ahead = wall() - fine();
  let lookedAt = Number.NEGATIVE_INFINITY;
  let asleep = 0;
  return () => {
    const here = fine();
    const there = wall() - here;
    if (here - lookedAt > LOOKED_AT_EVERY || Math.abs(there - ahead) > JUMP) {
      lookedAt = here;
      ahead = there;
      let gap = there;
      try {
        if (mayRead) gap = coarse() - here;
      } catch {
        mayRead = false;
      }
      origin ??= gap;
      if (gap - origin - asleep > COARSE) asleep = gap - origin;
    }
    return here + asleep;
  };
}

export const now: () => Moment = makeClock(
  () => performance.now(),
  Date.now,
  () => uptime() * 1_000,
);
