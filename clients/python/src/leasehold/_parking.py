"""Waiting on a connection: for servers, modules and users without tickets. It waits for one lock at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Optional, Union

from redis.exceptions import RedisError

from . import _clock
from ._limit import within
from ._line import Line
from ._questions import Wait
from ._reply import number
from ._verdict import Verdict, public, verdict
from ._waited import Granted, Waited
from .errors import QueueFull

if TYPE_CHECKING:
    from ._acquiring import Pending
    from ._hub import Hub

LATE = 0.1
"""How much later than patience the answer may come that it has ended."""


async def park(hub: Hub, pending: Pending, deadline: float) -> Union[Granted, Waited]:
    if hub.parked >= hub.settings.wait_connections:
        # There is no connection to wait on: it tries, now and then.
        return Waited.NOT_NOW
    hub.parked += 1
    line: Optional[Line] = None
    try:
        wanted = pending.wanted
        finding = hub.limits.response
        server = await within(min(finding, deadline - _clock.now()), hub.wire.routes.server_of(wanted.key))
        line = await server.own_line(min(finding, deadline - _clock.now()))
        if not line.has_module:
            return Waited.NO_QUEUE
        pending.parked, pending.may_hold = line, True
        asked, left = _clock.now(), deadline - _clock.now()
        patience = None if math.isinf(left) else max(left, 0.001)
        question = Wait(wanted.owner, wanted.ttl, wanted.share, patience)
        fence = number(await server.ask(line, wanted.key, question, left + LATE))
        pending.parked = pending.full = None
        pending.may_hold = fence is not None or bool(pending.unanswered)
        if fence is not None:
            return Granted(fence, asked)
        return Waited.OVER if _clock.now() >= deadline else Waited.ASK
    except (RedisError, OSError) as error:
        return _after(hub, pending, error, deadline)
    finally:
        hub.parked -= 1
        if line is not None:
            line.close()


def _after(hub: Hub, pending: Pending, error: BaseException, deadline: float) -> Waited:
    said = verdict(error)
    known = public(error)
    pending.full = known if isinstance(known, QueueFull) else None
    if said is not Verdict.BROKEN:
        pending.parked = None
        pending.may_hold = bool(pending.unanswered)
    if said is Verdict.REFUSED or _clock.now() >= deadline:
        raise known from error
    hub.wire.routes.redirected(error)
    if pending.full is None:
        hub.wire.routes.failed(error)
    return Waited.NOT_NOW
