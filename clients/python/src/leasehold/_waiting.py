"""How a lock is asked for: at once, then in the server's queue. Where there is no queue, again and again."""

from __future__ import annotations

import math
from typing import Optional, Union

from redis.exceptions import RedisError

from . import _questions
from ._asking import Answer, Home
from ._lines import Line
from ._pending import Granted, Pending, Waited, in_full, is_fresh, queued
from ._resp import Word, number, pack
from ._tickets import Elsewise, Queuing
from ._time import POLL, RETRY, ROOM, looked_at, now, valid_until, within
from ._verdict import Verdict, public, verdict
from ._wanted import Copies, Wanted
from .errors import LockLost, NeedsModule, QueueFull, Refused, TooFewReplicas, Unreachable
from .outcomes import Loss
from .settings import millis

LATE = 0.1  # How much later than patience the answer may come that it has ended


def place_at_once(home: Home, pending: Pending) -> Optional[Queuing]:
    claim, may_wait = pending.wanted.claim, pending.wanted.wait and home.settings.queue and home.settings.tickets
    server = home.asking_for(claim).routes.known(claim.key) if may_wait else None
    if server is None or server.tickets.is_closed:
        return None
    line, subscription, deadline = server.line.now, server.subscription.now, pending.begun + pending.wanted.wait
    if line is None or not line.has_module or subscription is None or now() >= deadline:
        return None
    queuing = Queuing(home, pending, deadline)
    queuing.ask_on(line, server, subscription)
    return queuing


async def granted(home: Home, pending: Pending, queuing: Optional[Queuing]) -> Optional[Granted]:
    wanted, settings, asking = pending.wanted, home.limits, home.asking
    deadline = pending.begun + (wanted.wait or settings.within)
    each = asking.each(wanted.ttl)
    by_ticket, was_answered, tries = home.settings.tickets, queuing is not None and queuing.was_answered, 0
    must_ask = queuing is None
    while True:
        if must_ask:
            until = min(deadline, now() + settings.unreachable_after)
            is_last = was_answered and deadline - now() < each
            pending.may_hold = True
            try:
                answer = await _try(home, pending, until)
            except Unreachable:
                if not is_last:
                    raise
                # Others held it when the server had time to answer.
                return _nothing(pending)
            was_answered = True
            fence = number(answer.reply)
            if fence is not None:
                if valid_until(answer.asked, wanted.ttl) > now():
                    return Granted(fence, answer.asked, wanted.ttl)
                if now() >= deadline:
                    raise Unreachable("it was granted, and its lease was over when the answer came")
                await home.asking.pause(RETRY.rest(tries), deadline)
                tries += 1
                continue
            pending.may_hold = bool(pending.unanswered)
            if wanted.wait == 0 or now() >= deadline:
                return _nothing(pending)
            queued(home, pending)
            if not (answer.line.has_module and home.settings.queue):
                await home.asking.pause(POLL.rest(tries), deadline)
                tries += 1
                if now() >= deadline:
                    return None
                continue
        must_ask = True
        if by_ticket:
            queuing = queuing or Queuing(home, pending, deadline, was_answered)
            try:
                waited = await queuing.wait()
            except Elsewise as elsewise:
                waited = elsewise.args[0]
            finally:
                queuing.leave()
                queuing = None
        else:
            waited = await park(home, pending, deadline)
        if isinstance(waited, Granted) and valid_until(waited.asked, waited.ttl) > now():
            return waited
        if waited is Waited.OVER or now() >= deadline:
            return _nothing(pending)
        if waited is Waited.NO_TICKETS:
            by_ticket, must_ask = False, not was_answered
        elif waited is Waited.NOT_NOW:
            await home.asking.pause((ROOM if pending.full else RETRY).rest(tries), deadline)
            tries += 1
            if now() >= deadline:
                return _nothing(pending)


async def _try(home: Home, pending: Pending, until: float) -> Answer:
    tries = 0
    while True:
        try:
            return await _try_once(home, pending, until)
        except Unreachable:
            rest = RETRY.rest(tries)
            # With one owner for all tries, the question itself is repeated.
            if not home.asking.owns_tries or now() + rest >= until:
                raise
            tries += 1
            await home.asking.pause(rest, until)


