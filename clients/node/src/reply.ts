/** Reading replies. Client libraries give integers, texts and maps in several shapes, by version and by settings. */
import { SurpriseError } from './errors.js';

/** An integer, or nil. Fences are below 2^53, as all numbers of this package. */
export function integer(reply: unknown): number | null {
  if (reply === null || reply === undefined) return null;
  const number = typeof reply === 'number' ? reply : parsed(reply);
  if (Number.isSafeInteger(number)) return number;
  throw new SurpriseError();
}

function parsed(reply: unknown): number {
  const digits = typeof reply === 'bigint' || Buffer.isBuffer(reply) ? String(reply) : reply;
  return typeof digits === 'string' && /^-?\d{1,16}$/.test(digits) ? Number(digits) : Number.NaN;
}

/** Bytes that are no text are replaced. */
export function text(reply: unknown): string {
  if (typeof reply === 'string') return reply;
  if (reply instanceof Uint8Array) return Buffer.from(reply).toString('utf8');
  throw new SurpriseError();
}

export function bytes(reply: unknown): Buffer | null {
  if (reply === null || reply === undefined) return null;
  if (typeof reply === 'string' || reply instanceof Uint8Array) return Buffer.from(reply as Uint8Array);
  throw new SurpriseError();
}

/** Names and values, as a flat array, a map or an object: later versions of the module have more of them. */
export function fields(reply: unknown): Map<string, unknown> {
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [text(name), value]));
  if (!Array.isArray(reply)) {
    if (typeof reply === 'object' && reply !== null) return new Map(Object.entries(reply));
    throw new SurpriseError();
  }
  const found = new Map<string, unknown>();
  for (let at = 0; at + 1 < reply.length; at += 2) found.set(text(reply[at]), reply[at + 1]);
  return found;
}
