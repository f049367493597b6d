"""Locks for programs of threads. See :class:`Leasehold`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Iterator, Optional, TypeVar, Union

from . import _fork
from ._hold import Hold, Reentries, Signal, leave
from ._hub import Hub, Leaders
from ._naming import naming
from ._pending import LeaseState, Pending
from ._questions import EXCLUSIVE, UNLIMITED
from ._resp import Reply, Word
from ._running import Running
from ._time import now
from ._wanted import BlockOptions, Detached, Factory, OfSeveral, Options, TryOptions, Wanted, candidate_of
from .errors import Busy, Closed, LeaseholdError, SettingError
from .outcomes import Leader, Loss, Released
from .settings import Duration, Name, Renewal, between, patience

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")
L = TypeVar("L", bound="Lease")
log = logging.getLogger("leasehold")


class LossSignal(Signal):
    """Tells of the loss of a lease, as a ``threading.Event`` does."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state
        self._lost: Optional[threading.Event] = None

    def wait(self, timeout: Optional[Duration] = None) -> Optional[Loss]:
        """Waits until it is lost, and says why; None if that has not come within ``timeout``."""
        if self._lost is None:
            lost = self._lost = threading.Event()
            self._state.when_lost(lost.set)
        end = now() + patience("timeout", timeout)
        while self._state.loss is None and now() < end:
            # Not longer than the lease: its end is seen here, too, if the thread of the client cannot run.
            rest = min(end - now(), max(0.001, self._state.valid_for()), 1.0)
            self._lost.wait(max(0.0, rest))
        return self._state.loss


class Lease(Hold):
    """A lock that is held: renewed each third of its ttl until it is released, detached or lost."""

    def __init__(self, locks: Leasehold, running: Running, state: LeaseState) -> None:
        super().__init__(locks, running.hub, state)
        self._running = running

    @functools.cached_property
    def signal(self) -> LossSignal:
        """Tells of its loss."""
        return LossSignal(self._state)

    def extend(self, ttl: Optional[Duration] = None) -> bool:
        """Has the lease end ``ttl`` from now, and renews it by as much from now on. False: the lock is lost."""
        if self.loss is Loss.FORKED:
            return False
        its_ttl, until = self._ttl(ttl), now() + self._hub.limits.within
        return self._running.ask(lambda: self._hub.extend(self._state, its_ttl, until))

    def extend_by(self, duration: Duration) -> bool:
        """The same, with ``duration`` more than what is left."""
        return self.extend(self.valid_for() + between("duration", duration))

    def upgrade(self) -> Optional[int]:
        """From a reader to a writer, ahead of those who wait: the new fence. None if others hold the lock as well, at
        once: two readers that both waited to write would wait for each other. The lease is as it was then."""
        self.check()
        return self._running.ask(lambda: self._hub.reshare(self._state, EXCLUSIVE))

    def downgrade(self) -> Optional[int]:
        """From a writer to a reader: other readers come in. Its fence, which stays."""
        self.check()
        return self._running.ask(lambda: self._hub.reshare(self._state, UNLIMITED))

    def guard(self, *command: Word) -> Reply:
        """Has the server run a command of its own, such as ``"SET", key, value``, if it holds the lock for this lease
        at that moment; :class:`LockLost`, and nothing was run, if not. It is sent once: after :class:`Unanswered`
        it may have been run or not. Texts in the answer are ``bytes``. It needs the module. Of several locks it looks
        at the first one alone."""
        return self._running.guard(self._state, command)

    def release(self) -> Released:
        """Gives the lock back. It takes ``Settings.within`` at most, and goes on in the background after that."""
        return self._running.release(self._state)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        _give_back(self)


class Leadership(Lease):
    """A term of office: a lease that is given back by resigning, and then the next candidate leads."""

    resign = Lease.release


def _give_back(lease: Lease) -> None:
    """What became of the work is worth more than what becomes of the release."""
    try:
        if not (lease.release()).in_time:
            log.warning("the lock %r was lost before it was released", lease.name)
    except LeaseholdError as error:
        log.warning("the lock %r may be held until its lease ends: %s", lease.name, error)


_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class LockRequest:
    """A lock, and how it is asked for: use ``with``, or :meth:`acquire` it. It can be used many times."""

    __slots__ = ("_asked", "_entered", "_locks")

    def __init__(self, locks: Leasehold, asked: Wanted) -> None:
        self._locks = locks
        self._asked = asked
        self._entered: list[tuple[int, Lease]] = []

    def acquire(self) -> Lease:
        """Waits for the lock. :class:`Busy` when others have held it for as long as ``wait`` says."""
        self._asked.check_alone()
        return self._granted(Lease)

    def _granted(self, kind: type[L]) -> L:
        begun = now()
        lease = self._locks._acquire(kind, self._asked.wanted(is_try=False))
        if lease is None:
            raise Busy(self._asked.name, now() - begun)
        return lease

    def try_acquire(self) -> Optional[Lease]:
        """The lock, or None if somebody else has it."""
        self._asked.check_alone()
        return self._locks._acquire(Lease, self._asked.wanted(is_try=True))

    def run(self, work: Callable[[Lease], T]) -> T:
        """Does the work under the lock. Its result is the result, whatever becomes of the release."""
        with self as lease:
            return work(lease)

    def __enter__(self) -> Lease:
        is_reentrant, reentries = self._asked.reentrant, self._locks._reentries
        lease = reentries.again(self._asked.claim) if is_reentrant else None
        if lease is None:
            lease = self._granted(Lease)
            if is_reentrant:
                reentries.first(lease)
        self._entered.append((threading.get_ident(), lease))
        return lease

    def __exit__(self, *_: object) -> None:
        lease = leave(self._entered, threading.get_ident())
        if self._locks._reentries.is_last(lease):
            _give_back(lease)


