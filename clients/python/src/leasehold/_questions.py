"""What is asked of a server, in the words of the module. Pure.

The fallback for servers without the module has other words for the same questions: see ``_plain``.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple, Union

from ._resp import Word
from .settings import millis

UNLIMITED = 0
EXCLUSIVE = 1


class Claim(NamedTuple):
    key: bytes
    owner: bytes
    share: int = EXCLUSIVE
    also: Tuple[bytes, ...] = ()
    grace: Optional[float] = None  # How long the hold may outlast the connection, if it is bound to one

    @property
    def keys(self) -> Tuple[bytes, ...]:
        return (self.key, *self.also)


class Acquire(NamedTuple):
    claim: Claim
    ttl: float


class Wait(NamedTuple):
    """Waits on its connection for so long; None: without limit."""

    claim: Claim
    ttl: float
    patience: Optional[float]


class Ticket(NamedTuple):
    """Keeps a place in the queue for so long, and is told on that channel when it is granted; None: it is not told."""

    claim: Claim
    ttl: float
    kept: float
    channel: Optional[bytes]


class Extend(NamedTuple):
    claim: Claim
    ttl: float
    fence: int


class Release(NamedTuple):
    """Without a fence: whatever this owner holds, and its place in the queue."""

    claim: Claim
    fence: Optional[int]


class Look(NamedTuple):
    key: bytes


class Guarded(NamedTuple):
    """Runs a command if this owner holds the lock by this fence."""

    claim: Claim
    fence: int
    command: Tuple[Word, ...]


Question = Union[Acquire, Wait, Ticket, Extend, Release, Look, Guarded]


def words(question: Question) -> List[Word]:
    if isinstance(question, Look):
        return [b"LOCK.INFO", question.key]
    key, owner, share, keys, grace = question.claim
    also: List[Word] = [b"ALSO", len(keys), *keys] if keys else []
    if isinstance(question, Release):
        fence: List[Word] = [] if question.fence is None else [question.fence]
        return [b"LOCK.RELEASE", key, owner, *fence, *also]
    if isinstance(question, Extend):
        return [b"LOCK.EXTEND", key, owner, millis(question.ttl), question.fence, *also]
    if isinstance(question, Guarded):
        return [b"LOCK.GUARD", key, owner, question.fence, *question.command]
    asked: List[Word] = [b"LOCK.ACQUIRE", key, owner, millis(question.ttl)]
    if share != EXCLUSIVE:
        asked += [b"SHARE", share]
    if grace is not None:
        asked += [b"EPHEMERAL", round(grace * 1000)]
    if isinstance(question, Wait):
        asked += [b"BLOCK", 0 if question.patience is None else millis(question.patience)]
    if isinstance(question, Ticket):
        asked += [b"TICKET", millis(question.kept)]
        asked += [] if question.channel is None else [b"NOTIFY", question.channel]
    return asked + also
