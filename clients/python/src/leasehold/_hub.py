"""What a client has on one event loop: its connections, its leases, and what goes on in the background."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Dict, List, Optional, Set, Tuple, TypeVar

from . import _clock
from ._acquiring import Pending, Wanted, give_up, granted, parting_words
from ._lease import LeaseState
from ._plain import parse
from ._questions import Extend, Guarded, Look, Release
from ._reply import Reply, Word, fields, number
from ._routes import Routes
from ._target import Target
from ._wire import Wire
from .errors import Closed, LeaseholdError, LockLost, Refused, Unreachable
from .outcomes import LockInfo, Loss, Released
from .settings import Name, Settings, octets, seconds

T = TypeVar("T")
log = logging.getLogger("leasehold")

LONGEST_SLEEP = 1.0
"""The clock of event loops stands still in a suspend: a loss is noticed so long after it."""

_LAST: Set[asyncio.Future[None]] = set()
"""What closes clients that nobody has any more."""

LONGEST_LIMIT = 1e6
"""Timers take no infinite one."""

_NOT_HELD = (Loss.EXPIRED, Loss.TAKEN, Loss.FORKED)


@dataclass(frozen=True)
class HubLimits:
    """The durations of the settings, in seconds."""

    response: float
    within: float
    unreachable_after: float
    slice: float


class Hub:
    """Create it on the loop on which it is to be used."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.settings = settings
        names = ("response", "within", "unreachable_after", "slice")
        self.limits = HubLimits(**{name: seconds(name, getattr(settings, name)) for name in names})
        self.loop = asyncio.get_running_loop()
        self.wire = Wire(Routes(target, self.limits.response), self.limits.response)
        self.waiting = 0
        self.parked = 0
        self.leases: Set[LeaseState] = set()
        self._requests: Set[asyncio.Future[Any]] = set()
        self._background: Set[asyncio.Future[Any]] = set()
        self._keepers: Set[asyncio.Future[None]] = set()
        self._giving_back: Dict[asyncio.Future[Any], Name] = {}
        """What is being released, and what may have been granted to those who gave up."""
        self._not_released: List[Tuple[Name, float]] = []
        """What a server refused to release, and when its lease ends."""
        self.is_closed = False
        self._closing: Optional[asyncio.Future[List[Name]]] = None

    async def run(self, request: Coroutine[object, object, T]) -> T:
        """Ends with :class:`Closed` when the client is closed. A lease that comes when nobody waits any more is
        given back."""
        if self.is_closed:
            request.close()
            raise Closed
        task = asyncio.ensure_future(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            task.add_done_callback(self._give_back)
            raise
        if task.cancelled():
            raise Closed
        return task.result()

    def _give_back(self, task: asyncio.Future[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            result: object = task.result()
            if isinstance(result, LeaseState):
                self.drop(result)

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._background.add(task)

        def ended(ended: asyncio.Future[T]) -> None:
            self._background.discard(ended)
            if not ended.cancelled() and ended.exception() is not None:
                log.debug("in the background: %r", ended.exception())

        task.add_done_callback(ended)
        return task

    def _give_back_by(self, name: Name, end: float, work: Coroutine[object, object, T]) -> asyncio.Future[T]:
        """Whoever closes the client is told the name if it takes too long, or fails before the lease ends."""
        giving = self.spawn(work)
        self._giving_back[giving] = name

        def ended(given: asyncio.Future[T]) -> None:
            del self._giving_back[given]
            now = _clock.now()
            self._not_released = [each for each in self._not_released if each[1] > now]
            if not given.cancelled() and given.exception() is not None:
                self._not_released.append((name, end))

        giving.add_done_callback(ended)
        return giving

    async def acquire(self, wanted: Wanted) -> Optional[LeaseState]:
        """None when others have held the lock until patience ended."""
        pending = Pending(wanted)
        grant = None
        try:
            grant = await granted(self, pending)
        finally:
            if grant is None and pending.may_hold:
                self._give_back_by(wanted.name, _clock.now() + wanted.ttl, give_up(self, pending))
        if grant is None:
            return None
        hold_until = _clock.now() + wanted.hold_at_least if wanted.hold_at_least > 0 else None
        state = LeaseState(
            wanted.name,
            wanted.key,
            wanted.owner,
            grant.fence,
            grant.asked,
            wanted.ttl,
            wanted.renew,
            hold_until,
        )
        state.unanswered = pending.unanswered
        self.leases.add(state)
        keeper = asyncio.ensure_future(self._keep(state))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)
        state.when_lost(lambda: self._call(keeper.cancel))
        return state

    def _call(self, what: Callable[[], object]) -> None:
        """From any thread; nothing if the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:
            pass

    async def _keep(self, state: LeaseState) -> None:
        """Renews it, and sees it end."""
        try:
            while state.loss is None:
                now = _clock.now()
                if not state.is_due(now):
                    await asyncio.sleep(max(0.0, min(state.next_look - now, LONGEST_SLEEP)))
                    continue
                try:
                    await self.extend(state, state.ttl, state.end)
                except LeaseholdError as error:
                    state.retry_renewal_at(_clock.now() + max(0.02, state.ttl / 10))
                    if state.loss is None:
                        log.warning("the lock %r could not be renewed yet: %s", state.name, error)
        finally:
            self.leases.discard(state)
            if state.loss in (Loss.EXPIRED, Loss.TAKEN):
                log.warning("the lock %r was lost: %s", state.name, state.loss.value if state.loss else "")

    async def extend(self, state: LeaseState, ttl: float, until: float) -> bool:
        """Whether the lease ends a ttl from now. One at a time: two might arrive in either order."""
        if state.is_extending is None:
            state.is_extending = asyncio.Lock()
        async with state.is_extending:
            if state.loss is not None:
                return False

            def question(asked: float) -> Extend:
                state.about_to_extend(asked, ttl)
                return Extend(state.owner, ttl, state.fence)

            is_answered = False
            try:
                limits = self.wire.limits(ttl, min(until, state.end))
                answer = await self.wire.ask(state.key, question, limits)
                is_answered = not answer.is_repeated
            finally:
                if not is_answered:
                    state.not_extended(ttl)
            if number(answer.reply) != 1:
                state.lose(Loss.TAKEN)
                return False
            return state.extended(answer.asked, ttl)

    async def guard(self, state: LeaseState, command: Tuple[Word, ...]) -> Reply:
        """Sends it once: to send it again might be to run it twice."""
        loss = state.loss
        if loss is not None:
            raise LockLost(state.name, loss)
        words = tuple(octets("command", word) if isinstance(word, str) else word for word in command)
        question = Guarded(state.owner, state.fence, words)
        limits = self.wire.limits(state.ttl, _clock.now() + self.limits.within)
        try:
            answer = await self.wire.ask(state.key, lambda _: question, limits, may_repeat=False)
        except Refused as refused:
            if refused.code != "NOTHOLDER":
                raise
            state.lose(Loss.TAKEN)
            raise LockLost(state.name, state.loss or Loss.TAKEN) from refused
        return answer.reply

    async def release(self, state: LeaseState) -> Released:
        """What is not answered in time goes on in the background."""
        known = self.known_release(state)
        if known is not None:
            return known
        releasing = self.begin_release(state, Loss.RELEASED)
        await asyncio.wait([releasing], timeout=self.limits.within)
        if not releasing.done():
            raise Unreachable(f"the release of {state.name!r} was not answered, and goes on in the background")
        return _result(releasing)

    def known_release(self, state: LeaseState) -> Optional[Released]:
        """What its release came to, if that can be said without asking."""
        if state.was_kept:
            return Released.KEPT
        if state.loss is Loss.FORKED:
            return Released.LATE
        if state.release is not None:
            return _result(state.release) if state.release.done() else None
        # Closing released what was held: this one had been lost before.
        return Released.LATE if self.is_closed else None

    def begin_release(self, state: LeaseState, loss: Loss) -> asyncio.Future[Released]:
        if state.release is None:
            was_held = state.loss not in _NOT_HELD
            state.lose(loss)
            self.leases.discard(state)
            state.release = self._give_back_by(state.name, state.end, self._released(state, was_held))
        return state.release

    async def _released(self, state: LeaseState, was_held: bool) -> Released:
        end, until = state.end, max(_clock.now() + self.limits.within, state.end)
        limits = self.wire.limits(self.limits.within, until)
        hold_until = state.hold_until
        if hold_until is not None and was_held and hold_until > _clock.now():

            def rest(asked: float) -> Extend:
                return Extend(state.owner, max(0.001, hold_until - asked), state.fence)

            answer = await self.wire.ask(state.key, rest, limits)
            return Released.LATER if number(answer.reply) == 1 else Released.LATE
        answer = await self.wire.ask(state.key, lambda _: Release(state.owner, state.fence), limits)
        for line in state.unanswered:
            self.spawn(line.last_word(parting_words(line, state.key, state.owner), self.limits.response))
        # An earlier try of this release may have been the one that released it.
        is_released = number(answer.reply) == 1 or (answer.is_repeated and answer.asked < end)
        return Released.RELEASED if is_released and was_held else Released.LATE

    def keep(self, state: LeaseState) -> None:
        if state.lose(Loss.KEPT):
            state.was_kept = True
            self.leases.discard(state)

    def drop(self, state: LeaseState) -> None:
        """Nobody has the lease any more, and nobody released it."""
        if self.is_closed or state.was_kept or state.release is not None or state.loss is Loss.FORKED:
            return
        log.warning("the lease of %r was dropped without a release, and is released now", state.name)
        self.begin_release(state, Loss.RELEASED)

    def drop_soon(self, state: LeaseState) -> None:
        self._call(lambda: self.drop(state))

    def drop_all(self, ended: Callable[[], None] = lambda: None) -> None:
        """Nobody has the client any more, and nobody closed it."""

        async def close() -> None:
            if self._requests or self.leases:
                log.warning("a client was dropped and not closed, and gives back what it holds")
            try:
                await self._close(self.limits.within)
            finally:
                ended()

        if self.is_closed:
            return
        self.is_closed = True
        self._call(lambda: self.spawn_last(close()))

    def spawn_last(self, closing: Coroutine[object, object, None]) -> None:
        """Nobody waits for it: the loop has it alone."""
        _LAST.add(task := asyncio.ensure_future(closing))
        task.add_done_callback(_LAST.discard)

    async def info(self, key: bytes) -> Optional[LockInfo]:
        limits = self.wire.limits(self.limits.within, _clock.now() + self.limits.within)
        answer = await self.wire.ask(key, lambda _: Look(), limits)
        return _info(answer.reply, answer.has_module)

    async def close(self, timeout: float) -> List[Name]:
        """The names of the locks that could not be released in time.

        It goes on to its end when whoever closes is cancelled: by the loss of a lock of its own, for one.
        """
        self.is_closed = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(timeout))
        return await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> List[Name]:
        until = _clock.now() + timeout
        for request in list(self._requests):
            request.cancel()
        held = list(self.leases)
        releases = [(state, self.begin_release(state, Loss.CLOSED)) for state in held]
        await asyncio.sleep(0)
        while self._requests or self._background:
            left = until - _clock.now()
            if left <= 0:
                break
            await asyncio.wait({*self._requests, *self._background}, timeout=min(left, LONGEST_LIMIT))
        left_held = [state.name for state, release in releases if not _is_done(release)]
        left_held += self._giving_back.values()
        left_held += [name for name, end in self._not_released if end > _clock.now()]
        ending = [*self._background, *self._keepers]
        for task in ending:
            task.cancel()
        self.wire.routes.close()
        # All of them have heard of their end before the loop ends: one step for each level of waiting.
        for _ in range(3):
            await asyncio.sleep(0)
        if ending:
            await asyncio.wait(ending, timeout=1)
        return list(dict.fromkeys(left_held))


def _result(releasing: asyncio.Future[Released]) -> Released:
    if releasing.cancelled():
        raise Closed
    return releasing.result()


def _is_done(release: asyncio.Future[Released]) -> bool:
    return release.done() and not release.cancelled() and release.exception() is None


def _info(reply: Reply, has_module: bool) -> Optional[LockInfo]:
    if not isinstance(reply, list):
        return None
    if not has_module:
        held, left = reply
        fence, owner = parse(held if isinstance(held, bytes) else b"")
        return LockInfo(owner, fence, _seconds(left), 1, 1, None)
    told = fields(reply)
    owner_told = told.get(b"owner")
    owner = owner_told if isinstance(owner_told, bytes) else b""
    counts = {name: number(told.get(name)) for name in (b"fence", b"holders", b"share", b"waiters")}
    holders, share = counts[b"holders"], counts[b"share"]
    return LockInfo(
        owner,
        counts[b"fence"] or 0,
        _seconds(told.get(b"ttl")),
        1 if holders is None else holders,
        1 if share is None else share,
        counts[b"waiters"],
    )


def _seconds(left: Reply) -> Optional[float]:
    return left / 1000 if isinstance(left, int) and left >= 0 else None
