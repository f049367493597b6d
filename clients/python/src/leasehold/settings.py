"""What a client does unless a request says otherwise. Durations are seconds, or ``timedelta``."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Callable, Optional, Union

from .errors import SettingError
from .outcomes import Event, Name as Name

Duration = Union[int, float, timedelta]
Renewal = Union[bool, Duration]  # Whether a lease is renewed, or for how long
LONGEST = 100 * 365 * 86_400  # seconds: more is not taken by servers
MOST = 99_999  # holders at a time, as servers count
SHORTEST_TTL = 0.003  # seconds: clocks may differ by two milliseconds


@dataclass(frozen=True)
class Settings:
    """Defaults for all requests of a client."""

    prefix: Name = b""  # What the name of every lock begins with on the server
    ttl: Duration = 30.0  # How long a lease lasts unless it is renewed
    wait: Optional[Duration] = None  # How long ``acquire`` waits; None or infinity: without limit
    response: Duration = 1.0  # How long to wait for each answer; for a short ttl it is less: a fifth of that
    within: Duration = 3.0  # How long a request that does not wait, and a release, goes on trying when servers fail
    unreachable_after: Duration = 30.0  # How long a request that waits goes on while no server answers
    slice: Duration = 5.0  # How often a place in the queue is asked for again. It is kept for three times as long.
    queue: bool = True  # Whether a wait queues on the server. If not, it tries again and again.
    tickets: bool = True  # Whether to wait by tickets. If not, or where there are none, each wait takes a connection.
    wait_connections: int = 16  # How many connections may wait at a time, of threads or where there are no tickets
    confirm: bool = False  # Whether the server confirms a grant that was waited for, before the work begins
    on_event: Optional[Callable[[Event], object]] = None  # Is told of each step of a lock, at once, from any thread

    def __post_init__(self) -> None:
        for field in ("ttl", "response", "within", "unreachable_after", "slice"):
            between(field, getattr(self, field), SHORTEST_TTL if field == "ttl" else 0.001)
        patience("wait", self.wait)
        integer("wait_connections", self.wait_connections, 1)
        octets("prefix", self.prefix)


def seconds(what: str, duration: Duration) -> float:
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise SettingError(f"{what}: it must be a number of seconds, or a timedelta")
    return float(value)


def between(what: str, duration: Duration, least: float = 0.001) -> float:
    value = seconds(what, duration)
    if not least <= value <= LONGEST:
        raise SettingError(f"{what}: it must be from {least:g} to {LONGEST} seconds")
    return value


def integer(what: str, number: int, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MOST:
        raise SettingError(f"{what}: it must be an integer from {least} to {MOST}")
    return number


def patience(what: str, duration: Optional[Duration]) -> float:
    """None and infinity are no limit."""
    if duration is None or (isinstance(duration, float) and duration == math.inf):
        return math.inf
    value = seconds(what, duration)
    return math.inf if value > LONGEST else between(what, value, 0)


def octets(what: str, name: Name) -> bytes:
    """Names are bytes on the server; text is UTF-8."""
    if isinstance(name, bytes):
        return name
    if isinstance(name, str):
        try:
            return name.encode()
        except UnicodeEncodeError as error:
            raise SettingError(f"{what}: UTF-8 has no such text, so give it as bytes: {error}") from error
    raise SettingError(f"{what}: it must be str or bytes")


def millis(duration: float) -> int:
    return max(1, round(duration * 1000))
