"""What a client has on one event loop: its connections, its leases, and what goes on in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import Callable, Dict, List, Optional, Set

from . import _fork
from ._direct import Channel
from ._holding import Holding
from ._pending import Granted, LeaseState, Pending, give_up
from ._plain import parse
from ._questions import Look
from ._resp import Reply, fields, number
from ._target import Target
from ._tickets import Queuing
from ._time import LONGEST_TIMER, now, valid_until
from ._waiting import acknowledged, granted, place_at_once
from ._wanted import Wanted
from .errors import Closed, LockLost
from .outcomes import LockInfo, Loss, Released
from .settings import Name, Settings

log = logging.getLogger("leasehold")


class Hub(Holding):
    def __init__(self, target: Target, settings: Settings) -> None:
        super().__init__(target, settings)
        self.blocked: Dict[Channel, Pending] = {}  # Threads that wait on connections
        self._closing: Optional[asyncio.Future[List[Name]]] = None
        _fork.remember(self)

    async def acquire(self, pending: Pending, begun: float) -> Optional[LeaseState]:
        """None when others have held the lock until patience ended. A lease that comes when nobody waits any more is
        given back."""
        self.check_open()
        self.requests.add(pending)
        state: Optional[LeaseState] = None
        grant: Optional[Granted] = None
        queuing: Optional[Queuing] = None
        try:
            queuing = place_at_once(self, pending, begun)
            if queuing is not None:
                grant = await queuing.until_told()
            if grant is None or valid_until(grant.asked, grant.ttl) <= now():
                grant = await granted(self, pending, begun, queuing)
            if grant is not None and pending.wanted.copies is not None:
                grant = await acknowledged(self, pending.wanted, grant, pending.wanted.copies)
            if grant is not None:
                state = self.granted(pending, grant)
                self.bind(state, pending.bond)
            return state
        finally:
            if queuing is not None:
                queuing.leave()
            self.requests.discard(pending)
            if state is None and pending.may_hold:
                self.give_up(pending)

    def granted(self, pending: Pending, grant: Granted) -> LeaseState:
        """Also called by threads. It is looked after from now on."""
        state = LeaseState(pending, grant)
        self.leases.add(state)
        if self.is_closed:
            # Whoever closed it may have looked for leases before.
            self.leases.discard(state)
            raise Closed
        self.look_by(state.next_look)
        return state

    async def adopt(self, wanted: Wanted, fence: int) -> LeaseState:
        """It is held as soon as the server says so."""
        self.check_open()
        state = LeaseState(Pending(wanted), Granted(fence, now(), wanted.ttl))
        try:
            is_held = await self.extend(state, wanted.ttl, now() + self.limits.within)
        except BaseException:
            state.lose(Loss.DETACHED)
            raise
        if not is_held:
            raise LockLost(wanted.name, state.loss or Loss.TAKEN)
        self.leases.add(state)
        if self.is_closed:
            self.begin_release(state, Loss.CLOSED)
            raise Closed
        self.look_by(state.next_look)
        return state

    def give_up(self, pending: Pending) -> None:
        if pending.may_hold:
            self._give_back_by(pending.wanted.name, now() + pending.wanted.ttl, give_up(self, pending))

    def drop_all(self, ended: Callable[[], None] = lambda: None) -> None:
        """Nobody has the client any more, and nobody closed it."""
        if self.is_closed:
            return

        async def close() -> None:
            if self.requests or self.leases:
                log.warning("a client was dropped and not closed, and gives back what it holds")
            try:
                await self.close(self.limits.within)
            finally:
                _LAST.discard(self)
                ended()

        def begin() -> None:
            # The loop has it alone.
            _LAST.add(self)
            self._last = asyncio.ensure_future(close())

        self.call(begin)

    async def info(self, key: bytes) -> Optional[LockInfo]:
        self.check_open()
        limits = self.asking.limits(self.limits.within, now() + self.limits.within)
        answer = await self.asking.ask(key, lambda _: Look(key), limits)
        return info_of(answer.reply, answer.line.has_module)

    async def close(self, timeout: float) -> List[Name]:
        """The names of the locks that could not be released in time. It goes on to its end when whoever closes is
        cancelled: by the loss of a lock of its own, for one."""
        self.is_closed = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(timeout))
        return await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> List[Name]:
        until = now() + timeout
        self.asking.send_away()
        self.bound.send_away()
        for channel, pending in list(self.blocked.items()):
            channel.close()
            self.give_up(pending)
        releases = [(state, self.begin_release(state, Loss.CLOSED)) for state in list(self.leases)]
        while True:
            is_asking = bool(self.requests)
            # Whoever gives up a request says so, also from another thread, before it is none any more.
            await asyncio.sleep(0)
            left = until - now()
            if left <= 0 or not (is_asking or self._background):
                break
            # Requests have been sent away, and end by themselves.
            waiting = self._background or {asyncio.ensure_future(asyncio.sleep(0.001))}
            await asyncio.wait(waiting, timeout=min(left, LONGEST_TIMER if self._background else left))
        left_held = [state.name for state, release in releases if not _is_done(release)]
        left_held += self._giving_back.values()
        left_held += [name for name, end in self._not_released if end > now()]
        left_held += [state.name for state in self.requests if isinstance(state, LeaseState)]
        if self._looking is not None:
            self._looking.cancel()
        self.asking.routes.close()
        self.bound.routes.close()
        ending = list(self._background)
        for task in ending:
            task.cancel()
        # All of them have heard of their end before the loop ends: one step for each level of waiting.
        for _ in range(3):
            await asyncio.sleep(0)
        if ending:
            await asyncio.wait(ending, timeout=1)
        return list(dict.fromkeys(left_held))

    def forget_in_child(self) -> None:
        for state in list(self.leases):
            state.forget_in_child()


_LAST: Set[Hub] = set()  # Those of clients that nobody has any more, while they give back what they hold


def info_of(reply: Reply, has_module: bool) -> Optional[LockInfo]:
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


def _is_done(release: asyncio.Future[Optional[Released]]) -> bool:
    return release.done() and not release.cancelled() and release.exception() is None
