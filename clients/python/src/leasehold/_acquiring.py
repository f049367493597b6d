"""How a lock is asked for: at once, then in the server's queue. Where there is no queue, again and again."""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, List, Optional, Set

from . import _clock
from ._backoff import POLL, RETRY, ROOM
from ._line import Line
from ._parking import park
from ._plain import RELEASE_ANY
from ._questions import EXCLUSIVE, Acquire, Release, words
from ._reply import Word, number
from ._tickets import wait_by_ticket
from ._validity import is_fresh, valid_until
from ._waited import Granted, Waited
from ._wire import Answer, Limits
from .errors import NeedsModule, QueueFull, Refused, Unreachable

if TYPE_CHECKING:
    from ._hub import Hub
    from .settings import Name

RELEASES_AFTER = (0.0, 0.05, 0.5)
"""When to ask again for what may have been granted to a request on a connection of its own, which was closed: the
server hears of that end and of the release in either order."""


@dataclass(frozen=True)
class Wanted:
    name: Name
    key: bytes
    ttl: float
    wait: float
    """How long to wait; infinite: without limit. Zero: to try."""
    share: int
    renew: bool
    hold_at_least: float
    owner: bytes


@dataclass
class Pending:
    """What a server may know of a request that is not granted yet."""

    wanted: Wanted
    unanswered: Set[Line] = field(default_factory=set)
    parked: Optional[Line] = None
    may_hold: bool = False
    """It may hold the lock, or a place in the queue."""
    full: Optional[QueueFull] = None
    """The server had no place for it when it asked last."""


def new_owner() -> bytes:
    """One try to get a lock, and not a program: whoever asks again with it gets the same grant."""
    return f"{os.getpid()}:{uuid.uuid4()}".encode()


async def granted(hub: Hub, pending: Pending) -> Optional[Granted]:
    """None when others have held the lock until patience ended."""
    wanted, settings = pending.wanted, hub.limits
    is_try, begun = wanted.wait == 0, _clock.now()
    deadline = begun + (settings.within if is_try else wanted.wait)
    by_ticket, must_ask, was_answered, tries = hub.settings.tickets, True, False, 0
    while True:
        if must_ask:
            until = min(deadline, _clock.now() + settings.unreachable_after)
            pending.may_hold = True
            question = Acquire(wanted.owner, wanted.ttl, wanted.share)
            each = hub.wire.limits(wanted.ttl, until)
            is_last = was_answered and deadline - _clock.now() < each.each
            try:
                answer = await _ask(hub, pending, question, each)
            except Unreachable:
                if not is_last:
                    raise
                # Others held it when the server had time to answer.
                return _nothing(pending)
            was_answered = True
            fence = number(answer.reply)
            if fence is not None:
                if valid_until(answer.asked, wanted.ttl) > _clock.now():
                    return Granted(fence, answer.asked)
                if _clock.now() >= deadline:
                    raise Unreachable("it was granted, and its lease was over when the answer came")
                await _rest(RETRY.rest(tries), deadline)
                tries += 1
                continue
            pending.may_hold = bool(pending.unanswered)
            if is_try or _clock.now() >= deadline:
                return _nothing(pending)
            if not answer.has_module:
                await _rest(POLL.rest(tries), deadline)
                tries += 1
                if _clock.now() >= deadline:
                    return None
                continue
        must_ask = True
        waited = await (wait_by_ticket if by_ticket else park)(hub, pending, deadline)
        if isinstance(waited, Granted):
            if is_fresh(waited.asked, wanted.ttl, _clock.now()):
                return waited
        elif waited is Waited.OVER or _clock.now() >= deadline:
            return _nothing(pending)
        elif waited is Waited.NO_TICKETS:
            by_ticket, must_ask = False, False
        elif waited is Waited.NOT_NOW:
            await _rest((ROOM if pending.full else RETRY).rest(tries), deadline)
            tries += 1
            if _clock.now() >= deadline:
                return _nothing(pending)


async def _ask(hub: Hub, pending: Pending, question: Acquire, limits: Limits) -> Answer:
    try:
        return await hub.wire.ask(pending.wanted.key, lambda _: question, limits, pending.unanswered)
    except Refused as refusal:
        if question.share != EXCLUSIVE and "unknown option" in refusal.reason:
            raise NeedsModule(refusal.code, f"several holders need a newer module: {refusal.reason}") from refusal
        raise


def _nothing(pending: Pending) -> Optional[Granted]:
    """Patience has ended. That no place was to be had is told, and not that others held the lock."""
    if pending.full is not None:
        raise pending.full
    return None


async def _rest(rest: float, deadline: float) -> None:
    await asyncio.sleep(max(0.0, min(rest, deadline - _clock.now())))


async def give_up(hub: Hub, pending: Pending) -> None:
    """Gives back what was granted, or may be, to a request that nobody waits for: also a place in a queue."""
    if not pending.may_hold:
        return
    wanted, parked = pending.wanted, pending.parked
    if parked is not None:
        parked.close()
    limit = hub.limits.response
    lines = [line for line in pending.unanswered if line is not parked]
    said = [line.last_word(parting_words(line, wanted.key, wanted.owner), limit) for line in lines]
    heard: List[bool] = await asyncio.gather(*said)
    if heard and all(heard) and parked is None:
        # Behind the request, on the same connection: nothing can come after it.
        return
    is_uncertain = parked is not None or not all(heard)
    for rest in RELEASES_AFTER if is_uncertain else (0.0,):
        await asyncio.sleep(rest)
        until = _clock.now() + max(wanted.ttl, hub.limits.within)
        try:
            limits = hub.wire.limits(hub.limits.within, until)
            answer = await hub.wire.ask(wanted.key, lambda _: Release(wanted.owner, None), limits)
        except Unreachable:
            continue
        if number(answer.reply):
            return


def parting_words(line: Line, key: bytes, owner: bytes) -> List[Word]:
    if line.has_module:
        return words(key, Release(owner, None))
    return [b"EVAL", RELEASE_ANY.text, 1, key, owner]
