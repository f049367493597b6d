/** Being told what becomes of a client: by one listener for each of its events, however many use it. */
import type { Emitter } from './shapes.js';

const told = new WeakMap<Emitter, Map<string, Set<() => void>>>();

/** Until what this returns is called. */
export function whenever(client: Emitter, events: readonly string[], tell: () => void): () => void {
  const all = events.map((event) => listenersOf(client, event));
  for (const each of all) each.add(tell);
  return () => {
    for (const each of all) each.delete(tell);
  };
}

function listenersOf(client: Emitter, event: string): Set<() => void> {
  const known = told.get(client) ?? new Map<string, Set<() => void>>();
  told.set(client, known);
  let listeners = known.get(event);
  if (listeners === undefined) {
    const all = new Set<() => void>();
    client.on(event, () => {
      for (const each of [...all]) each();
    });
    known.set(event, all);
    listeners = all;
  }
  return listeners;
}

/** The end of a connection, and those who are told of it. */
export class Ending {
  readonly #tells = new Set<() => void>();
  #isOver = false;

  readonly whenEnded = (tell: () => void): (() => void) => {
    if (this.#isOver) tell();
    else this.#tells.add(tell);
    return () => this.#tells.delete(tell);
  };

  over(): void {
    this.#isOver = true;
    for (const tell of [...this.#tells]) tell();
    this.#tells.clear();
  }
}
