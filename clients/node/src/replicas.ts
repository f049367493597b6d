/**
 * Has replicas acknowledge a grant. `WAIT` stops all that comes behind it, and counts what was written on its own
 * connection: so the grant is written once more, on a connection beside the client, in one round trip with the wait.
 */
import type { Attempt, Granted } from './attempt.js';
import { now } from './clock.js';
import { closeOnceOpen } from './connection.js';
import { LostError, TooFewReplicasError } from './errors.js';
import { millis } from './questions.js';
import { integer } from './reply.js';

export interface Replicas {
  readonly count: number;
  /** For how long they are waited for, in milliseconds. */
  readonly within: number;
  /** Whether they and the server have it on disk, too: `WAITAOF`, of Redis 7.2 and Valkey. */
  readonly durable?: boolean | undefined;
}

export async function acknowledged(
  { server, claim, steps, wanted: { ttl, name } }: Attempt,
  { fence }: Granted,
  { count, within, durable = false }: Replicas,
  response: number,
): Promise<Granted> {
  const asked = now();
  const opening = server.connection.dedicated(claim.key);
  const waits = async () => {
    const line = await opening;
    const extended = server.askOn(line, claim, { ask: 'extend', ttl, fence });
    const wait = durable ? ['WAITAOF', '1', String(count), millis(within)] : ['WAIT', String(count), millis(within)];
    const [number, reply] = await Promise.all([extended, line.send(claim.key, wait)]);
    if (integer(number) !== 1) throw new LostError(name, 'taken');
    const [local, theirs] = Array.isArray(reply) ? reply.map(integer) : [1, integer(reply)];
    if ((theirs ?? 0) < count || local === 0) throw new TooFewReplicasError(name, theirs ?? 0, count);
    return { fence, asked, lasts: ttl };
  };
  try {
    return await steps.within(within + response, waits());
  } catch (error) {
    steps.throwIfStopped();
    throw server.told(error);
  } finally {
    closeOnceOpen(opening);
  }
}
