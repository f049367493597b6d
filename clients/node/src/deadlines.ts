/** What is to be done at some moment: one timer for all of it. */
import { type Moment, now } from './clock.js';

/** No timer is longer: one that was set before the machine went to sleep is late by as long as it slept. */
const LONGEST_REST = 1_000;

export class Deadline {
  /** Where it is in the heap; negative: nowhere. */
  index = -1;

  constructor(
    public at: Moment,
    /** A program whose connections are closed does not end before. */
    readonly keepsAlive: boolean,
  ) {}

  due(): void {}
}

/** The earliest first: each is at or after the one at half its index. */
const heap: Deadline[] = [];
let keepAlive = 0;
let timer: NodeJS.Timeout | undefined;
let timerAt: Moment = Number.POSITIVE_INFINITY;

/** Does it then, or right after, unless it is cancelled. */
export function at(moment: Moment, what: () => void, keepsAlive = true): Deadline {
  return set(Object.assign(new Deadline(moment, keepsAlive), { due: what }));
}

export function set<T extends Deadline>(deadline: T): T {
  heap.push(deadline);
  up(deadline, heap.length - 1);
  if (deadline.keepsAlive && keepAlive++ === 0) timer?.ref();
  if (deadline.at < timerAt) arm();
  return deadline;
}

export function cancel(deadline: Deadline | undefined): void {
  if (deadline === undefined || deadline.index < 0) return;
  const { index } = deadline;
  deadline.index = -1;
  if (deadline.keepsAlive && --keepAlive === 0) timer?.unref();
  const last = heap.pop();
  if (last === undefined || last === deadline) return;
  down(last, index);
  if (last.index === index) up(last, index);
}

function arm(): void {
  const first = heap[0];
  if (first === undefined) return;
  clearTimeout(timer);
  const here = now();
  const rest = Math.min(Math.max(first.at - here, 0), LONGEST_REST);
  timerAt = here + rest;
  timer = setTimeout(fire, rest);
  if (keepAlive === 0) timer.unref();
}

/** What arrived while the program was busy comes first: that is read before the next `setImmediate`. */
function fire(): void {
  timer = undefined;
  setImmediate(run);
}

function run(): void {
  const here = now();
  try {
    for (let first = heap[0]; first !== undefined && first.at <= here; first = heap[0]) {
      cancel(first);
      first.due();
    }
  } finally {
    timerAt = Number.POSITIVE_INFINITY;
    arm();
  }
}

function up(deadline: Deadline, from: number): void {
  let index = from;
  while (index > 0) {
    const parent = (index - 1) >> 1;
    const above = heap[parent] as Deadline;
    if (above.at <= deadline.at) break;
    put(above, index);
    index = parent;
  }
  put(deadline, index);
}

function down(deadline: Deadline, from: number): void {
  let index = from;
  for (;;) {
    let child = 2 * index + 1;
    let below = heap[child];
    if (below === undefined) break;
    const other = heap[child + 1];
    if (other !== undefined && other.at < below.at) [child, below] = [child + 1, other];
    if (deadline.at <= below.at) break;
    put(below, index);
    index = child;
  }
  put(deadline, index);
}

function put(deadline: Deadline, index: number): void {
  heap[index] = deadline;
  deadline.index = index;
}
