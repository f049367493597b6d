"""Moments and durations: the clock of leases, until when one can be counted on, and rests between tries."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from functools import partial
from typing import Any, Awaitable, Callable, NamedTuple, TypeVar

from redis.exceptions import TimeoutError as Silent

T = TypeVar("T")


def _best_clock() -> Callable[[], float]:
    """``time.monotonic`` stands still in a suspend on Linux and macOS: a lease that ended meanwhile would look valid
    after it. Where there is no better clock it is what is left, and then the fence is the only protection."""
    name = "CLOCK_BOOTTIME" if sys.platform.startswith("linux") else "CLOCK_MONOTONIC"
    clock: object = getattr(time, name, None)
    if isinstance(clock, int) and hasattr(time, "clock_gettime"):
        return partial(time.clock_gettime, clock)
    return time.monotonic


now: Callable[[], float] = _best_clock()
"""Seconds since a moment that does not change while the machine runs, suspends included."""

# The lease began at the earliest when it was asked for. Two clocks measure it: the drift is what they may differ by.
DRIFT_PART = 0.01
DRIFT_LEAST = 0.002


def valid_until(asked: float, ttl: float) -> float:
    lasts = ttl * (1 - DRIFT_PART) - DRIFT_LEAST
    return asked + lasts if lasts > 0 else asked


class Backoff(NamedTuple):
    first: float
    longest: float

    def rest(self, tries: int) -> float:
        return min(self.first * float(2 ** min(tries, 20)), self.longest) * random.random()


RETRY = Backoff(first=0.02, longest=1.0)
"""For requests that failed because of a connection, or of a server that is not ready."""

POLL = Backoff(first=0.01, longest=0.25)  # For asking again whether a lock is free, where no server keeps a queue
ROOM = Backoff(first=0.05, longest=2.0)  # The same while there is no room to wait in the server's queue
LONGEST_TIMER = 1e6  # Timers take no infinite duration


async def within(limit: float, what: Awaitable[T]) -> T:
    """Its result, or ``redis.TimeoutError``: then it is cancelled, and not waited for. ``asyncio.wait_for`` waits for
    what it cancelled, and before Python 3.12 may lose a cancellation that comes in the same moment as the result."""
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait([task], timeout=max(0.0, min(limit, LONGEST_TIMER)))
        if task.done():
            return task.result()
        raise Silent(f"no answer within {limit:.3f} s")
    finally:
        if not task.done():
            # It may fail after all.
            task.add_done_callback(looked_at)
            task.cancel()


def wake(waiting: asyncio.Future[Any]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def looked_at(ended: asyncio.Future[T]) -> None:
    if not ended.cancelled():
        ended.exception()
