"""The clock by which leases are counted.

It goes on while the machine is suspended, where the system has such a clock. ``time.monotonic`` stands
still in a suspend on Linux and macOS: a lease that ended meanwhile would look valid after it. Where there
is no better clock it is what is left, and then the fence is the only protection after a suspend.
"""

from __future__ import annotations

import sys
import time
from typing import Callable


def _best_clock() -> Callable[[], float]:
    name = "CLOCK_BOOTTIME" if sys.platform.startswith("linux") else "CLOCK_MONOTONIC"
    clock: object = getattr(time, name, None)
    if isinstance(clock, int) and hasattr(time, "clock_gettime"):
        return lambda: time.clock_gettime(clock)
    return time.monotonic


now: Callable[[], float] = _best_clock()
"""Seconds since a moment that does not change while the machine runs."""
