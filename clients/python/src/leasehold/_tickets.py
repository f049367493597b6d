"""Waiting by a ticket: a place in the server's queue for which no connection waits.

Nobody waits for the answers that are nil: :class:`Queuing` hears them, and its task hears of what ends the wait. **The
message is the grant**: it came after the last request that was answered nil, so a lease that is counted from before
that one ends before the server's. A message may be lost: asking again keeps the place, and is the truth.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from typing import Optional, Union

from redis.exceptions import RedisError

from . import _questions
from ._asking import Home
from ._lines import Line, Subscription
from ._pending import Granted, Pending, Waited, queued
from ._questions import Question
from ._resp import Reply, number, pack
from ._server import Server
from ._time import RETRY, ROOM, now, valid_until
from ._verdict import Verdict, verdict
from .errors import Closed, LeaseholdError, QueueFull, Refused, Unreachable

KEPT_TIMES = 3  # How many times a place is kept for as long as nobody asks for it
KEPT_LEAST = 1.0
ASKED_A_SECOND = 1000  # The more tickets there are, the less often each is asked for
RENEWED_EVERY = 1.0  # Places are kept by many requests at once, so often at most
UNHEARD = 0.25  # How often it is asked for while nobody tells of grants, unless there are many

_LONGEST = re.compile(r"TICKET must be an integer from 1 to (\d+)")


class Elsewise(Exception):
    """There is no place at this server: what to do instead."""


class Queuing:
    """A place in the queue. It is kept together with those of all who wait at the same server: by :class:`Places`."""

    # fmt: off
    __slots__ = (
        "_deadline", "_home", "_is_doubtful", "_places", "_told", "asked", "counted", "kept", "pending", "server",
        "was_answered",
    )
    # fmt: on

    def __init__(self, home: Home, pending: Pending, deadline: float, was_answered: bool = False) -> None:
        self._home = home
        self.pending = pending
        self._deadline = deadline
        self.was_answered = was_answered
        self._places: Optional[Places] = None
        self.server: Optional[Server] = None
        self._told: Optional[asyncio.Future[Union[int, Granted]]] = None
        self.kept = KEPT_LEAST
        self.asked = math.inf  # Before the last request was sent that was answered nil, or the first of all
        self.counted = math.inf  # For how long the server grants it at least, by any of the requests
        self._is_doubtful = False  # It may have been granted before, and lost again: a message may be of that grant

    async def wait(self) -> Union[Granted, Waited]:
        last: Optional[LeaseholdError] = None
        tries, failing_since, rest = 0, now(), 0.0
        each = self._home.asking.each(self.pending.wanted.ttl)
        while now() < self._deadline:
            is_last = self._deadline - now() < each
            try:
                if self._places is not None and self._places.subscription.is_closed:
                    # What was told meanwhile is lost: so all ask, and not all at once.
                    await self._home.asking.pause(
                        random.random() * min(1.0, len(self._home.requests) / ASKED_A_SECOND), self._deadline
                    )
                answer = await self._ask()
                if answer is not None:
                    return answer
                tries, last = 0, None
                by_message = await self.until_told()
                if by_message is not None:
                    return by_message
                failing_since = now()
                continue
            except QueueFull as full:
                last, rest, failing_since = full, ROOM.rest(tries), now()
            except Refused as refusal:
                self._look_at(refusal)
                last, rest = refusal, 0.0
            except Unreachable as silent:
                if now() - failing_since >= self._home.limits.unreachable_after:
                    raise
                if not is_last or tries or last is not None or not self.was_answered:
                    last = silent
                # Otherwise others held it when the server had time to answer.
                rest = RETRY.rest(tries)
            tries += 1
            await self._home.asking.pause(rest, self._deadline)
        if last is None and not self.was_answered:
            last = Unreachable("no server that grants locks answered in time")
        if last is not None:
            raise last
        return Waited.OVER

    def ask_on(self, line: Line, server: Server, subscription: Subscription) -> None:
        self.enter(server, subscription)
        self.pending.may_hold = True
        request, each = Request(self, line), self._home.asking.each(self.pending.wanted.ttl)
        line.send(request.packed, (request,), min(each, self._deadline - now()))

    async def _ask(self) -> Optional[Granted]:
        wanted, asking = self.pending.wanted, self._home.asking_for(self.pending.wanted.claim)
        self.pending.may_hold = True
        # One look at the server, so that whoever is sent elsewhere is told of grants there.
        until = min(self._deadline, now() + self._home.limits.response * 2)
        answer = await asking.ask(
            wanted.claim.key, self.question, asking.limits(wanted.ttl, until), self.pending.unanswered, self._prepare
        )
        self.pending.bond, fence = answer.line, number(answer.reply)
        if fence is None:
            self.not_yet(answer.asked)
            return None
        return Granted(fence, answer.asked, wanted.ttl)

    def question(self, asked: float) -> Question:
        wanted = self.pending.wanted
        self.asked, self.counted = min(self.asked, asked), min(self.counted, wanted.ttl, self.kept)
        channel = None if self._places is None else self._places.subscription.channel
        return _questions.ticket(wanted.claim, wanted.ttl, self.kept, channel)

    def not_yet(self, asked: float) -> None:
        # What was granted since the last answer, and lost again by now, is not what a message tells of from now on.
        if now() >= valid_until(self.asked, self.counted):
            self._is_doubtful = True
        self.asked, self.was_answered = asked, True
        queued(self._home, self.pending)
        if self._places is not None:
            self._places.answered(self)

    async def _prepare(self, server: Server, line: Line, limit: float) -> None:
        if not line.has_module:
            raise Elsewise(Waited.ASK)
        if server.tickets.is_closed:
            raise Elsewise(Waited.NO_TICKETS)
        self.enter(server, server.subscription.now or await self._subscription_of(server, limit))

    def enter(self, server: Server, subscription: Optional[Subscription]) -> None:
        slice_ = max(self._home.limits.slice, len(self._home.requests) / ASKED_A_SECOND)
        self.kept = min(max(KEPT_LEAST, slice_ * KEPT_TIMES), server.tickets.longest)
        self.server = server
        places: Optional[Places] = None
        if subscription is not None:
            places = subscription.places or Places(self._home, server, subscription)
        if places is not self._places:
            self.leave()
            self._places = places
        if places is not None:
            self._told = self._home.loop.create_future()
            places.enter(self)

    async def _subscription_of(self, server: Server, limit: float) -> Optional[Subscription]:
        """None if there is none at the moment, as on a server that takes no more clients: the place is kept without."""
        try:
            # There has to be time to ask.
            subscription = await server.subscription.get(limit / 2)
        except (RedisError, OSError) as error:
            if verdict(error) in (Verdict.REFUSED, Verdict.UNKNOWN_COMMAND):
                server.tickets.refuse()
                raise Elsewise(Waited.NO_TICKETS) from error
            if verdict(error) is Verdict.BROKEN:
                server.tickets.not_heard()
            return None
        server.tickets.heard()
        return subscription

    async def until_told(self) -> Optional[Granted]:
        told, home, asking = self._told, self._home, self._home.asking
        if told is None or self._places is None:
            unheard = max(UNHEARD, len(home.requests) / ASKED_A_SECOND) * (1 - random.random() / 4)
            await self._home.asking.pause(min(self.kept / KEPT_TIMES, unheard), self._deadline)
            return None
        if asking.is_closed:
            raise Closed
        timer = None
        if not math.isinf(self._deadline):
            timer = home.loop.call_later(min(max(0.0, self._deadline - now()), 1e6), self.told, 0)
        # As until_closed does, but without one more coroutine for each who waits.
        asking.open.add(told)
        try:
            came = await told
        finally:
            asking.open.discard(told)
            if timer is not None:
                timer.cancel()
        if isinstance(came, Granted) or not came:
            return came or None
        # A lease that is not renewed has to be whole.
        wanted = self.pending.wanted
        must_claim = self._is_doubtful or home.settings.confirm or wanted.renew < wanted.ttl
        if must_claim or now() >= self.asked + self.counted * 3 / 4:
            # The work can begin while a quarter of the lease is left.
            return None
        return Granted(came, self.asked, self.counted)

    # What it is to those who tell of its grant.

    def told(self, came: Union[int, Granted]) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(came)

    @property
    def is_told(self) -> bool:
        return self._told is None or self._told.done()

    def _look_at(self, refusal: Refused) -> None:
        longest = _LONGEST.search(refusal.reason)
        if longest is not None and self.server is not None:
            self.server.tickets.longest = int(longest[1]) / 1000
            return
        is_channel = refusal.code == "NOPERM" and "channel" in refusal.reason
        is_old = "unknown option" in refusal.reason or "NOTIFY is not possible" in refusal.reason
        if not (is_channel or is_old):
            raise refusal
        if self.server is not None:
            self.server.tickets.refuse()
        raise Elsewise(Waited.NO_TICKETS)

    def leave(self) -> None:
        if self._places is not None:
            self._places.leave(self)
            self._places = None


class Request:
    __slots__ = ("_asked", "_is_over", "_line", "_place", "packed")

    def __init__(self, place: Queuing, line: Line) -> None:
        self._place = place
        self._line = line
        self._asked = now()
        self._is_over = False
        self.packed = pack(place.question(self._asked).words)
        # If the lock is released before this arrives, it is granted once more.
        place.pending.unanswered.add(line)
        place.pending.bond = line

    def done(self) -> bool:
        return self._is_over

    def set_result(self, reply: Reply) -> None:
        self._is_over = True
        self._place.pending.unanswered.discard(self._line)
        if reply is None:
            self._place.not_yet(self._asked)
        elif isinstance(reply, int):
            self._place.told(Granted(reply, self._asked, self._place.pending.wanted.ttl))
        else:
            # It is refused, or is to be asked for elsewhere: the next request tells.
            self._place.told(0)

    def set_exception(self, _: BaseException) -> None:
        self._is_over = True
        self._place.told(0)


class Places:
    """All places of a client in the queues of a server: kept by many requests at once."""

    def __init__(self, home: Home, server: Server, subscription: Subscription) -> None:
        self._home = home
        self._server = server
        self.subscription = subscription
        subscription.places = self
        self._due: dict[Queuing, float] = {}  # When each is to be asked for: one request at a time
        self._timer: Optional[asyncio.TimerHandle] = None

    def enter(self, place: Queuing) -> None:
        claim = place.pending.wanted.claim
        self.subscription.listeners[claim.owner, claim.key] = place
        self._due[place] = math.inf
        if self.subscription.is_closed:
            place.told(0)
        if self._timer is None:
            self._timer = self._home.loop.call_later(min(RENEWED_EVERY, place.kept / KEPT_TIMES / 2), self._renew)

    def answered(self, place: Queuing) -> None:
        if place in self._due:
            self._due[place] = now() + place.kept / KEPT_TIMES * (1 - random.random() / 4)

    def leave(self, place: Queuing) -> None:
        claim = place.pending.wanted.claim
        self.subscription.listeners.pop((claim.owner, claim.key), None)
        self._due.pop(place, None)

    def _renew(self) -> None:
        self._timer = None
        if not self._due:
            return
        self.subscription.check(self._home.limits.slice)
        here = now()
        due = [place for place, moment in self._due.items() if moment <= here and not place.is_told]
        line = self._server.line.now
        slice_ = max(self._home.limits.slice, len(self._due) / ASKED_A_SECOND)
        if due and (line is None or not line.has_module):
            for place in due:
                place.told(0)
        elif due and line is not None:
            for place in due:
                # As long as the client has so many, each is kept for longer.
                place.kept = max(place.kept, min(slice_ * KEPT_TIMES, self._server.tickets.longest))
                self._due[place] = math.inf
            requests = [Request(place, line) for place in due]
            line.send(b"".join([each.packed for each in requests]), requests, self._home.limits.response)
        self._timer = self._home.loop.call_later(min(RENEWED_EVERY, slice_ / 2), self._renew)
