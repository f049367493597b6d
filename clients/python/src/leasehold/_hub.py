"""What a client has on one event loop: its connections, its leases, and what goes on in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import Callable, Optional, Union

from redis.exceptions import RedisError

from . import _fork, _questions
from ._asking import Answer
from ._direct import Channel
from ._holding import Holding
from ._lines import Subscription
from ._pending import Granted, LeaseState, Pending, give_up
from ._plain import parse
from ._questions import Question
from ._quorum import Most
from ._resp import Reply, Word, fields, listed, pack, read
from ._target import Several, Target
from ._tickets import Queuing
from ._time import LONGEST_TIMER, now, valid_until, within
from ._waiting import acknowledged, granted, place_at_once
from ._wanted import Detached, adopted, candidate_of, key_of
from .errors import Closed, LeaseholdError, LockLost
from .outcomes import Contended, Holder, Leader, LockInfo, LogEntry, Loss, Waiter
from .settings import Duration, Name, Renewal, Settings

log = logging.getLogger("leasehold")

SAFETY = 30  # So many times ``look_every`` may pass without a look where key events tell: a slot may have moved


class Leaders:
    """Those who lead, one after the other."""

    def __init__(self, hub: Hub, name: Name, look_every: float) -> None:
        self._hub, self._name, self._look_every = hub, name, look_every
        self._last: Union[Leader, str, None] = "not known"
        self._watch: Optional[Subscription] = None
        self._rest = 0.0
        self._polls = False  # The server publishes no such events, or does not say so

    async def next(self) -> Optional[Leader]:
        while True:
            if self._rest:
                told = None if self._watch is None or self._watch.is_closed else self._watch.told
                await self._hub.asking.pause(self._rest, until=told)
            self._rest = self._look_every
            try:
                if not self._polls and (self._watch is None or self._watch.is_closed):
                    self._watch = await self._watching()
                    self._polls = self._watch is None
                if self._watch is not None:
                    self._watch.told = self._hub.loop.create_future()
                info = await self._hub.info(self._name)
            except (RedisError, OSError, LeaseholdError) as error:
                self._hub.check_open()
                log.debug("nobody says who leads: %s", error)
                continue
            if self._watch is not None:
                left = None if info is None else info.ttl
                self._rest = self._look_every * SAFETY if left is None else max(left, 0.001)
            leader = None if info is None else Leader(candidate_of(info.owner), info.fence)
            if leader != self._last:
                self._last = leader
                return leader

    async def _watching(self) -> Optional[Subscription]:
        key, limit = key_of(self._hub.settings, self._name), self._hub.limits.response
        server = await within(limit, self._hub.asking.routes.server_of(key))
        line = await server.line.get(limit)
        told = await line.ask(pack((b"CONFIG", b"GET", b"notify-keyspace-events")), limit)
        kinds = told[1] if isinstance(told, list) and len(told) == 2 else None
        kinds = kinds if isinstance(kinds, bytes) else b""
        if b"K" not in kinds or not (b"A" in kinds or (b"d" in kinds and line.has_module)):
            return None
        return await server.subscribed(b"__keyspace@%d__:%b" % (server.database, key))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


class Hub(Holding):
    def __init__(self, target: Target, settings: Settings) -> None:
        super().__init__(target, settings)
        if isinstance(target, Several):
            self.asking = Most(target, self.limits.response, self.spawn)
        self.blocked: set[Channel] = set()  # On which threads wait
        self._closing: Optional[asyncio.Future[list[Name]]] = None
        _fork.remember(self)

    async def acquire(self, pending: Pending) -> Optional[LeaseState]:
        """None when others have held the lock until patience ended."""
        self.check_open()
        self.requests.add(pending)
        self.tell("asked", pending.wanted, pending.begun)
        state: Optional[LeaseState] = None
        grant: Optional[Granted] = None
        queuing: Optional[Queuing] = None
        outcome = "error"
        try:
            queuing = place_at_once(self, pending)
            if queuing is not None:
                grant = await queuing.until_told()
            if grant is None or valid_until(grant.asked, grant.ttl) <= now():
                grant = await granted(self, pending, queuing)
            if grant is not None and pending.wanted.copies is not None:
                grant = await acknowledged(self, pending.wanted, grant, pending.wanted.copies)
            if grant is not None:
                state = self.granted(pending, grant)
                self.bind(state, pending.bond)
            outcome = "busy"
            return state
        finally:
            if queuing is not None:
                queuing.leave()
            self.requests.discard(pending)
            if state is None:
                self.tell("refused", pending.wanted, pending.begun, outcome=outcome)
                if pending.may_hold:
                    self.give_up(pending)

    def granted(self, pending: Pending, grant: Granted) -> LeaseState:
        """Also called by threads. It is looked after from now on."""
        state = LeaseState(pending, grant)
        self.leases.add(state)
        if self.is_closed:
            # Whoever closed it may have looked for leases before.
            self.leases.discard(state)
            raise Closed
        self._follow(state, pending.begun)
        return state

    def _follow(self, state: LeaseState, begun: float) -> None:
        self.look_by(state.next_look)
        if self.settings.on_event is not None:
            self.tell("granted", state.wanted, begun, state.fence)
            since = now()
            state.when_lost(lambda: self._ended(state, since))

    def _ended(self, state: LeaseState, since: float) -> None:
        loss = state.loss
        if loss is not None and loss is not Loss.FORKED:
            step = "lost" if loss in (Loss.EXPIRED, Loss.TAKEN) else "released"
            self.tell(step, state.wanted, since, state.fence, outcome=loss.name.lower())

    async def adopt(self, detached: Union[Detached, str], ttl: Optional[Duration], renew: Renewal) -> LeaseState:
        self.check_open()
        its = detached if isinstance(detached, Detached) else Detached.parse(detached)
        wanted, fence = adopted(self.settings, its, ttl, renew), its.fence
        begun = now()
        state = LeaseState(Pending(wanted), Granted(fence, begun, wanted.ttl))
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
        self._follow(state, begun)
        return state

    def give_up(self, pending: Pending) -> None:
        if pending.may_hold:
            self._give_back_by(pending.wanted.name, now() + pending.wanted.ttl, give_up(self, pending))

    def drop_all(self, ended: Callable[[], None] = lambda: None) -> None:
        if self.is_closed:
            return

        def begin() -> None:
            # The loop has it alone.
            if self.requests or self.leases:
                log.warning("a client was dropped and not closed, and gives back what it holds")
            _LAST[self] = closing = asyncio.ensure_future(self.close(self.limits.within))
            closing.add_done_callback(lambda _: _LAST.pop(self))
            closing.add_done_callback(lambda _: ended())

        self.call(begin)

    async def info(self, name: Name) -> Optional[LockInfo]:
        """Who holds the lock and how many wait; None if it is free. What it says may be over when it arrives."""
        answer = await self._see(_questions.look(key_of(self.settings, name)))
        if not isinstance(answer.reply, list):
            return None
        if answer.line.has_module:
            return read(LockInfo, {b"holders": 1, b"share": 1, **fields(answer.reply)})
        held, left = answer.reply
        fence, owner = parse(held if isinstance(held, bytes) else b"")
        return read(LockInfo, {b"owner": owner, b"fence": fence, b"ttl": left, b"holders": 1, b"share": 1})

    async def holders(self, name: Name, count: int = 100) -> list[Holder]:
        """Those who hold the lock, the oldest grant first; a count of -1: all. It needs the module."""
        return listed(Holder, await self._list(name, b"LOCK.HOLDERS", key_of(self.settings, name), b"COUNT", count))

    async def waiters(self, name: Name, count: int = 100) -> list[Waiter]:
        """Those who wait for the lock, the next one first; a count of -1: all. It needs the module."""
        return listed(Waiter, await self._list(name, b"LOCK.WAITERS", key_of(self.settings, name), b"COUNT", count))

    async def top(self, count: int = 10, node_of: Name = b"") -> list[Contended]:
        """The most contended locks, of the server, or of the node that has ``node_of``; a count of -1: all."""
        return listed(Contended, await self._list(node_of, b"LOCK.TOP", count))

    async def log(self, count: int = 10, node_of: Name = b"") -> list[LogEntry]:
        """What went wrong with locks, the latest first: of the same server as :meth:`top`."""
        return listed(LogEntry, await self._list(node_of, b"LOCK.LOG", count))

    async def _list(self, name: Name, *command: Word) -> Reply:
        return (await self._see(_questions.listing(key_of(self.settings, name), *command))).reply

    async def _see(self, question: Question) -> Answer:
        self.check_open()
        limits = self.asking.limits(self.limits.within, now() + self.limits.within)
        return await self.asking.ask(question.key, lambda _: question, limits)

    async def close(self, timeout: float) -> list[Name]:
        """The names of the locks that could not be released in time. It goes on when whoever closes is cancelled."""
        self.is_closed = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(timeout))
        return await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> list[Name]:
        until = now() + timeout
        self.asking.send_away()
        self.bound.send_away()
        for channel in list(self.blocked):
            channel.end()
        for state in list(self.leases):
            self.begin_release(state, Loss.CLOSED)
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
        asked_for = [each.wanted.name for each in list(self.requests) if isinstance(each, LeaseState) or each.may_hold]
        left_held = dict.fromkeys([*self._giving_back.values(), *asked_for])
        if self._looking is not None:
            self._looking.cancel()
        self.asking.close()
        self.bound.close()
        ending = list(self._background)
        for task in ending:
            task.cancel()
        # All of them have heard of their end before the loop ends: one step for each level of waiting.
        for _ in range(3):
            await asyncio.sleep(0)
        if ending:
            await asyncio.wait(ending, timeout=1)
        return list(left_held)

    def forget_in_child(self) -> None:
        for state in list(self.leases):
            state.forget_in_child()


_LAST: dict[Hub, asyncio.Future[list[Name]]] = {}
