/** Asks until it is so. Tests do not sleep to be right. */
import { setTimeout as sleep } from 'node:timers/promises';

export async function eventually<T>(look: () => Promise<T> | T, limit = 10_000): Promise<NonNullable<T>> {
  const until = performance.now() + limit;
  let last: unknown;
  for (;;) {
    try {
      last = await look();
      if (last) return last as NonNullable<T>;
    } catch (error) {
      last = error;
    }
    if (performance.now() >= until) throw new Error(`not so within ${limit} ms`, { cause: last });
    await sleep(5);
  }
}
