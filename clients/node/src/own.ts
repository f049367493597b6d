/**
 * Connections that this package opens beside the client and keeps: one to each server, when it is first needed. What is
 * said on them is said once: they are not opened again when they are lost, and nothing is sent anew by a library.
 */
import { closeOnceOpen, type Connection, type Dedicated, type Word } from './connection.js';
import { verdict } from './verdict.js';

export class Own {
  readonly #lines = new Map<object, Promise<Dedicated>>();

  constructor(readonly connection: Connection) {}

  line(key: Word): Promise<Dedicated> {
    const place = this.connection.place(key) ?? this.connection;
    const known = this.#lines.get(place);
    if (known !== undefined) return known;
    const line = this.connection.dedicated(key);
    const forget = () => {
      if (this.#lines.get(place) === line) this.#lines.delete(place);
    };
    this.#lines.set(place, line);
    line.then((opened) => opened.whenEnded(forget), forget);
    return line;
  }

  /** Somebody has not been answered. Whoever asks again does so on another connection. */
  silent(key: Word): void {
    const line = this.#lines.get(this.connection.place(key) ?? this.connection);
    if (line !== undefined) closeOnceOpen(line);
  }

  /** If the lock is elsewhere: whatever is asked of the client has its library find out where. */
  async failed(line: Dedicated, key: Word, error: unknown): Promise<void> {
    const means = verdict(error);
    if (means === 'elsewhere') line.close();
    if (means === 'elsewhere') this.connection.elsewhere();
    else if (means === 'again') await this.connection.send(key, ['LOCK.CHECK', key, '-']).catch(() => {});
  }
}
