"""Locks for programs of asyncio: what :mod:`leasehold` has for those of threads, to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, Optional, TypeVar, Union

from . import _fork
from ._hold import Hold, Reentries, Scope, Signal, leave
from ._hub import Hub, Leaders
from ._naming import naming
from ._pending import LeaseState, Pending
from ._questions import EXCLUSIVE, UNLIMITED
from ._resp import Reply, Word
from ._time import now
from ._wanted import BlockOptions, Detached, Factory, OfSeveral, Options, TryOptions, Wanted, candidate_of
from .errors import Busy, Closed, LeaseholdError, LockLost, SettingError
from .outcomes import Leader, Loss, Released
from .settings import Duration, Name, Renewal, between, patience

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")
L = TypeVar("L", bound="Lease")
log = logging.getLogger("leasehold")


class LossSignal(Signal):
    """Tells of the loss of a lease."""

    def __init__(self, hub: Hub, state: LeaseState) -> None:
        self._hub = hub
        self._state = state
        self._lost: Optional[asyncio.Event] = None

    async def wait(self) -> Loss:
        """Waits until it is lost, and says why."""
        if self._lost is None:
            lost = self._lost = asyncio.Event()
            self._state.when_lost(lambda: self._hub.call(lost.set))
        await self._lost.wait()
        loss = self._state.loss
        assert loss is not None
        return loss


class Lease(Hold):
    """A lock that is held: renewed each third of its ttl until it is released, detached or lost."""

    _task: Optional[asyncio.Task[Any]] = None  # In a block of which it was acquired

    @functools.cached_property
    def signal(self) -> LossSignal:
        return LossSignal(self._hub, self._state)

    async def extend(self, ttl: Optional[Duration] = None) -> bool:
        return await self._hub.extend(self._state, self._ttl(ttl), now() + self._hub.limits.within)

    async def extend_by(self, duration: Duration) -> bool:
        return await self.extend(self.valid_for() + between("duration", duration))

    async def upgrade(self) -> Optional[int]:
        return await self._hub.reshare(self._state, EXCLUSIVE)

    async def downgrade(self) -> Optional[int]:
        return await self._hub.reshare(self._state, UNLIMITED)

    async def guard(self, *command: Word) -> Reply:
        return await self._hub.guard(self._state, command)

    async def release(self) -> Released:
        return await self._hub.release(self._state, self._hub.limits.within)

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await _give_back(self)


class Leadership(Lease):
    """A term of office: a lease that is given back by resigning, and then the next candidate leads."""

    resign = Lease.release


async def _give_back(lease: Lease) -> None:
    """What became of the work is worth more than what becomes of the release."""
    try:
        if not (await lease._hub.release(lease._state, lease._hub.limits.within)).in_time:
            log.warning("the lock %r was lost before it was released", lease.name)
    except LeaseholdError as error:
        log.warning("the lock %r may be held until its lease ends: %s", lease.name, error)


class LockRequest:
    """A lock, and how it is asked for: ``async with`` it, or :meth:`acquire` it. It can be used many times."""

    __slots__ = ("_asked", "_entered", "_locks")

    def __init__(self, locks: Leasehold, asked: Wanted) -> None:
        self._locks = locks
        self._asked = asked
        self._entered: list[tuple[Optional[asyncio.Task[Any]], tuple[Lease, Optional[Scope]]]] = []

    async def acquire(self) -> Lease:
        self._asked.check_alone()
        return await self._granted(Lease)

    async def _granted(self, kind: type[L]) -> L:
        hub, pending = self._locks._hub_here(), Pending(self._asked.wanted(is_try=False))
        state = await hub.acquire(pending)
        if state is None:
            raise Busy(self._asked.name, now() - pending.begun)
        return kind(self._locks, hub, state)

    async def try_acquire(self) -> Optional[Lease]:
        self._asked.check_alone()
        hub = self._locks._hub_here()
        state = await hub.acquire(Pending(self._asked.wanted(is_try=True)))
        return None if state is None else Lease(self._locks, hub, state)

    async def run(self, work: Callable[[Lease], Awaitable[T]]) -> T:
        async with self as lease:
            return await work(lease)

    async def __aenter__(self) -> Lease:
        is_reentrant, reentries = self._asked.reentrant, self._locks._reentries
        task = asyncio.current_task()
        assert task is not None
        lease = reentries.again(self._asked.claim) if is_reentrant else None
        # The block outside cancels the task, if it is the same one.
        is_inside = lease is not None and lease._task is task
        if lease is None:
            lease = await self._granted(Lease)
            lease._task = task
            if is_reentrant:
                reentries.first(lease)
        self._entered.append((task, (lease, None if is_inside else Scope(lease._hub, lease._state, task))))
        return lease

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lease, scope = leave(self._entered, asyncio.current_task())
        try:
            loss = None if scope is None else await scope.stopped_by(kind)
        finally:
            if scope is not None and lease._task is asyncio.current_task():
                lease._task = None
            if self._locks._reentries.is_last(lease):
                await _give_back(lease)
        if loss is not None:
            raise LockLost(lease.name, loss) from error


def _by_hub(
    ask: Callable[Concatenate[Hub, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Leasehold, P], Coroutine[Any, Any, T]]:
    @functools.wraps(ask)
    async def method(locks: Leasehold, /, *words: P.args, **options: P.kwargs) -> T:
        return await ask(locks._hub_here(), *words, **options)

    return method


class Election:
    """One leader among several candidates: a lock that whoever leads holds."""

    def __init__(self, locks: Leasehold, asked: Wanted, look_every: float) -> None:
        self._locks = locks
        self._asked = asked
        self._look_every = look_every

    async def campaign(self) -> Leadership:
        return await LockRequest(self._locks, self._asked)._granted(Leadership)

    async def leader(self) -> Optional[Leader]:
        info = await self._locks.info(self._asked.name)
        return None if info is None else Leader(candidate_of(info.owner), info.fence)

    async def observe(self) -> AsyncIterator[Optional[Leader]]:
        leaders = Leaders(self._locks._hub_here(), self._asked.name, self._look_every)
        with contextlib.closing(leaders), contextlib.suppress(Closed):
            while True:
                yield await leaders.next()


class Leasehold(Factory[LockRequest, Election]):
    """Locks on the server of a client of redis-py, or on its cluster, or on the primary that its sentinels name.

    It opens connections of its own, with the client's addresses and passwords: one for requests and one on which
    grants are told of, to each server. The client is not used, and need not be closed before.
    """

    _kind = LockRequest
    _election = Election

    def _begin(self) -> None:
        self._hub: Optional[Hub] = None
        self._reentries: Reentries[Lease] = Reentries()
        _fork.remember(self)

    async def acquire(self, name: Name, **options: Unpack[Options]) -> Lease:
        return await self.lock(name, **options).acquire()

    async def try_acquire(self, name: Name, **options: Unpack[TryOptions]) -> Optional[Lease]:
        return await self.lock(name, **options).try_acquire()

    def locked(
        self, name: str, **options: Unpack[BlockOptions]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Has each call of a coroutine function hold a lock: see :meth:`leasehold.Leasehold.locked`."""

        def decorate(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            name_of = naming(name, work)
            if not inspect.iscoroutinefunction(work):
                raise SettingError("locked: it must be a coroutine function")

            @functools.wraps(work)
            async def run(*args: P.args, **kwargs: P.kwargs) -> T:
                async with self.lock(name_of(args, kwargs), **options):
                    return await work(*args, **kwargs)

            return run

        return decorate

    async def adopt(
        self, held: Union[Detached, str], *, ttl: Optional[Duration] = None, renew: Renewal = True
    ) -> Lease:
        """Goes on with a lock that was left held by :meth:`Lease.detach`, here or in another program.
        :class:`LockLost` if it is held no more."""
        hub = self._hub_here()
        return Lease(self, hub, await hub.adopt(held, ttl, renew))

    info = _by_hub(Hub.info)
    holders = _by_hub(Hub.holders)
    waiters = _by_hub(Hub.waiters)
    top = _by_hub(Hub.top)
    log = _by_hub(Hub.log)

    async def close(self, timeout: Duration = 5.0) -> list[Name]:
        """Gives back what is held, and ends all connections: see :meth:`leasehold.Leasehold.close`."""
        self._is_closed = True
        hub = self._hub
        return [] if hub is None else await hub.close(patience("timeout", timeout))

    async def __aenter__(self) -> Leasehold:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def forget_in_child(self) -> None:
        # It is not ended: that would take the parent's sockets out of the parent's selector.
        _fork.OF_PARENTS.append(self._hub)
        self._hub = None
        self._reentries = Reentries()
        _fork.remember(self)

    def _hub_here(self) -> Hub:
        if self._is_closed:
            raise Closed
        loop = asyncio.get_running_loop()
        if self._hub is not None and self._hub.loop is not loop:
            if not self._hub.loop.is_closed():
                raise SettingError("client: it is used on another event loop: create one for each")
            self._hub = None
        if self._hub is None:
            self._hub = Hub(self._target, self._settings)
        return self._hub

    def __del__(self) -> None:
        hub = getattr(self, "_hub", None)
        if hub is not None:
            hub.drop_all()


class Quorum(OfSeveral[LockRequest, Election], Leasehold):
    """Locks on most of several servers that know nothing of each other, such as three or five: ``docs/redlock.md``. It
    has exclusive locks of one name. Nobody queues: whoever waits asks again, at random."""
