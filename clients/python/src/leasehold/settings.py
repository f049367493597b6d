"""What a client does unless a request says otherwise. Durations are seconds, or ``timedelta``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional, Union

from .errors import SettingError

Duration = Union[int, float, timedelta]
Name = Union[str, bytes]


@dataclass(frozen=True)
class Settings:
    """Defaults for all requests of a client."""

    prefix: Name = b""
    """What the name of every lock begins with on the server."""
    ttl: Duration = 30.0
    """How long a lease lasts unless it is renewed."""
    wait: Optional[Duration] = None
    """How long ``acquire`` waits for a lock that others hold; None or infinity: without limit."""
    response: Duration = 1.0
    """How long to wait for each answer of a server. For a short ttl it is less: a fifth of that."""
    within: Duration = 3.0
    """How long a request that does not wait, and a release, goes on trying when servers fail."""
    unreachable_after: Duration = 30.0
    """How long a request that waits goes on while no server answers."""
    slice: Duration = 5.0
    """How often a place in the queue is asked for again. It is kept for three times as long."""
    tickets: bool = True
    """Whether to wait by tickets. If not, or where there are none, each wait takes a connection."""
    wait_connections: int = 16
    """How many connections may wait at a time: those of threads, and where requests do not wait by tickets."""
    confirm: bool = False
    """Whether a grant that was waited for is confirmed by the server before the work begins. It is one more request."""

    def __post_init__(self) -> None:
        for field in ("ttl", "response", "within", "unreachable_after", "slice"):
            positive(field, getattr(self, field))
        patience("wait", self.wait)
        if self.wait_connections < 1:
            raise SettingError("wait_connections: it must be at least 1")
        octets("prefix", self.prefix)


def seconds(what: str, duration: Duration) -> float:
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value < math.inf:
        raise SettingError(f"{what}: it must be a number of seconds, or a timedelta")
    try:
        return float(value)
    except OverflowError as error:
        raise SettingError(f"{what}: it must be a number of seconds, or a timedelta") from error


def positive(what: str, duration: Duration) -> float:
    value = seconds(what, duration)
    if value < 0.001:
        raise SettingError(f"{what}: it must be at least a millisecond")
    return value


def patience(what: str, duration: Optional[Duration]) -> float:
    """None and infinity are no limit."""
    if duration is None or (isinstance(duration, float) and duration == math.inf):
        return math.inf
    return not_negative(what, duration)


def not_negative(what: str, duration: Duration) -> float:
    value = seconds(what, duration)
    if value < 0:
        raise SettingError(f"{what}: it must not be negative")
    return value


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
