/** How many connections wait at a time. */

export class Room {
  #free: number;
  readonly #line: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most;
  }

  /** In the order of coming. `place` leaves the line, or the room. */
  enter(): { entered: Promise<void>; leave: () => void } {
    let isIn = false;
    let isOver = false;
    let come = () => {};
    const entered = new Promise<void>((resolve) => {
      come = () => {
        isIn = true;
        resolve();
      };
    });
    if (this.#free > 0) {
      this.#free -= 1;
      come();
    } else {
      this.#line.push(come);
    }
    const leave = () => {
      if (isOver) return;
      isOver = true;
      if (isIn) this.#next();
      else this.#line.splice(this.#line.indexOf(come), 1);
    };
    return { entered, leave };
  }

  #next(): void {
    const next = this.#line.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}
