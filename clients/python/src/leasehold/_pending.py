"""What may be held, or waited for, in the name of a request that is not granted yet, and how that is given back."""

from __future__ import annotations

import asyncio
import enum
from typing import List, NamedTuple, Optional, Protocol, Set

from ._home import Home
from ._lines import Line
from ._plain import script_for
from ._questions import Claim, Release, words
from ._resp import number, pack
from ._time import now
from ._wanted import Wanted
from .errors import QueueFull, Unreachable

RELEASES_AFTER = (0.0, 0.05, 0.5)
"""When to ask again for what may have been granted to a request on a connection of its own, which was closed: the
server hears of that end and of the release in either order."""


class LastWords(Protocol):
    """A connection on which nobody answered, and which is open for what follows."""

    has_module: bool

    async def last_word(self, packed: bytes, limit: float, /) -> bool: ...


class Pending:
    """What a server may know of a request that is not granted yet."""

    __slots__ = ("full", "may_hold", "parked", "unanswered", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.unanswered: Set[LastWords] = set()
        self.parked: Optional[Line] = None
        self.may_hold = False
        """It may hold the lock, or a place in the queue."""
        self.full: Optional[QueueFull] = None
        """The server had no place for it when it asked last."""


class Granted(NamedTuple):
    fence: int
    asked: float
    """The lease is counted from here."""
    ttl: float
    """What the server granted."""


class Waited(enum.Enum):
    OVER = enum.auto()
    """Patience has ended."""
    NO_QUEUE = enum.auto()
    """The server keeps none: ask again and again."""
    NO_TICKETS = enum.auto()
    """The server gives none to this user: wait on a connection."""
    NOT_NOW = enum.auto()
    """Ask again, after a rest."""
    ASK = enum.auto()
    """Ask again, at once."""


def is_fresh(asked: float, ttl: float) -> bool:
    """Whether so little of the lease has passed that it need not be asked for once more."""
    return now() < asked + ttl / 4


async def give_up(home: Home, pending: Pending) -> None:
    """Gives back what was granted, or may be, to a request that nobody waits for: also a place in a queue."""
    wanted, claim, parked = pending.wanted, pending.wanted.claim, pending.parked
    if parked is not None:
        parked.close()
    limit = home.limits.response
    lines = [line for line in pending.unanswered if line is not parked]
    heard: List[bool] = await asyncio.gather(*(line.last_word(parting_words(line, claim), limit) for line in lines))
    if heard and all(heard) and parked is None:
        # Behind the request, on the same connection: nothing can come after it.
        return
    is_uncertain = parked is not None or not all(heard)
    for rest in RELEASES_AFTER if is_uncertain else (0.0,):
        if rest:
            await asyncio.sleep(rest)
        limits = home.asking.limits(home.limits.within, now() + max(wanted.ttl, home.limits.within), outlasts=True)
        try:
            answer = await home.asking.ask(claim.key, lambda _: Release(claim, None), limits)
        except Unreachable:
            continue
        if number(answer.reply):
            return


def parting_words(line: LastWords, claim: Claim) -> bytes:
    question = Release(claim, None)
    if line.has_module:
        return pack(words(question))
    script, rest = script_for(question)
    return pack([b"EVAL", script.text, *rest])
