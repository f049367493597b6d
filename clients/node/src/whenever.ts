/** One listener for each event of a client or a signal, however many want to be told of it. Node warns of more. */

export interface Emitter {
  on(event: string | symbol, listener: (...values: unknown[]) => void): unknown;
  listenerCount(event: string): number;
  once(event: string, listener: (...values: unknown[]) => void): unknown;
}

const told = new WeakMap<object, Map<string, Set<() => void>>>();

/** Tells of the event each time, until what this returns is called. */
export function whenever(source: Emitter | AbortSignal, event: string, tell: () => void): () => void {
  const events = told.get(source) ?? new Map<string, Set<() => void>>();
  told.set(source, events);
  const tells = events.get(event) ?? new Set<() => void>();
  const listener = () => {
    for (const each of [...tells]) each();
  };
  if (!events.has(event)) {
    if ('on' in source) source.on(event, listener);
    else source.addEventListener(event, listener);
    events.set(event, tells);
  }
  // Each caller has its own, also if one asks twice.
  const own = () => tell();
  tells.add(own);
  return () => {
    tells.delete(own);
    if (tells.size > 0 || 'on' in source) return;
    source.removeEventListener(event, listener);
    events.delete(event);
  };
}