async def _try_once(home: Home, pending: Pending, until: float) -> Answer:
    wanted = pending.wanted
    if home.asking.owns_tries:
        # What is still to be released for an earlier try does not hit this one.
        wanted.claim = wanted.claim._replace(owner=wanted.owner())
    question = _questions.acquire(wanted.claim, wanted.ttl)
    limits = home.asking.limits(wanted.ttl, until)
    try:
        answer = await home.asking_for(wanted.claim).ask(
            wanted.claim.key, lambda _: question, limits, pending.unanswered
        )
        pending.bond = answer.line
        return answer
    except Refused as refusal:
        if "unknown option" in refusal.reason:
            raise NeedsModule(refusal.code, f"this needs a newer module: {refusal.reason}") from refusal
        raise


async def acknowledged(home: Home, wanted: Wanted, grant: Granted, copies: Copies) -> Granted:
    """``WAIT`` stops what is behind it, and counts what came before on its connection: one beside the others."""
    line, limit, millis_left = None, home.limits.response, millis(copies.limit)
    question = _questions.extend(wanted.claim, wanted.ttl, grant.fence)
    waiting: list[Word] = [b"WAIT", copies.replicas, millis_left]
    if copies.is_durable:
        waiting = [b"WAITAOF", 1, copies.replicas, millis_left]
    try:
        server = await within(limit, home.asking.routes.server_of(wanted.claim.key))
        line = await server.own_line(limit)
        asked, extending = now(), line.ask(in_full(line, question), limit)
        extending.add_done_callback(looked_at)
        reply = await home.asking.until_closed(line.ask(pack(waiting), copies.limit + limit))
        extended = await extending
        for each in (extended, reply):
            if isinstance(each, RedisError):
                raise each
    except (RedisError, OSError) as error:
        raise public(error) from error
    finally:
        if line is not None:
            line.close()
    if number(extended) != 1:
        raise LockLost(wanted.name, Loss.TAKEN)
    local, count = reply if isinstance(reply, list) else (1, reply)
    if not local or (number(count) or 0) < copies.replicas:
        raise TooFewReplicas(wanted.name, number(count) or 0, copies.replicas)
    return Granted(grant.fence, asked, wanted.ttl)


def _nothing(pending: Pending) -> Optional[Granted]:
    """Patience has ended. That no place was to be had is told, and not that others held the lock."""
    if pending.full is not None:
        raise pending.full
    return None


async def park(home: Home, pending: Pending, deadline: float) -> Union[Granted, Waited]:
    """On a connection of its own: for servers, modules and users without tickets. It waits for one lock at a time."""
    if pending.wanted.claim.grace is not None or not home.take_room():
        # There is no connection to wait on: it tries, now and then.
        return Waited.NOT_NOW
    line: Optional[Line] = None
    try:
        wanted = pending.wanted
        finding = home.limits.response
        server = await within(min(finding, deadline - now()), home.asking.routes.server_of(wanted.claim.key))
        line = await server.own_line(min(finding, deadline - now()))
        if not line.has_module:
            return Waited.ASK
        pending.parked, pending.may_hold = line, True
        asked, left = now(), deadline - now()
        question = _questions.wait(wanted.claim, wanted.ttl, None if math.isinf(left) else max(left, 0.001))
        reply = await home.asking.until_closed(line.ask(pack(question.words), left + LATE))
        if isinstance(reply, RedisError):
            raise reply
        fence = number(reply)
        pending.parked = pending.full = None
        pending.may_hold = fence is not None or bool(pending.unanswered)
        if fence is not None:
            return Granted(fence, asked, wanted.ttl) if is_fresh(asked, wanted.ttl) else Waited.ASK
        return Waited.OVER if now() >= deadline else Waited.ASK
    except (RedisError, OSError) as error:
        return _after_parking(home, pending, error, deadline)
    finally:
        home.leave_room()
        if line is not None:
            line.close()


def _after_parking(home: Home, pending: Pending, error: BaseException, deadline: float) -> Waited:
    said = verdict(error)
    known = public(error)
    pending.full = known if isinstance(known, QueueFull) else None
    if said is not Verdict.BROKEN:
        pending.parked = None
        pending.may_hold = bool(pending.unanswered)
    if said is Verdict.REFUSED or now() >= deadline:
        raise known from error
    home.asking.routes.redirected(error)
    if pending.full is None:
        home.asking.routes.failed(error)
    return Waited.NOT_NOW
