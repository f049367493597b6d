"""What is asked of a server, in the words of the module. Pure.

The fallback for servers without the module has other words for the same questions: see ``_plain``.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple, Union

from ._resp import Word
from .settings import millis

UNLIMITED = 0
EXCLUSIVE = 1


class Acquire(NamedTuple):
    owner: bytes
    ttl: float
    share: int


class Wait(NamedTuple):
    """Waits on its connection for so long; None: without limit."""

    owner: bytes
    ttl: float
    share: int
    patience: Optional[float]


class Ticket(NamedTuple):
    """Keeps a place in the queue for so long, and is told on that channel when it is granted; None: it is not told."""

    owner: bytes
    ttl: float
    share: int
    kept: float
    channel: Optional[bytes]


class Extend(NamedTuple):
    owner: bytes
    ttl: float
    fence: int


class Release(NamedTuple):
    """Without a fence: whatever this owner holds, and its place in the queue."""

    owner: bytes
    fence: Optional[int]


class Look(NamedTuple):
    """Who holds it?"""


class Guarded(NamedTuple):
    """Runs a command if this owner holds the lock by this fence."""

    owner: bytes
    fence: int
    command: Tuple[Word, ...]


Question = Union[Acquire, Wait, Ticket, Extend, Release, Look, Guarded]


def words(key: bytes, question: Question) -> List[Word]:
    if isinstance(question, Release):
        fence: List[Word] = [] if question.fence is None else [question.fence]
        return [b"LOCK.RELEASE", key, question.owner, *fence]
    if isinstance(question, Extend):
        return [b"LOCK.EXTEND", key, question.owner, millis(question.ttl), question.fence]
    if isinstance(question, Guarded):
        return [b"LOCK.GUARD", key, question.owner, question.fence, *question.command]
    if isinstance(question, Look):
        return [b"LOCK.INFO", key]
    asked: List[Word] = [b"LOCK.ACQUIRE", key, question.owner, millis(question.ttl)]
    if question.share != EXCLUSIVE:
        asked += [b"SHARE", question.share]
    if isinstance(question, Wait):
        asked += [b"BLOCK", 0 if question.patience is None else millis(question.patience)]
    if isinstance(question, Ticket):
        asked += [b"TICKET", millis(question.kept)]
        asked += [] if question.channel is None else [b"NOTIFY", question.channel]
    return asked
