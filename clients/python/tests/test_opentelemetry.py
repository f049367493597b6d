"""OpenTelemetry is told of waits and holds, as children of what the program does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from leasehold import Leasehold, Quorum, Settings
from servers import Server, eventually, raw

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leasehold.opentelemetry import Telemetry


def test_waits_and_holds_are_told_of(server: Server) -> None:
    spans, reader, traces = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    tracer = traces.get_tracer("program")
    meter = MeterProvider([reader]).get_meter("leasehold")
    telemetry = Telemetry(tracer, meter, lambda name: str(name).partition(":")[0])
    with (
        Leasehold(redis.Redis.from_url(server.url), Settings(on_event=telemetry)) as locks,
        ThreadPoolExecutor() as pool,
    ):
        first = locks.acquire("seat:12A")

        def book() -> tuple[int, int]:
            with tracer.start_as_current_span("booking") as span, locks.lock("seat:12A", wait=60) as lease:
                lease.extend()
                return lease.fence, span.get_span_context().span_id

        booking = pool.submit(book)
        eventually(lambda: raw(server, "LOCK.WAITERS", "seat:12A"), "it waits")
        assert locks.try_acquire("seat:12A") is None
        first.release()
        fence, booked = booking.result(60)
        lost = locks.acquire("seat:12B")
        raw(server, "DEL", "seat:12B")
        assert not lost.extend()
        locks.acquire("seat:12C").detach()
        # One owner of two locks, and one that others have.
        with locks.lock("seat:13", owner="me"), locks.lock("seat:14", owner="me"):
            pass
        assert telemetry._spans == {}
        told = spans.get_finished_spans()
    kinds = [
        f"{span.name[10:]} {(span.attributes or {}).get('leasehold.outcome')}"
        for span in told
        if span.name != "booking"
    ]
    assert (
        sorted(kinds) == ["hold detached"] + ["hold released"] * 4 + ["hold taken", "wait busy"] + ["wait granted"] * 6
    )
    waited, held = (span for span in told if span.parent is not None and span.parent.span_id == booked)
    assert [event.name for event in waited.events] == ["queued"]
    assert [event.name for event in held.events] == ["renewed"]
    attributes: Any = held.attributes
    assert (attributes["leasehold.lock"], attributes["leasehold.fence"]) == ("seat:12A", fence)
    data: Any = reader.get_metrics_data()
    counts = {
        (metric.name[10:], point.attributes["leasehold.lock"], point.attributes.get("leasehold.outcome")): getattr(
            point, "count", getattr(point, "value", None)
        )
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert counts == {
        ("wait", "seat", "granted"): 6,
        ("wait", "seat", "busy"): 1,
        ("hold", "seat", "released"): 4,
        ("hold", "seat", "detached"): 1,
        ("hold", "seat", "taken"): 1,
        ("lost", "seat", "taken"): 1,
        ("held", "seat", None): 0,
    }


def test_a_quorum_leaves_no_span(server: Server) -> None:
    traces = TracerProvider()
    telemetry = Telemetry(traces.get_tracer("program"), MeterProvider([InMemoryMetricReader()]).get_meter("leasehold"))
    with Quorum([redis.Redis.from_url(server.url)], Settings(on_event=telemetry)) as locks:
        for _ in range(3):
            locks.acquire("x").release()
    assert telemetry._spans == {}
