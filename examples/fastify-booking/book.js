/** The book of a theatre: a SQLite database that takes a write only with the newest fence of the seat. */
import sqlite from 'node-sqlite3-wasm';

const TABLE = `CREATE TABLE IF NOT EXISTS seats (
  name TEXT PRIMARY KEY,
  guest TEXT,
  fence INTEGER NOT NULL -- the largest one that was seen
)`;

export class Book {
  #database;

  constructor(file) {
    this.#database = new sqlite.Database(file);
    this.#database.exec(TABLE);
  }

  /**
   * Who has the seat: null is nobody, and undefined is for a fence that is not the newest. It stores the fence and
   * reads in one step: from then on no write with an older fence is taken.
   */
  guestOf(seat, fence) {
    const sql = `INSERT INTO seats (name, fence) VALUES (?, ?) ON CONFLICT (name)
      DO UPDATE SET fence = excluded.fence WHERE fence <= excluded.fence RETURNING guest`;
    return this.#database.get(sql, [seat, fence])?.guest;
  }

  /** Whether it was written. It is not if a newer fence has been stored meanwhile. */
  enter(seat, guest, fence) {
    const sql = 'UPDATE seats SET guest = ? WHERE name = ? AND fence <= ?';
    return this.#database.run(sql, [guest, seat, fence]).changes === 1;
  }

  close() {
    this.#database.close();
  }
}
