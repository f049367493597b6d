/** Being told that a client has ended: by one listener for each client, however many use it. */
import type { Emitter } from './shapes.js';

const told = new WeakMap<Emitter, Set<() => void>>();

/** Until what this returns is called. */
export function whenEnded(client: Emitter, events: readonly string[], tell: () => void): () => void {
  let tells = told.get(client);
  if (tells === undefined) {
    const all = new Set<() => void>();
    for (const event of events) {
      client.on(event, () => {
        for (const each of [...all]) each();
      });
    }
    told.set(client, all);
    tells = all;
  }
  const its = tells.add(tell);
  return () => its.delete(tell);
}
