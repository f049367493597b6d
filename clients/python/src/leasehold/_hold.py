"""A lease in the hands of a program, and the blocks that are entered by a request for a lock."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import ContextVar
from typing import Any, Generic, Optional, TypeVar, Union

from ._hub import Hub
from ._pending import LeaseState
from ._questions import EXCLUSIVE, Claim
from ._wanted import Detached
from .errors import LeaseholdError, SettingError
from .outcomes import Loss
from .settings import SHORTEST_TTL, Duration, Name, between

E = TypeVar("E")
W = TypeVar("W")


class Signal:
    _state: LeaseState

    def is_set(self) -> bool:
        """Whether it is lost. It looks at the clock: nobody need have noticed before."""
        return self._state.loss is not None


class Hold:
    def __init__(self, locks: object, hub: Hub, state: LeaseState) -> None:
        # As long as anybody has the lease, its client is not dropped.
        self._locks = locks
        self._hub = hub
        self._state = state

    @property
    def name(self) -> Name:
        """The name of the lock, as it was asked for."""
        return self._state.name

    @property
    def fence(self) -> int:
        """The number of this grant: larger than that of every earlier grant of the lock. Send it with each write."""
        return self._state.fence

    @property
    def owner(self) -> bytes:
        """As whom the server knows this hold."""
        return self._state.claim.owner

    def valid_for(self) -> float:
        """For how many seconds the lock is held for certain; 0 when it is lost. It is counted from before the server
        was asked, by a clock that nobody sets, and needs no server, thread or loop, also after a stop."""
        return self._state.valid_for()

    @property
    def lost(self) -> bool:
        """Whether it is held no more, for whatever reason. It looks at the clock, as :meth:`valid_for` does."""
        return self._state.loss is not None

    @property
    def loss(self) -> Optional[Loss]:
        """Why it is held no more; None while it is."""
        return self._state.loss

    def check(self) -> None:
        """Raises :class:`LockLost` if it is held no more. To be called right before each step of the work."""
        self._state.check()

    def detach(self) -> Detached:
        """Renews it no more, and leaves the lock held until its lease ends. Whoever is given what this returns, here
        or in another program, can adopt the lock: renew it again, and release it. An ephemeral one still ends with the
        connection of this program."""
        self._hub.detach(self._state)
        return Detached(self._state.claim.keys, self.owner, self.fence)

    def _ttl(self, ttl: Optional[Duration]) -> float:
        return self._state.ttl if ttl is None else between("ttl", ttl, SHORTEST_TTL)

    def __repr__(self) -> str:
        state: Union[str, Loss] = self._state.loss or f"valid for {self._state.valid_for():.3f} s"
        return f"<{type(self).__name__} {self.name!r}, fence {self.fence}, {state}>"

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None and not (state.is_released or state.was_detached or state.loss is Loss.FORKED):
            self._hub.call(self._hub.drop, state)


def leave(entered: list[tuple[W, E]], who: W) -> E:
    """The last one that was entered by the same thread or task; or, for a generator, the only one that there is."""
    blocks = list(entered)
    left = [block for block in blocks if block[0] == who][-1:] or blocks
    if len(left) != 1:
        raise LeaseholdError("a block was left by another thread or task than had entered it, and there are several")
    entered.remove(left[0])
    return left[0][1]


_INSIDE: ContextVar[tuple[Any, ...]] = ContextVar("leasehold", default=())


class Reentries(Generic[E]):
    """The blocks with ``reentrant`` that a context is in. A task or thread that is started in a block with a copy of
    the context is in the block, too."""

    def __init__(self) -> None:
        # A finalizer may leave a block in the midst of another step.
        self._alone = threading.RLock()
        self._counts: dict[int, int] = {}

    def again(self, claim: Claim) -> Optional[E]:
        """The lease of a block outside this one that serves, too, unless it is over: also a writer's for a reader, and
        that of several locks for some of them."""
        with self._alone:
            for lease in reversed(_INSIDE.get()):
                keys, share = set(lease._state.claim.keys), lease._state.claim.share
                if id(lease) not in self._counts or lease.lost or keys.isdisjoint(claim.keys):
                    continue
                if not keys.issuperset(claim.keys) or share not in (EXCLUSIVE, claim.share):
                    raise SettingError("reentrant: it is held in another way already, and would wait for itself")
                self._counts[id(lease)] += 1
                found: E = lease
                return found
        return None

    def first(self, lease: E) -> None:
        with self._alone:
            self._counts[id(lease)] = 1
            # What a task that has outlasted a block gave back is still there.
            _INSIDE.set((*(its for its in _INSIDE.get() if not its.lost), lease))

    def is_last(self, lease: E) -> bool:
        """A block is left. Of a lease that is not reentrant it is the last one."""
        if id(lease) not in self._counts:
            return True
        with self._alone:
            left = self._counts.pop(id(lease)) - 1
            if left:
                self._counts[id(lease)] = left
        if not left:
            _INSIDE.set(tuple(its for its in _INSIDE.get() if its is not lease))
        return not left


_STOPS = (Loss.EXPIRED, Loss.TAKEN, Loss.CLOSED)


class Scope:
    """Work under a lock: it is cancelled when the lock is lost, which is told from a cancellation by somebody else."""

    __slots__ = ("_has_cancelled", "_hub", "_is_over", "_others", "_state", "_task")

    def __init__(self, hub: Hub, state: LeaseState, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._state = state
        self._hub = hub
        self._others = _cancellations(task)
        self._is_over = False
        self._has_cancelled = False
        state.when_lost(self._lost)

    def _lost(self) -> None:
        if not self._is_over:
            self._hub.call(self._cancel)

    def _cancel(self) -> None:
        if not self._is_over and self._state.loss in _STOPS:
            self._has_cancelled = True
            self._task.cancel()

    async def stopped_by(self, raised: Optional[type[BaseException]]) -> Optional[Loss]:
        """The work is over."""
        self._is_over = True
        if not self._has_cancelled:
            return None
        if sys.version_info >= (3, 11):
            self._task.uncancel()
        if raised is not None and issubclass(raised, asyncio.CancelledError):
            is_ours = _cancellations(self._task) <= self._others
            return self._state.loss if is_ours else None
        # The work ended before it was cancelled: the cancellation must not hit what comes after it.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if _cancellations(self._task) > self._others:
                raise
        return None


def _cancellations(task: asyncio.Task[object]) -> int:
    if sys.version_info >= (3, 11):
        return task.cancelling()
    return 0
