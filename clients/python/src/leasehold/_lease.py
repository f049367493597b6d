"""A lease as its holder counts it: until when it is valid, when to renew it, and why it is over.

It is over for good: whatever a server answers later does not bring it back. Looked at from several threads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Callable, List, Optional, Tuple

from ._pending import Granted, Pending
from ._time import now, valid_until
from .outcomes import Loss, Released

LONGEST_WAY = 60.0
"""How long an extension may be on its way after nobody waits for its answer any more."""


class LeaseState:
    # fmt: off
    __slots__ = (
        "__weakref__", "_alone", "_end", "_loss", "_renew_at", "_told", "_unanswered", "claim", "fence", "hold_until",
        "is_claimed", "is_extending", "name", "release", "released", "releasing", "renews", "ttl", "unanswered",
        "was_detached",
    )
    # fmt: on

    def __init__(self, pending: Pending, grant: Granted) -> None:
        wanted, here = pending.wanted, now()
        self.name = wanted.name
        self.claim = wanted.claim
        self.fence = grant.fence
        self.ttl = wanted.ttl
        self.renews = wanted.renew
        self.hold_until = here + wanted.hold_at_least if wanted.hold_at_least > 0 else None
        self.was_detached = False
        self.is_claimed = grant.ttl >= wanted.ttl
        """What a message grants may be shorter than the lease, which the first renewal claims."""
        self.is_extending: Optional[asyncio.Lock] = None
        """Held by whoever extends it."""
        self.release: Optional[asyncio.Future[Optional[Released]]] = None
        """Under way, or what came of it, if the loop releases it."""
        self.released: Optional[Released] = None
        """What came of it, if one request did."""
        self.releasing: Optional[threading.Lock] = None
        """Held by the thread that makes it."""
        self.unanswered = pending.unanswered
        """Connections on which it was asked for, and nobody answered."""
        self._alone = threading.RLock()
        self._loss: Optional[Loss] = None
        self._told: List[Callable[[], None]] = []
        self._end = valid_until(grant.asked, grant.ttl)
        # Two renewals may fail before it is over. One that has waited for its turn is asked for sooner.
        left = self._end - here
        self._renew_at = here + left / 3 if left > grant.ttl / 2 else here
        self._unanswered: List[Tuple[float, float]] = []

    @property
    def is_released(self) -> bool:
        """Or on the way to it."""
        return self.release is not None or self.released is not None

    def valid_for(self) -> float:
        """Seconds for which the lock is held for certain, by a clock that nobody sets."""
        with self._alone:
            left = self._end - now()
            if left <= 0:
                self.lose(Loss.EXPIRED)
            return max(0.0, left) if self._loss is None else 0.0

    @property
    def loss(self) -> Optional[Loss]:
        """Why it is over, or None. It looks at the clock: nobody need have noticed before."""
        self.valid_for()
        return self._loss

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
        """It is called at once if it is over, and from whichever thread ends it."""
        with self._alone:
            if self._loss is None:
                self._told.append(tell)
                return
        tell()

    @property
    def end(self) -> float:
        with self._alone:
            return self._end

    @property
    def next_look(self) -> float:
        """When to renew it, or when it is over."""
        with self._alone:
            return min(self._renew_at, self._end) if self.renews else self._end

    def is_due(self, now: float) -> bool:
        with self._alone:
            return self.renews and now >= self._renew_at

    def about_to_extend(self, asked: float, ttl: float) -> None:
        """The server may carry it out at any moment from now on, whether or not it is heard of."""
        with self._alone:
            self._end = min(self._end, valid_until(asked, ttl))

    def not_extended(self, ttl: float) -> None:
        """Nobody waits for the answer any more, and the request may still arrive."""
        with self._alone:
            here = now()
            self._unanswered = [(its, until) for its, until in self._unanswered if until > here]
            self._unanswered.append((ttl, here + LONGEST_WAY))

    def retry_renewal_at(self, moment: float) -> None:
        with self._alone:
            self._renew_at = moment

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
            self._end = valid_until(asked, counted)
            self._renew_at = asked + counted / 3
            return self.valid_for() > 0

    def forget_in_child(self) -> None:
        # Another thread of the parent may have held it when it forked.
        self._alone = threading.RLock()
        self._told = []
        self._loss = Loss.FORKED
        self._end = 0.0
