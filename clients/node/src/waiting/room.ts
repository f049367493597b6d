/** How many connections wait at a time. */

export class Room {
  readonly #line = new Set<() => void>();
  readonly #inside = new Set<() => void>();

  constructor(readonly most: number) {}

  /** In the order of coming. `leave` leaves the line, or the room. */
  enter(): { entered: Promise<void>; leave: () => void } {
    let come = () => {};
    const entered = new Promise<void>((resolve) => {
      come = resolve;
    });
    this.#line.add(come);
    this.#admit();
    const leave = () => {
      this.#line.delete(come);
      this.#inside.delete(come);
      this.#admit();
    };
    return { entered, leave };
  }

  #admit(): void {
    for (const come of this.#line) {
      if (this.#inside.size >= this.most) return;
      this.#line.delete(come);
      this.#inside.add(come);
      come();
    }
  }
}
