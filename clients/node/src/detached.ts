/** A lock that was left held, for somebody else to go on with. */
import type { Word } from './connection.js';
import { SettingError } from './errors.js';

/**
 * What `lease.detach()` returns, and `locks.adopt()` takes. As text, `leasehold:<lock>:<owner>:<fence>`, it goes into the
 * payload of a job: each byte that is not a letter, a digit or one of `-._~` is `%` and two hexadecimal digits, and several
 * locks are separated by commas. The locks have their whole names on the server, with the prefix.
 */
export class Detached {
  /** @internal */
  constructor(
    readonly keys: readonly Word[],
    readonly owner: string,
    readonly fence: bigint,
  ) {}

  static parse(text: string): Detached {
    const [, locks = '', owner = '', fence = ''] = /^leasehold:([^:]*):([^:]+):(\d{1,16})$/.exec(text) ?? [];
    const words = [owner, ...locks.split(',')];
    if (fence === '' || !words.every((word) => /^([\w\-.~]|%[0-9a-f]{2})*$/i.test(word))) {
      throw new SettingError('detached', 'it must be leasehold:<lock>:<owner>:<fence>');
    }
    return new Detached(locks.split(',').map(unescaped), String(unescaped(owner)), BigInt(fence));
  }

  toString(): string {
    return `leasehold:${this.keys.map(escaped).join(',')}:${escaped(this.owner)}:${this.fence}`;
  }

  toJSON(): string {
    return this.toString();
  }
}

function escaped(word: Word): string {
  const hex = (byte: string) => `%${Buffer.from(byte, 'latin1').toString('hex').toUpperCase()}`;
  return Buffer.from(word as string)
    .toString('latin1')
    .replace(/[^\w\-.~]/g, hex);
}

/** As a string if it is one. */
function unescaped(word: string): Word {
  const bytes = Buffer.from(
    word.replace(/%(..)/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
  const text = bytes.toString('utf8');
  return bytes.equals(Buffer.from(text)) ? text : bytes;
}
