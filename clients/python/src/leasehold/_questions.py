"""What is asked of a server: in the words of the module, and by scripts where there is none. Pure."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Union

from . import _plain
from ._resp import Word
from .errors import NeedsModule
from .settings import millis

UNLIMITED = 0
EXCLUSIVE = 1

Call = tuple[_plain.Script, list[Word]]


class Claim(NamedTuple):
    key: bytes
    owner: bytes
    share: int = EXCLUSIVE
    also: tuple[bytes, ...] = ()
    grace: Optional[float] = None  # How long the hold may outlast the connection, if it is bound to one

    @property
    def keys(self) -> tuple[bytes, ...]:
        return (self.key, *self.also)


class Question(NamedTuple):
    key: bytes
    words: list[Word]
    plain: Union[Callable[[], Call], str]  # The script, and what follows it in EVAL; or what needs the module

    def call(self) -> Call:
        if isinstance(self.plain, str):
            raise NeedsModule("ERR", f"{self.plain} need the module leasehold, which this server does not have")
        return self.plain()


def acquire(claim: Claim, ttl: float, *options: Word) -> Question:
    """By scripts nobody waits: whoever asks to wait is told of the present."""
    key, owner, share, _, grace = claim
    asked: list[Word] = [b"LOCK.ACQUIRE", key, owner, millis(ttl)]
    if share != EXCLUSIVE:
        asked += [b"SHARE", share]
    if grace is not None:
        asked += [b"EPHEMERAL", round(grace * 1000)]
    asked += [*options, *_also(claim)]
    if share != EXCLUSIVE or grace is not None:
        return Question(key, asked, "several holders, and ephemeral holds,")
    return Question(key, asked, lambda: _plain.acquire(claim.keys, owner, millis(ttl)))


def wait(claim: Claim, ttl: float, patience: Optional[float]) -> Question:
    """Waits on its connection for so long; None: without limit."""
    return acquire(claim, ttl, b"BLOCK", 0 if patience is None else millis(patience))


def ticket(claim: Claim, ttl: float, kept: float, channel: Optional[bytes]) -> Question:
    """Keeps a place in the queue for so long, and is told on that channel when it is granted; None: it is not told."""
    return acquire(claim, ttl, b"TICKET", millis(kept), *((b"NOTIFY", channel) if channel is not None else ()))


def extend(claim: Claim, ttl: float, fence: int) -> Question:
    key, owner, lasts = claim.key, claim.owner, millis(ttl)
    its_words = [b"LOCK.EXTEND", key, owner, lasts, fence, *_also(claim)]
    return Question(key, its_words, lambda: (_plain.EXTEND, _of(claim, _plain.value(owner, fence), lasts)))


def release(claim: Claim, fence: Optional[int]) -> Question:
    """Without a fence: whatever this owner holds, and its place in the queue."""
    key, owner, fences = claim.key, claim.owner, () if fence is None else (fence,)
    its_words = [b"LOCK.RELEASE", key, owner, *fences, *_also(claim)]
    return Question(
        key, its_words, lambda: (_plain.RELEASE, _of(claim, owner, *[_plain.value(owner, each) for each in fences]))
    )


def raised(claim: Claim, fence: int) -> Question:
    key, owner, day = claim.key, claim.owner, _plain.DAY_MILLIS
    rest: list[Word] = [2, key, _plain.beside(key), owner, b"%016d" % fence, day, day * 1000]
    return Question(key, [b"LOCK.RAISE", key, owner, fence], lambda: (_plain.RAISE, rest))


def look(key: bytes) -> Question:
    return Question(key, [b"LOCK.INFO", key], lambda: (_plain.LOOK, [1, key]))


def listing(key: bytes, *command: Word) -> Question:
    return Question(key, [*command], "lists of holders, of waiters and of events")


def guarded(claim: Claim, fence: int, command: tuple[Word, ...]) -> Question:
    return Question(claim.key, [b"LOCK.GUARD", claim.key, claim.owner, fence, *command], "guarded commands")


def _of(claim: Claim, *arguments: Word) -> list[Word]:
    return [len(claim.keys), *claim.keys, *arguments]


def _also(claim: Claim) -> list[Word]:
    return [b"ALSO", len(claim.also), *claim.also] if claim.also else []
