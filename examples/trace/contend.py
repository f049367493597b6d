"""Two services want the same seat. OpenTelemetry is told of their locks, and this prints the trace that it has then.

The locks are in memory, and no server is needed. A service has ``Leasehold(client, Settings(on_event=Telemetry()))``
instead, and an exporter for its own collector.
"""

from __future__ import annotations

import threading
import time

from leasehold import Settings
from leasehold.opentelemetry import Telemetry
from leasehold.testing import MemoryLocks
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

WIDTH = 40


def main() -> None:
    spans = InMemorySpanExporter()
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    locks: list[MemoryLocks] = []
    tracers = []
    for name in ("booking", "refunds"):
        tracers.append(traces.get_tracer(name))
        telemetry = Telemetry(tracers[-1])
        locks.append(MemoryLocks(Settings(on_event=telemetry), beside=locks[0] if locks else None))

    def refund() -> None:
        with tracers[1].start_as_current_span("refund 12A"), locks[1].lock("seat:12A", wait=60):
            time.sleep(0.1)

    with tracers[0].start_as_current_span("book 12A"), locks[0].lock("seat:12A"):
        refunding = threading.Thread(target=refund)
        refunding.start()
        while not locks[0].waiters("seat:12A"):
            time.sleep(0.01)
        time.sleep(0.2)
    refunding.join()
    for each in locks:
        each.close()
    show(list(spans.get_finished_spans()))


def show(spans: list[ReadableSpan]) -> None:
    """A line for each span, children below their parents: where it lies in time, and what it says."""
    spans.sort(key=lambda span: span.start_time or 0)
    begun, ended = spans[0].start_time or 0, max(span.end_time or 0 for span in spans)
    for parent in (span for span in spans if span.parent is None):
        children = [span for span in spans if span.parent == parent.context]
        for span in [parent, *children]:
            service = span.instrumentation_scope.name if span.instrumentation_scope else ""
            first, last = (
                round(((at or 0) - begun) / (ended - begun) * WIDTH) for at in (span.start_time, span.end_time)
            )
            bar = " " * first + "━" * max(1, last - first)
            name = span.name if span is parent else f"  {span.name}"
            told = dict(span.attributes or {})
            notes = [str(told[key]) for key in ("leasehold.outcome", "leasehold.fence") if key in told]
            notes = [*(event.name for event in span.events), *notes]
            print(f"{service:8} {name:17} {bar:{WIDTH}} {', '.join(notes)}".rstrip())


if __name__ == "__main__":
    main()
