/** Why a client is not connected: client libraries say that in an event, and let requests wait without a word. */
import { errorMonitor } from 'node:events';
import { type Moment, now } from '../clock.js';
import type { Emitter } from './shapes.js';

interface Failure {
  error: unknown;
  at: Moment;
}

/** Of each client, however many use it. */
const failures = new WeakMap<Emitter, Failure>();

/** A cluster goes on without one of its nodes, and does not say when that is back. */
const RECENT = 10_000;

/** A listener of `errorMonitor` is none that handles the error. */
export function watchFailures(client: Emitter, events: readonly (string | symbol)[] = [errorMonitor]): boolean {
  if (failures.has(client)) return false;
  const last: Failure = { error: undefined, at: 0 };
  failures.set(client, last);
  for (const event of events) client.on(event, (error) => Object.assign(last, { error, at: now() }));
  client.on('ready', () => Object.assign(last, { error: undefined }));
  return true;
}

/** ioredis tells nobody of an error that nobody listens to: it prints it. So that is done here if nobody else listens. */
export function watchFailuresOfIoredis(client: Emitter): void {
  if (!watchFailures(client, ['error', 'node error'])) return;
  client.on('error', (error) => {
    const isAlone = client.listenerCount('error') === 2;
    if (isAlone && error instanceof Error) console.error('[ioredis] Unhandled error event:', error.stack);
  });
}

/** Why the last try to connect failed, unless one has succeeded since. */
export function lastFailure(client: Emitter): unknown {
  const last = failures.get(client);
  return last === undefined || now() - last.at > RECENT ? undefined : last.error;
}
