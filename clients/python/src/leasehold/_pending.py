"""What a request is until it is granted, and the lease that it becomes."""

from __future__ import annotations

import asyncio
import enum
import threading
from typing import Callable, NamedTuple, Optional, Union

from . import _questions
from ._asking import Home
from ._direct import Channel
from ._lines import Line
from ._questions import Question
from ._resp import number, pack
from ._time import now, valid_until
from ._wanted import Wanted
from .errors import LockLost, QueueFull, Unreachable
from .outcomes import Loss, Released

LONGEST_WAY = 60.0  # How long an extension may be on its way after nobody waits for its answer any more


class LeaseState:
    # fmt: off
    __slots__ = (
        "__weakref__", "_alone", "_loss", "_told", "_unanswered", "claim", "end", "fence", "hold_until", "is_claimed",
        "is_extending", "name", "release", "released", "releasing", "renew_at", "renew_until", "ttl", "unanswered",
        "wanted", "was_detached",
    )
    # fmt: on

    def __init__(self, pending: Pending, grant: Granted) -> None:
        wanted, here = pending.wanted, now()
        self.wanted, self.name, self.claim = wanted, wanted.name, wanted.claim
        self.fence = grant.fence
        self.ttl, self.renew_until = wanted.ttl, grant.asked + wanted.renew
        self.hold_until = here + wanted.hold_at_least if wanted.hold_at_least > 0 else None
        self.was_detached = False
        self.is_claimed = grant.ttl >= wanted.ttl
        """What a message grants may be shorter than the lease, which the first renewal claims."""
        self.is_extending: Optional[asyncio.Lock] = None  # Held by whoever extends it
        self.release: Optional[asyncio.Future[Optional[Released]]] = None
        """Under way, or what came of it, if the loop releases it."""
        self.released: Optional[Released] = None  # What came of it, if one request did
        self.releasing: Optional[threading.Lock] = None  # Held by the thread that makes it
        self.unanswered = pending.unanswered  # Connections on which it was asked for, and nobody answered
        self._alone = threading.RLock()
        self._loss: Optional[Loss] = None
        self._told: list[Callable[[], None]] = []
        self.end = valid_until(grant.asked, grant.ttl)
        # Two renewals may fail before it is over. One that has waited for its turn is asked for sooner.
        left = self.end - here
        self.renew_at = here + left / 3 if left > grant.ttl / 2 else here
        self._unanswered: list[tuple[float, float]] = []

    @property
    def is_released(self) -> bool:
        return self.release is not None or self.released is not None

    def valid_for(self) -> float:
        """Seconds for which the lock is held for certain, by a clock that nobody sets."""
        with self._alone:
            left = self.end - now()
            if left <= 0:
                self.lose(Loss.EXPIRED)
            return max(0.0, left) if self._loss is None else 0.0

    @property
    def loss(self) -> Optional[Loss]:
        """Why it is over, or None. It looks at the clock: nobody need have noticed before."""
        self.valid_for()
        return self._loss

    def check(self) -> None:
        loss = self.loss
        if loss is not None:
            raise LockLost(self.name, loss)

    def lose(self, loss: Loss) -> bool:
        """Whether this ended it."""
        with self._alone:
            if self._loss is not None:
                return False
            self._loss = loss
            told, self._told = self._told, []
        for tell in told:
            tell()
        return True

    def when_lost(self, tell: Callable[[], None]) -> None:
        with self._alone:
            if self._loss is None:
                self._told.append(tell)
                return
        tell()

    @property
    def next_look(self) -> float:
        return min(self.renew_at, self.end) if self.renew_at < self.renew_until else self.end

    def about_to_extend(self, asked: float, ttl: float) -> None:
        """The server may carry it out at any moment from now on, whether or not it is heard of."""
        with self._alone:
            self.end = min(self.end, valid_until(asked, ttl))

    def not_extended(self, ttl: float) -> None:
        """Nobody waits for the answer any more, and the request may still arrive."""
        with self._alone:
            here = now()
            self._unanswered = [(its, until) for its, until in self._unanswered if until > here]
            self._unanswered.append((ttl, here + LONGEST_WAY))

    def extended(self, asked: float, ttl: float) -> bool:
        """The server said so. It counts from the asking, and for nothing if it is over already."""
        with self._alone:
            if self.loss is not None:
                return False
            here = now()
            may_arrive = [its for its, until in self._unanswered if until > here]
            counted = min([ttl, *may_arrive])
            self.ttl = ttl
            self.is_claimed = True
            self.end = valid_until(asked, counted)
            self.renew_at = asked + counted / 3
            return self.valid_for() > 0

    def forget_in_child(self) -> None:
        # Another thread of the parent may have held it when it forked.
        self._alone = threading.RLock()
        self._told = []
        self._loss = Loss.FORKED
        self.end = 0.0


RELEASES_AFTER = (0.0, 0.05, 0.5)
"""When to ask again for what may have been granted to a request on a connection of its own, which was closed: the
server hears of that end and of the release in either order."""


class Pending:
    __slots__ = ("begun", "bond", "full", "is_queued", "may_hold", "parked", "unanswered", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.unanswered: set[Union[Line, Channel]] = set()
        self.parked: Optional[Line] = None
        self.bond: Optional[Line] = None  # Where it was asked for last, with tickets or at once
        self.begun = now()
        self.is_queued = False  # Somebody else has it, and this waits
        self.may_hold = False  # It may hold the lock, or a place in the queue
        self.full: Optional[QueueFull] = None  # The server had no place for it when it asked last


class Granted(NamedTuple):
    fence: int
    asked: float  # The lease is counted from here
    ttl: float  # What the server granted


class Waited(enum.Enum):
    OVER = enum.auto()  # Patience has ended
    NO_TICKETS = enum.auto()  # The server gives none to this user: wait on a connection
    NOT_NOW = enum.auto()  # Ask again, after a rest
    ASK = enum.auto()  # Ask again, at once


def is_fresh(asked: float, ttl: float) -> bool:
    return now() < asked + ttl / 4


def queued(home: Home, pending: Pending) -> None:
    if not pending.is_queued:
        pending.is_queued = True
        home.tell("queued", pending.wanted, pending.begun)


async def give_up(home: Home, pending: Pending) -> None:
    """Gives back what was granted, or may be, to a request that nobody waits for: also a place in a queue."""
    wanted, claim, parked = pending.wanted, pending.wanted.claim, pending.parked
    if parked is not None:
        parked.close()
    limit = home.limits.response
    lines = [line for line in pending.unanswered if line is not parked]
    release = _questions.release(claim, None)
    heard: list[bool] = await asyncio.gather(*(line.last_word(in_full(line, release), limit) for line in lines))
    if heard and all(heard) and parked is None:
        # Behind the request, on the same connection: nothing can come after it.
        return
    is_uncertain = parked is not None or not all(heard)
    for rest in RELEASES_AFTER if is_uncertain else (0.0,):
        if rest:
            await asyncio.sleep(rest)
        limits = home.asking.limits(home.limits.within, now() + max(wanted.ttl, home.limits.within), outlasts=True)
        try:
            answer = await home.asking.ask(claim.key, lambda _: release, limits)
        except Unreachable:
            continue
        if number(answer.reply):
            return


def in_full(line: Union[Line, Channel], question: Question) -> bytes:
    if line.has_module:
        return pack(question.words)
    script, rest = question.call()
    return pack([b"EVAL", script.text, *rest])
