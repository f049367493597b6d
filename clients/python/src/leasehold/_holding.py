"""What a client holds on one event loop: it is renewed, extended, guarded by, and given back."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any, Coroutine, Optional, TypeVar

from redis.exceptions import RedisError

from . import _questions
from ._asking import Home
from ._lines import Line
from ._pending import LeaseState, Pending, give_up, in_full
from ._questions import UNLIMITED, Claim, Question
from ._resp import Reply, Word, number, pack
from ._target import Target
from ._time import LONGEST_TIMER, now, wake
from .errors import Closed, LeaseholdError, LockLost, Refused, Unreachable
from .outcomes import Loss, Released
from .settings import Name, Settings

T = TypeVar("T")
log = logging.getLogger("leasehold")

LONGEST_SLEEP = 1.0  # The clock of event loops stands still in a suspend: a loss is noticed so long after it
LOOKS_PART = 0.05  # The part of its time that a loop may spend on looking through its leases
EACH_LOOK = 1e-6

_NOT_HELD = (Loss.EXPIRED, Loss.TAKEN, Loss.FORKED)


class Holding(Home):
    def __init__(self, target: Target, settings: Settings) -> None:
        super().__init__(target, settings)
        self.leases: set[LeaseState] = set()
        self._look_at = math.inf
        self._looking: Optional[asyncio.TimerHandle] = None
        self._giving_back: dict[asyncio.Future[Any], Name] = {}
        """What is being released or could not be, and what may have been granted to those who gave up."""

    def _give_back_by(self, name: Name, end: float, work: Coroutine[object, object, T]) -> asyncio.Future[T]:
        """Whoever closes the client is told the name if it takes too long, or fails before the lease ends."""
        giving = self.spawn(work)
        self._giving_back[giving] = name

        def ended(given: asyncio.Future[T]) -> None:
            if given.cancelled() or given.exception() is None:
                del self._giving_back[given]
            else:
                self.loop.call_later(min(max(0.0, end - now()), LONGEST_TIMER), self._giving_back.pop, given)

        giving.add_done_callback(ended)
        return giving

    def look_by(self, moment: float) -> None:
        """From any thread."""
        if moment < self._look_at:
            self._look_at = moment
            self.call(self._arm)

    def _arm(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        rest = min(max(0.0, self._look_at - now()), LONGEST_SLEEP)
        self._looking = self.loop.call_later(rest, self._look)

    def _look(self) -> None:
        # Whoever adds a lease while this looks has it look again.
        self._look_at, here = math.inf, now()
        leases = list(self.leases)
        due = [state for state in leases if state.next_look <= here]
        for state in due:
            if state.loss is not None:
                self._seen_lost(state)
            elif state.renew_at <= here and state.renew_at < state.renew_until:
                state.renew_at = math.inf
                self.spawn(self._renew(state))
        looks = [state.next_look for state in list(self.leases)]
        if looks:
            least = here + len(leases) * EACH_LOOK / LOOKS_PART
            self.look_by(min(max(min(looks), least), here + LONGEST_SLEEP))

    def _seen_lost(self, state: LeaseState) -> None:
        self.leases.discard(state)
        if state.loss in (Loss.EXPIRED, Loss.TAKEN):
            log.warning("the lock %r was lost: %s", state.name, state.loss.value)

    async def _renew(self, state: LeaseState) -> None:
        try:
            await self.extend(state, state.ttl, state.end)
        except LeaseholdError as error:
            state.renew_at = now() + max(0.02, state.ttl / 10)
            if state.loss is None:
                log.warning("the lock %r could not be renewed yet: %s", state.name, error)
        if state.loss is not None and state in self.leases:
            self._seen_lost(state)
        self.look_by(state.next_look)

    def bind(self, state: LeaseState, line: Optional[Line]) -> None:
        """An ephemeral hold ends with the connection on which it was asked for: then it is asked for on another one."""
        grace = state.claim.grace
        if grace is None or state.loss is not None:
            return

        def ended() -> None:
            if line is not None:
                line.bonds.discard(ended)
            if state in self.leases:
                state.end = min(state.end, now() + grace)
                ttl = state.ttl if now() < state.renew_until else state.end - now()
                self.spawn(self.extend(state, max(0.001, ttl), state.end, binds=True))
                self.look_by(state.next_look)

        if line is None or not line.is_usable:
            ended()
        else:
            line.bonds.add(ended)
            state.when_lost(lambda: line.bonds.discard(ended))

    async def extend(self, state: LeaseState, ttl: float, until: float, binds: bool = False) -> bool:
        """Whether the lease ends a ttl from now. One at a time: two might arrive in either order."""
        self.check_open()
        if state.is_extending is None:
            state.is_extending = asyncio.Lock()
        async with state.is_extending:
            if state.loss is not None:
                return False

            def question(asked: float) -> Question:
                state.about_to_extend(asked, ttl)
                return (
                    _questions.acquire(state.claim, ttl) if binds else _questions.extend(state.claim, ttl, state.fence)
                )

            is_answered = False
            try:
                answer = await (self.bound if binds else self.asking).ask(
                    state.claim.key, question, self.asking.limits(ttl, min(until, state.end))
                )
                is_answered = not answer.is_repeated
            finally:
                if not is_answered:
                    state.not_extended(ttl)
            if number(answer.reply) != (state.fence if binds else 1):
                state.lose(Loss.TAKEN)
                if binds and number(answer.reply) is not None:
                    # A later grant of the same owner, which nobody wants.
                    self.spawn(give_up(self, Pending(state.wanted)))
                return False
            if binds:
                self.bind(state, answer.line)
            is_extended = state.extended(answer.asked, ttl)
        self.look_by(state.next_look)
        if is_extended:
            self.tell("renewed", state.wanted, now(), state.fence, state.end)
        return is_extended

    async def reshare(self, state: LeaseState, share: int) -> Optional[int]:
        """The fence it has with that share; None: others hold it, too, and all is as it was."""
        self.check_open()
        if state.is_extending is None:
            state.is_extending = asyncio.Lock()
        async with state.is_extending:
            state.check()
            claim = state.claim._replace(share=share)
            question = _questions.acquire(claim, state.ttl)
            limits = self.asking.limits(state.ttl, min(now() + self.limits.within, state.end))
            asking = self.asking_for(state.claim)
            answer = await asking.ask(state.claim.key, lambda _: question, limits, state.unanswered)
            fence = number(answer.reply)
            if fence is None:
                return None
            if share == UNLIMITED and fence != state.fence:
                # It was lost, and this is another grant.
                state.lose(Loss.TAKEN)
                self.spawn(give_up(self, Pending(state.wanted)))
                raise LockLost(state.name, state.loss or Loss.TAKEN)
            state.claim, state.fence = claim, fence
            state.extended(answer.asked, state.ttl)
            self.bind(state, answer.line)
        self.look_by(state.next_look)
        return fence

    async def guard(self, state: LeaseState, command: tuple[Word, ...]) -> Reply:
        self.check_open()
        state.check()
        question = _questions.guarded(state.claim, state.fence, command)
        limits = self.asking.limits(state.ttl, now() + self.limits.within)
        try:
            answer = await self.asking.ask(state.claim.key, lambda _: question, limits, may_repeat=False)
        except Refused as refused:
            if refused.code != "NOTHOLDER":
                raise
            state.lose(Loss.TAKEN)
            raise LockLost(state.name, state.loss or Loss.TAKEN) from refused
        return answer.reply

    async def release(self, state: LeaseState, limit: float) -> Released:
        until = now() + limit
        if state.release is None and not self.is_closed and self.may_release_at_once(state):
            server = self.asking.routes.known(state.claim.key)
            line = None if server is None else server.line.now
            if line is not None and line.has_module:
                parting = Parting(self, state)
                packed = pack(_questions.release(state.claim, state.fence).words)
                line.send(packed, (parting,), min(self.limits.response, limit))
                await parting.told
        while True:
            known = self.known_release(state)
            if known is not None:
                return known
            releasing = self.begin_release(state, Loss.RELEASED)
            await asyncio.wait([releasing], timeout=max(0.0, until - now()))
            if not releasing.done():
                raise Unreachable(f"the release of {state.name!r} was not answered, and goes on in the background")

    def may_release_at_once(self, state: LeaseState) -> bool:
        return state.hold_until is None and not state.unanswered and state.loss is None

    def known_release(self, state: LeaseState) -> Optional[Released]:
        if state.was_detached:
            return Released.DETACHED
        if state.loss is Loss.FORKED:
            return Released.LATE
        if state.released is not None:
            return state.released
        if state.release is not None:
            return _result(state.release) if state.release.done() else None
        # Closing released what was held: this one had been lost before.
        return Released.LATE if self.is_closed else None

    def begin_release(
        self, state: LeaseState, loss: Loss, was_asked: bool = False
    ) -> asyncio.Future[Optional[Released]]:
        """``was_asked``: an earlier try, while it was held, may have been the one that released it."""
        if state.release is None:
            was_held = state.loss not in _NOT_HELD
            state.lose(loss)
            self.leases.discard(state)
            state.release = self._give_back_by(state.name, state.end, self._released(state, was_held, was_asked))
        return state.release

    async def _released(self, state: LeaseState, was_held: bool, was_asked: bool) -> Released:
        end, until = state.end, max(now() + self.limits.within, state.end)
        limits = self.asking.limits(self.limits.within, until, outlasts=True)
        hold_until = state.hold_until
        if hold_until is not None and was_held and hold_until > now():

            def rest(asked: float) -> Question:
                return _questions.extend(state.claim, max(0.001, hold_until - asked), state.fence)

            answer = await self.asking.ask(state.claim.key, rest, limits)
            return Released.LATER if number(answer.reply) == 1 else Released.LATE
        answer = await self.asking.ask(state.claim.key, lambda _: _questions.release(state.claim, state.fence), limits)
        for line in state.unanswered:
            self.spawn(line.last_word(in_full(line, _questions.release(state.claim, None)), self.limits.response))
        # An earlier try of this release may have been the one that released it.
        is_all = number(answer.reply) == len(state.claim.keys)
        is_released = is_all or was_asked or (answer.is_repeated and answer.asked < end)
        return Released.RELEASED if is_released and was_held else Released.LATE

    def detach(self, state: LeaseState) -> None:
        if state.lose(Loss.DETACHED):
            state.was_detached = True
            self.leases.discard(state)
            if not state.is_claimed:
                self.call(self._claim, state)

    def _claim(self, state: LeaseState) -> None:
        limits = self.asking.limits(state.ttl, state.end, outlasts=True)
        self.spawn(
            self.asking.ask(state.claim.key, lambda _: _questions.extend(state.claim, state.ttl, state.fence), limits)
        )

    def drop(self, state: LeaseState) -> None:
        if self.is_closed or state.was_detached or state.is_released or state.loss is Loss.FORKED:
            return
        log.warning("the lease of %r was dropped without a release, and is released now", state.name)
        self.begin_release(state, Loss.RELEASED)


def released_by(claim: Claim, reply: Reply) -> Released:
    return Released.RELEASED if number(reply) == 1 + len(claim.also) else Released.LATE


class Parting:
    """The one request that releases a lease: whatever comes, and whoever waits, it is released."""

    __slots__ = ("_asked", "_ended", "_holding", "_state", "told")

    def __init__(self, holding: Holding, state: LeaseState) -> None:
        self._holding = holding
        self._state = state
        state.lose(Loss.RELEASED)
        holding.leases.discard(state)
        holding.requests.add(state)
        self._asked = now()
        self._ended: asyncio.Future[Optional[Released]] = holding.loop.create_future()
        """For others than the one who releases it."""
        state.release = self._ended
        self.told: asyncio.Future[None] = holding.loop.create_future()

    def done(self) -> bool:
        return self._ended.done()

    def set_result(self, reply: Reply) -> None:
        if isinstance(reply, RedisError):
            self._ask_again(False)
        else:
            self._state.released = released_by(self._state.claim, reply)
            self._end()

    def set_exception(self, _: BaseException) -> None:
        # It may have released it all the same.
        self._ask_again(self._asked < self._state.end)

    def _ask_again(self, was_asked: bool) -> None:
        self._state.release = None
        self._holding.begin_release(self._state, Loss.RELEASED, was_asked)
        self._end()

    def _end(self) -> None:
        requests, soon = self._holding.requests, self._holding.loop.call_soon
        requests.discard(self._state)
        self._ended.set_result(None)
        if requests:
            # The message to the next one comes right behind the answer: it goes on first, for all others wait for it.
            soon(soon, wake, self.told)
        else:
            wake(self.told)


def _result(releasing: asyncio.Future[Optional[Released]]) -> Optional[Released]:
    if releasing.cancelled():
        raise Closed
    return releasing.result()