def _by_hub(ask: Callable[Concatenate[Hub, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Leasehold, P], T]:
    @functools.wraps(ask)
    def method(locks: Leasehold, /, *words: P.args, **options: P.kwargs) -> T:
        running = locks._run()
        return running.ask(lambda: ask(running.hub, *words, **options))

    return method


class Election:
    """One leader among several candidates: a lock that whoever leads holds."""

    def __init__(self, locks: Leasehold, asked: Wanted, look_every: float) -> None:
        self._locks = locks
        self._asked = asked
        self._look_every = look_every

    def campaign(self) -> Leadership:
        """Waits until this candidate leads. Candidates queue, and lead in the order of their coming."""
        return LockRequest(self._locks, self._asked)._granted(Leadership)

    def leader(self) -> Optional[Leader]:
        """Who leads at this moment: None between two terms."""
        info = self._locks.info(self._asked.name)
        return None if info is None else Leader(candidate_of(info.owner), info.fence)

    def observe(self) -> Iterator[Optional[Leader]]:
        """Who leads, and then each who differs from the one before; None: nobody. While no server answers it says
        nothing. Where the server publishes key events it is told; elsewhere it looks every ``look_every``, and may miss
        terms that are shorter."""
        running = self._locks._run()
        leaders = Leaders(running.hub, self._asked.name, self._look_every)
        try:
            with contextlib.suppress(Closed):
                while True:
                    yield running.thread.call(leaders.next, None)
        finally:
            running.hub.call(leaders.close)


class Leasehold(Factory[LockRequest, Election]):
    """Locks on the server of a client of redis-py, or on its cluster, or on the primary that its sentinels name.

    It opens connections of its own, with the client's addresses and passwords: one for requests and one on which
    grants are told of, to each server. A thread of its own drives them. The client is not used, and need not be
    closed before. A child process that was forked begins anew: what its parent holds, it does not.
    """

    _kind = LockRequest
    _election = Election

    def _begin(self) -> None:
        self._starting = threading.RLock()
        self._running: Optional[Running] = None
        self._reentries: Reentries[Lease] = Reentries()
        _fork.remember(self)

    def acquire(self, name: Name, **options: Unpack[Options]) -> Lease:
        """The same as ``lock(…).acquire()``."""
        return self.lock(name, **options).acquire()

    def try_acquire(self, name: Name, **options: Unpack[TryOptions]) -> Optional[Lease]:
        """The same as ``lock(…).try_acquire()``."""
        return self.lock(name, **options).try_acquire()

    def locked(self, name: str, **options: Unpack[BlockOptions]) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Has each call of a function hold a lock, whose name the arguments make up: ``@locks.locked("report:{0}")``,
        or ``"report:{number}"`` with the argument of that name. Their values are escaped, as in a URL."""

        def decorate(work: Callable[P, T]) -> Callable[P, T]:
            name_of = naming(name, work)
            if any(is_one(work) for is_one in _LATER):
                raise SettingError("locked: the work of coroutines and generators begins when the call is over")

            @functools.wraps(work)
            def run(*args: P.args, **kwargs: P.kwargs) -> T:
                with self.lock(name_of(args, kwargs), **options):
                    return work(*args, **kwargs)

            return run

        return decorate

    def adopt(self, held: Union[Detached, str], *, ttl: Optional[Duration] = None, renew: Renewal = True) -> Lease:
        """Goes on with a lock that was left held by :meth:`Lease.detach`, here or in another program.
        :class:`LockLost` if it is held no more."""
        running = self._run()
        return Lease(self, running, running.ask(lambda: running.hub.adopt(held, ttl, renew)))

    info = _by_hub(Hub.info)
    holders = _by_hub(Hub.holders)
    waiters = _by_hub(Hub.waiters)
    top = _by_hub(Hub.top)
    log = _by_hub(Hub.log)

    def close(self, timeout: Duration = 5.0) -> list[Name]:
        """Gives back what is held, and ends all connections and the thread: the last thing that a program does.

        Requests that wait end with :class:`Closed`. It says which locks could not be released in time.
        """
        limit = patience("timeout", timeout)
        with self._starting:
            self._is_closed = True
            running, self._running = self._running, None
        return [] if running is None else running.close(limit)

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> Running:
        running = self._running
        if running is not None:
            return running
        with self._starting:
            if self._is_closed:
                raise Closed
            if self._running is None:
                self._running = Running(self._target, self._settings)
            return self._running

    def __del__(self) -> None:
        running = getattr(self, "_running", None)
        if running is not None:
            running.drop()

    def _acquire(self, kind: type[L], wanted: Wanted) -> Optional[L]:
        running = self._run()
        return running.acquire(Pending(wanted), lambda state: kind(self, running, state))

    def forget_in_child(self) -> None:
        # The loop of the parent is kept as it is: to end it would take the parent's sockets out of its selector.
        _fork.OF_PARENTS.append(self._running)
        self._running = None
        self._starting = threading.RLock()
        self._reentries = Reentries()
        _fork.remember(self)


class Quorum(OfSeveral[LockRequest, Election], Leasehold):
    """Locks on most of several servers that know nothing of each other, such as three or five: ``docs/redlock.md``. It
    has exclusive locks of one name. Nobody queues: whoever waits asks again, at random."""
