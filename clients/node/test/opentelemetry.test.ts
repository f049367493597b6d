import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { context, createNoopMeter, metrics, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Redis } from 'ioredis';
import { Leasehold, Quorum } from '../src/index.js';
import { telemetry } from '../src/opentelemetry.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

describe('OpenTelemetry is told', () => {
  const spans = new InMemorySpanExporter();
  const measures = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: measures, exportIntervalMillis: 3_600_000 });
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  let server: TestServer;
  let client: Redis;
  let locks: Leasehold;
  before(async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    trace.setGlobalTracerProvider(provider);
    metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
    server = await TestServer.start();
    client = new Redis({ path: server.socket });
    locks = new Leasehold(client, { onEvent: telemetry({ nameOf: (lock) => lock.split(':')[0] }) });
  });
  after(async () => {
    await locks.close();
    client.disconnect();
    await server.stop();
    await reader.shutdown();
    for (const api of [context, trace, metrics]) api.disable();
  });

  it('of waits and holds, as children of what the program does', async () => {
    const first = await locks.acquire('seat:12A');
    const parent = trace.getTracer('program').startSpan('booking');
    const booking = context.with(trace.setSpan(context.active(), parent), async () => {
      const lease = await locks.acquire('seat:12A', { wait: 20_000 });
      await lease.extend();
      await lease.release();
      return lease.fence;
    });
    await eventually(async () => (await server.waiters('seat:12A')) === 1);
    assert.equal(await locks.tryAcquire('seat:12A'), null);
    await first.release();
    const fence = await booking;
    const lost = await locks.acquire('seat:12B');
    await server.call('DEL', 'seat:12B');
    await lost.extend();
    await lost.release();

    const quorum = new Quorum([client], { onEvent: telemetry({ meter: createNoopMeter() }) });
    await (await quorum.acquire('most')).release();
    await quorum.close();

    const told = spans.getFinishedSpans();
    const kinds = told.map(({ name, attributes }) => `${name.slice(10)} ${attributes['leasehold.outcome']}`);
    assert.deepEqual(kinds.sort(), [
      'hold released',
      'hold released',
      'hold released',
      'hold taken',
      'wait busy',
      'wait granted',
      'wait granted',
      'wait granted',
      'wait granted',
    ]);
    const children = told.filter((span) => span.parentSpanContext?.spanId === parent.spanContext().spanId);
    assert.deepEqual(
      children.map(({ name, events }) => [name, events.map((event) => event.name)]),
      [
        ['leasehold.wait', ['queued']],
        ['leasehold.hold', ['renewed']],
      ],
    );
    const attributes = children[1]?.attributes;
    assert.deepEqual([attributes?.['leasehold.lock'], attributes?.['leasehold.fence']], ['seat:12A', Number(fence)]);

    await reader.forceFlush();
    const [exported] = measures.getMetrics();
    const points = exported?.scopeMetrics.flatMap(({ metrics }) => metrics) ?? [];
    const sums = Object.fromEntries(
      points.map(({ descriptor, dataPoints }) => [
        descriptor.name,
        dataPoints.map(({ value, attributes }) => [
          attributes['leasehold.lock'],
          attributes['leasehold.outcome'],
          typeof value === 'number' ? value : (value as { count: number }).count,
        ]),
      ]),
    );
    assert.deepEqual(sums, {
      'leasehold.wait': [
        ['seat', 'granted', 3],
        ['seat', 'busy', 1],
      ],
      'leasehold.hold': [
        ['seat', 'released', 2],
        ['seat', 'taken', 1],
      ],
      'leasehold.lost': [['seat', 'taken', 1]],
      'leasehold.held': [['seat', undefined, 0]],
    });
  });
});
