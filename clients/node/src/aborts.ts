/** Being told that a signal is aborted: by one listener for each signal, however many want to be told. Node warns of more. */

const told = new WeakMap<AbortSignal, { tells: Set<() => void>; listener: () => void }>();

/** Until what this returns is called. */
export function whenAborted(signal: AbortSignal | undefined, tell: () => void): () => void {
  if (signal === undefined) return () => {};
  const { tells, listener } = told.get(signal) ?? listen(signal);
  // Each has its own, also if one asks twice.
  const own = () => tell();
  tells.add(own);
  return () => {
    if (!tells.delete(own) || tells.size > 0) return;
    signal.removeEventListener('abort', listener);
    told.delete(signal);
  };
}

function listen(signal: AbortSignal): { tells: Set<() => void>; listener: () => void } {
  const tells = new Set<() => void>();
  const listener = () => {
    for (const tell of [...tells]) tell();
  };
  signal.addEventListener('abort', listener, { once: true });
  const heard = { tells, listener };
  told.set(signal, heard);
  return heard;
}
