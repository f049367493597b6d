"""Until when a lease can be counted on. Pure: moments are arguments.

::

    asked              granted, by the server's clock                    its lease ends
      ├────────────────────┼────────────────────── ttl ─────────────────────┤
      ├────────────────────── ttl ──────────────────────┤
                                             valid until ┤ drift ┤

The lease began at the earliest when it was asked for. Two clocks measure it, and the drift is what they
may differ by meanwhile.
"""

from __future__ import annotations

DRIFT_PART = 0.01
DRIFT_LEAST = 0.002


def drift(ttl: float) -> float:
    return ttl * DRIFT_PART + DRIFT_LEAST


def valid_until(asked: float, ttl: float) -> float:
    return asked + max(0.0, ttl - drift(ttl))


def renew_at(asked: float, ttl: float) -> float:
    """A third of the ttl after it was asked for: two renewals may fail before the lease is over."""
    return asked + ttl / 3


def is_fresh(asked: float, ttl: float, now: float) -> bool:
    """Whether so little of the lease has passed that it need not be asked for once more."""
    return now < asked + ttl / 4
