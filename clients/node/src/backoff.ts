export const RETRY = { first: 50, longest: 500 };
export const POLL = { first: 20, longest: 250 };
export const ROOM = { first: 100, longest: 2_000 };

/** A rest between tries, which grows with them: half of it is left to chance, so that many do not try at once. */
export function rest({ first, longest }: typeof RETRY, tries: number): number {
  const full = Math.min(longest, first * 2 ** Math.min(tries, 16));
  return full / 2 + (Math.random() * full) / 2;
}
