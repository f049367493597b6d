/**
 * Tells OpenTelemetry of locks: a span of each wait and of each hold, and measures of both.
 *
 *     const locks = new Leasehold(client, { onEvent: telemetry() });
 */
import {
  type Attributes,
  type Meter,
  metrics,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { LockEvent } from './events.js';

export interface TelemetryOptions {
  /** Those of the program unless given. */
  tracer?: Tracer;
  meter?: Meter;
  /**
   * What measures have as the name of a lock, such as what comes before the first colon. Without it they have none: a name
   * for each user is a series for each user.
   */
  nameOf?: (lock: string) => string | undefined;
}

const SCOPE = 'leasehold';

export function telemetry(options: TelemetryOptions = {}): (event: LockEvent) => void {
  const { tracer = trace.getTracer(SCOPE), meter = metrics.getMeter(SCOPE), nameOf = () => undefined } = options;
  const duration = (name: string, description: string) => meter.createHistogram(name, { unit: 's', description });
  const waits = duration('leasehold.wait', 'How long a lock was waited for until it was granted or refused');
  const holds = duration('leasehold.hold', 'How long a lock was held');
  const lost = meter.createCounter('leasehold.lost', {
    unit: '{lock}',
    description: 'Locks that were lost before they were released',
  });
  const held = meter.createUpDownCounter('leasehold.held', {
    unit: '{lock}',
    description: 'Locks that are held by this program',
  });
  /** Those that have begun, by request. */
  const spans = new Map<number, Span>();

  function begin({ name, owner, fence, request }: LockEvent, kind: string): void {
    const attributes: Attributes = { 'leasehold.lock': name, 'leasehold.owner': owner };
    if (fence !== undefined) attributes['leasehold.fence'] = Number(fence);
    spans.set(request, tracer.startSpan(kind, { attributes }));
  }

  function end({ request, error }: LockEvent, outcome: string): boolean {
    const span = spans.get(request);
    if (span === undefined) return false;
    spans.delete(request);
    span.setAttribute('leasehold.outcome', outcome);
    if (error !== undefined) {
      span.recordException(error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    }
    span.end();
    return true;
  }

  return (event) => {
    const { step, request, after } = event;
    const outcome = outcomeOf(event);
    const name = nameOf(event.name);
    const plain: Attributes = name === undefined ? {} : { 'leasehold.lock': name };
    const told = { ...plain, 'leasehold.outcome': outcome };
    switch (step) {
      case 'asked':
        return begin(event, 'leasehold.wait');
      case 'queued':
      case 'renewed':
        return void spans.get(request)?.addEvent(step);
      case 'granted':
        waits.record(after / 1_000, told);
        held.add(1, plain);
        end(event, outcome);
        return begin(event, 'leasehold.hold');
      case 'refused':
        waits.record(after / 1_000, told);
        return void end(event, outcome);
      case 'lost':
        lost.add(1, told);
    }
    // One that was lost is released after that, and is held only once.
    if (!end(event, outcome)) return;
    holds.record(after / 1_000, told);
    held.add(-1, plain);
  };
}

function outcomeOf({ step, outcome, error }: LockEvent): string {
  return outcome ?? (error !== undefined ? 'error' : step === 'refused' ? 'busy' : step);
}
