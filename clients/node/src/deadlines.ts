/** What is to be done at some moment: one timer for all of it. */
import { type Moment, now } from './clock.js';

/** No timer is longer: one that was set before the machine went to sleep is late by as long as it slept. */
const LONGEST_REST = 1_000;

/** All are looked at when the timer fires: the more there are, the less often. */
const LOOKED_AT_IN_A_MILLISECOND = 1_000;

export class Deadline {
  /** Where it is among all; negative: nowhere. */
  index = -1;

  constructor(
    public at: Moment,
    /** A program whose connections are closed does not end before. */
    readonly keepsAlive: boolean,
  ) {}

  due(): void {}
}

const all: Deadline[] = [];
let keepAlive = 0;
let timer: NodeJS.Timeout | undefined;
let timerAt: Moment = Number.POSITIVE_INFINITY;

/** Does it then, or right after, unless it is cancelled. */
export function at(moment: Moment, what: () => void, keepsAlive = true): Deadline {
  return set(Object.assign(new Deadline(moment, keepsAlive), { due: what }));
}

export function set<T extends Deadline>(deadline: T): T {
  deadline.index = all.push(deadline) - 1;
  if (deadline.keepsAlive && keepAlive++ === 0) timer?.ref();
  if (deadline.at < timerAt) arm(deadline.at);
  return deadline;
}

export function cancel(deadline: Deadline | undefined): boolean {
  if (deadline === undefined || deadline.index < 0) return false;
  const last = all.pop() as Deadline;
  if (last !== deadline) all[deadline.index] = last;
  last.index = deadline.index;
  deadline.index = -1;
  if (deadline.keepsAlive && --keepAlive === 0) timer?.unref();
  return true;
}

function arm(moment: Moment): void {
  const here = now();
  const rest = Math.min(Math.max(moment - here, all.length / LOOKED_AT_IN_A_MILLISECOND), LONGEST_REST);
  if (here + rest >= timerAt) return;
  clearTimeout(timer);
  timerAt = here + rest;
  // What arrived while the program was busy comes first: that is read before the next `setImmediate`.
  timer = setTimeout(() => setImmediate(run), rest);
  if (keepAlive === 0) timer.unref();
}

function run(): void {
  const here = now();
  timerAt = Number.NEGATIVE_INFINITY;
  try {
    const due = all.filter((deadline) => deadline.at <= here).sort((one, other) => one.at - other.at);
    for (const deadline of due) if (cancel(deadline)) deadline.due();
  } finally {
    timerAt = Number.POSITIVE_INFINITY;
    let earliest = timerAt;
    for (const deadline of all) earliest = Math.min(earliest, deadline.at);
    if (all.length > 0) arm(earliest);
  }
}
