"""Tells OpenTelemetry of locks: a span of each wait and of each hold, and measures of both::

    locks = Leasehold(client, Settings(on_event=Telemetry()))

It needs the package ``opentelemetry-api``.
"""

from __future__ import annotations

from typing import Callable, Optional

from opentelemetry import metrics, trace

from .outcomes import Event
from .settings import Name

SCOPE = "leasehold"


class Telemetry:
    """To be called with each event. ``name_of`` says what measures have as the name of a lock, such as what comes
    before the first colon. Without it they have none: a name for each user is a series for each user."""

    def __init__(
        self,
        tracer: Optional[trace.Tracer] = None,
        meter: Optional[metrics.Meter] = None,
        name_of: Callable[[Name], Optional[str]] = lambda _: None,
    ) -> None:
        self._tracer = tracer or trace.get_tracer(SCOPE)
        its = meter or metrics.get_meter(SCOPE)
        self._name_of = name_of
        waited = "How long a lock was waited for until it was granted or refused"
        self._waits = its.create_histogram("leasehold.wait", "s", waited)
        self._holds = its.create_histogram("leasehold.hold", "s", "How long a lock was held")
        self._lost = its.create_counter("leasehold.lost", "{lock}", "Locks that were lost before they were released")
        self._held = its.create_up_down_counter("leasehold.held", "{lock}", "Locks that are held by this program")
        self._spans: dict[int, trace.Span] = {}  # Those that have begun, by request

    def __call__(self, event: Event) -> None:
        step, name = event.step, self._name_of(event.name)
        plain = {} if name is None else {"leasehold.lock": name}
        outcome = event.outcome or step
        told = {**plain, "leasehold.outcome": outcome}
        if step == "asked":
            self._begin(event, "leasehold.wait")
        elif step in ("queued", "renewed"):
            span = self._spans.get(event.request)
            if span is not None:
                span.add_event(step)
        elif step in ("granted", "refused"):
            self._waits.record(event.seconds, told)
            self._end(event, outcome)
            if step == "granted":
                self._held.add(1, plain)
                self._begin(event, "leasehold.hold")
        else:
            if step == "lost":
                self._lost.add(1, told)
            self._holds.record(event.seconds, told)
            self._held.add(-1, plain)
            self._end(event, outcome)

    def _begin(self, event: Event, kind: str) -> None:
        text = event.name if isinstance(event.name, str) else event.name.decode(errors="replace")
        attributes = {"leasehold.lock": text, "leasehold.owner": event.owner.decode(errors="replace")}
        span = self._spans[event.request] = self._tracer.start_span(kind, attributes=attributes)
        if event.fence:
            span.set_attribute("leasehold.fence", event.fence)

    def _end(self, event: Event, outcome: str) -> None:
        span = self._spans.pop(event.request, None)
        if span is not None:
            span.set_attribute("leasehold.outcome", outcome)
            if event.step == "lost" or outcome == "error":
                span.set_status(trace.Status(trace.StatusCode.ERROR, outcome))
            span.end()
