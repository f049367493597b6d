"""Waiting by a ticket: a place in the server's queue without a connection that waits.

::

    connection for requests   ACQUIRE … TICKET     ACQUIRE … TICKET          ACQUIRE … TICKET
                              nil                  nil: a slice later        the fence
    subscription                                                     granted ┘

Asking again keeps the place, and is the truth: what the subscription tells may be lost.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING, Optional, Union

from redis.exceptions import RedisError

from . import _clock
from ._backoff import RETRY, ROOM
from ._limit import within
from ._line import Line
from ._questions import Ticket
from ._reply import number
from ._server import Server
from ._subscription import Subscription
from ._verdict import Verdict, verdict
from ._waited import Granted, Waited
from .errors import LeaseholdError, QueueFull, Refused, Unreachable

if TYPE_CHECKING:
    from ._acquiring import Pending
    from ._hub import Hub

KEPT_TIMES = 3
"""How many times a place is kept for as long as nobody asks for it."""

KEPT_LEAST = 1.0
ASKED_A_SECOND = 1000
"""The more tickets there are, the less often each is asked for."""

UNHEARD = 0.25
"""How often it is asked for while nobody tells of grants, unless there are many."""

_LONGEST = re.compile(r"TICKET must be an integer from 1 to (\d+)")


class _Elsewise(Exception):
    """Another way to wait is to be taken."""

    def __init__(self, waited: Waited) -> None:
        super().__init__(waited)
        self.waited = waited


async def wait_by_ticket(hub: Hub, pending: Pending, deadline: float) -> Union[Granted, Waited]:
    queuing = _Queuing(hub, pending, deadline)
    hub.waiting += 1
    try:
        return await queuing.wait()
    except _Elsewise as elsewise:
        return elsewise.waited
    finally:
        hub.waiting -= 1
        queuing.leave_seat()


class _Queuing:
    def __init__(self, hub: Hub, pending: Pending, deadline: float) -> None:
        self._hub = hub
        self._pending = pending
        self._deadline = deadline
        self._subscription: Optional[Subscription] = None
        self._told: Optional[asyncio.Event] = None
        self._server: Optional[Server] = None
        self._kept = KEPT_LEAST

    async def wait(self) -> Union[Granted, Waited]:
        last: Optional[LeaseholdError] = None
        tries, failing_since, each = 0, _clock.now(), self._hub.wire.limits(self._pending.wanted.ttl, 0.0).each
        while _clock.now() < self._deadline:
            is_last = self._deadline - _clock.now() < each
            try:
                answer = await self._ask()
            except QueueFull as full:
                last, rest, failing_since = full, ROOM.rest(tries), _clock.now()
            except Refused as refusal:
                self._look_at(refusal)
                last, rest = refusal, 0.0
            except Unreachable as silent:
                if _clock.now() - failing_since >= self._hub.limits.unreachable_after:
                    raise
                if not is_last or tries or last is not None:
                    last = silent
                # Otherwise others held it when the server had time to answer.
                rest = RETRY.rest(tries)
            else:
                if isinstance(answer, Granted):
                    return answer
                tries, last = 0, None
                await self._until_told()
                failing_since = _clock.now()
                continue
            tries += 1
            await asyncio.sleep(max(0.0, min(rest, self._deadline - _clock.now())))
        if last is not None:
            raise last
        return Waited.OVER

    async def _ask(self) -> Union[Granted, None]:
        wanted = self._pending.wanted
        self._pending.may_hold = True
        # One look at the server, so that whoever is sent elsewhere is told of grants there.
        until = min(self._deadline, _clock.now() + self._hub.limits.response * 2)
        answer = await self._hub.wire.ask(
            wanted.key,
            lambda _: Ticket(wanted.owner, wanted.ttl, wanted.share, self._kept, self._channel),
            self._hub.wire.limits(wanted.ttl, until),
            self._pending.unanswered,
            self._prepare,
        )
        fence = number(answer.reply)
        return None if fence is None else Granted(fence, answer.asked)

    async def _prepare(self, server: Server, line: Line, limit: float) -> None:
        if not line.has_module:
            raise _Elsewise(Waited.NO_QUEUE)
        if server.tickets.is_closed:
            raise _Elsewise(Waited.NO_TICKETS)
        subscription = await self._subscription_of(server, limit)
        slice_ = max(self._hub.limits.slice, self._hub.waiting / ASKED_A_SECOND)
        self._kept = max(KEPT_LEAST, slice_ * KEPT_TIMES)
        if server.tickets.longest is not None:
            self._kept = min(self._kept, server.tickets.longest)
        self._server = server
        if subscription is not self._subscription:
            self.leave_seat()
            self._subscription, self._told = subscription, None
            if subscription is not None:
                self._told = subscription.seat((self._pending.wanted.owner, self._pending.wanted.key))
        elif subscription is not None and self._told is not None and not subscription.is_closed:
            self._told.clear()

    async def _subscription_of(self, server: Server, limit: float) -> Optional[Subscription]:
        """None if there is none at the moment, as on a server that takes no more clients: the place is kept without."""
        try:
            # There has to be time to ask.
            subscription = await server.subscription(limit / 2)
        except (RedisError, OSError) as error:
            if verdict(error) in (Verdict.REFUSED, Verdict.UNKNOWN_COMMAND):
                server.tickets.refuse()
                raise _Elsewise(Waited.NO_TICKETS) from error
            if verdict(error) is Verdict.BROKEN:
                server.tickets.not_heard()
            return None
        server.tickets.heard()
        return subscription

    async def _until_told(self) -> None:
        """Until there is a reason to ask again."""
        rest = self._kept / KEPT_TIMES * (1 - random.random() / 4)
        rest = min(rest, self._deadline - _clock.now())
        told, subscription = self._told, self._subscription
        if told is None or subscription is None:
            unheard = max(UNHEARD, self._hub.waiting / ASKED_A_SECOND) * (1 - random.random() / 4)
            await asyncio.sleep(max(0.0, min(rest, unheard)))
            return
        try:
            await within(rest, told.wait())
        except RedisError:
            subscription.check(self._hub.limits.slice)
        if subscription.is_closed:
            # What was told meanwhile is lost: so all ask, and not all at once.
            spread = random.random() * min(1.0, self._hub.waiting / ASKED_A_SECOND)
            await asyncio.sleep(max(0.0, min(spread, self._deadline - _clock.now())))

    def _look_at(self, refusal: Refused) -> None:
        """Whether it is the ticket that is refused, and not the request."""
        longest = _LONGEST.search(refusal.reason)
        if longest is not None and self._server is not None:
            self._server.tickets.longest = int(longest[1]) / 1000
            return
        is_channel = refusal.code == "NOPERM" and "channel" in refusal.reason
        is_old = "unknown option" in refusal.reason or "NOTIFY is not possible" in refusal.reason
        if not (is_channel or is_old):
            raise refusal
        if self._server is not None:
            self._server.tickets.refuse()
        raise _Elsewise(Waited.NO_TICKETS)

    @property
    def _channel(self) -> Optional[bytes]:
        return None if self._subscription is None else self._subscription.channel

    def leave_seat(self) -> None:
        if self._subscription is not None:
            self._subscription.leave((self._pending.wanted.owner, self._pending.wanted.key))
