"""How long to rest before the next try: exponential, with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    first: float
    longest: float

    def ceiling(self, tries: int) -> float:
        """The longest rest after so many tries."""
        return min(self.first * float(2 ** min(tries, 20)), self.longest)

    def rest(self, tries: int) -> float:
        return self.ceiling(tries) * random.random()


RETRY = Backoff(first=0.02, longest=1.0)
"""For requests that failed because of a connection, or of a server that is not ready."""

POLL = Backoff(first=0.01, longest=0.25)
"""For asking again whether a lock is free, where no server keeps a queue."""

ROOM = Backoff(first=0.05, longest=2.0)
"""The same while there is no room to wait in the server's queue."""
