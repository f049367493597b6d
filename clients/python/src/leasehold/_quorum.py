"""A lock on most of several servers that know nothing of each other: ``docs/redlock.md``."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Callable, Coroutine, Optional, Union

from redis.exceptions import RedisError

from . import _questions
from ._asking import Answer, Asking, Limits
from ._lines import Line
from ._questions import Claim, Question
from ._resp import Reply, number, pack
from ._target import Several
from ._time import now, within
from ._verdict import public
from .errors import LeaseholdError, Refused, SettingError, Unreachable

LONGEST_EACH = 0.5  # How long one server of a quorum may take to answer at the most
LEAST_GRACE = 0.01  # Those who are a little slower than most are waited for


Told = Union[Reply, LeaseholdError]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Future[None]"]


class Most(Asking):
    """Each is asked by a task of its own, which goes on when most have answered: a late grant is given back."""

    owns_tries = True

    def __init__(self, target: Several, response: float, spawn: Spawn) -> None:
        super().__init__(target, response)
        self._spawn = spawn
        self._peers = [Asking(each, response) for each in target.each]
        self._majority = len(self._peers) // 2 + 1
        self._run_ids: dict[Asking, tuple[Line, str]] = {}  # Which server each connection leads to

    def send_away(self) -> None:
        super().send_away()
        for peer in self._peers:
            peer.send_away()

    def close(self) -> None:
        super().close()
        for peer in self._peers:
            peer.close()

    async def ask(
        self, key: bytes, question: Callable[[float], Question], limits: Limits, *_: object, **__: object
    ) -> Answer:
        asked = now()
        its_question = question(asked)
        command, owner, *rest = its_question.words[0], *its_question.words[2:]
        claim = Claim(key, owner if isinstance(owner, bytes) else b"")
        limits = limits._replace(each=min(limits.each / 2, LONGEST_EACH))
        if command == b"LOCK.ACQUIRE" and len(rest) == 1:
            return await self._acquire(claim, its_question, limits)
        if command not in (b"LOCK.EXTEND", b"LOCK.RELEASE") or b"ALSO" in rest:
            raise SettingError("client: a quorum has exclusive locks of one name, and nothing else")
        is_release = command == b"LOCK.RELEASE"
        # Each server has granted it by a fence of its own, before that was raised.
        told = await self._ask_all(_questions.release(claim, None) if is_release else its_question, limits, self._peers)
        agreed = sum(number(reply) == 1 for reply in _said(told))
        refused = len(_said(told)) - agreed
        may_be_held = len(self._peers) - refused >= self._majority
        if agreed >= self._majority or (is_release and may_be_held and agreed):
            return Answer(1, asked, _NO_LINE, False)
        if not may_be_held:
            return Answer(0, asked, _NO_LINE, False)
        raise self._too_few(told) or Unreachable("too few servers answered in time")

    async def _acquire(self, claim: Claim, question: Question, limits: Limits) -> Answer:
        asked, fence = now(), None
        try:
            told = await self._ask_all(question, limits, self._peers, claim)
            error: Optional[LeaseholdError] = next((e for e in told.values() if isinstance(e, SettingError)), None)
            if error is None:
                fence = await self._raised(claim, told, limits)
                error = None if fence is not None else self._too_few(told)
        except Refused as refused:
            error = refused
        finally:
            if fence is None:
                # Everywhere: it may have been granted by a server that was not heard.
                await self._ask_all(_questions.release(claim, None), self._last(limits), self._peers)
        if fence is None and error is not None:
            raise error
        return Answer(fence, asked, _NO_LINE, False)

    def _last(self, limits: Limits) -> Limits:
        return Limits(limits.each, now() + 10 * limits.each, True)

    async def _raised(self, claim: Claim, told: dict[Asking, Told], limits: Limits) -> Optional[int]:
        """The fence that most of them have now; None if not enough have granted the lock."""
        granted = {peer: number(reply) for peer, reply in told.items() if not isinstance(reply, BaseException)}
        fences = {peer: fence for peer, fence in granted.items() if fence is not None}
        while len(fences) >= self._majority:
            fence = max(fences.values())
            told = await self._ask_all(_questions.raised(claim, fence), limits, list(fences))
            if [number(reply) for reply in _said(told)].count(fence) >= self._majority:
                return fence
            error = self._too_few(told)
            if not isinstance(error, Refused) or len(fences) == self._majority:
                if error is not None:
                    raise error
                break
            # A clock that is far ahead of most is left out.
            fences = {peer: its for peer, its in fences.items() if its < fence}
        return None

    async def _ask_all(
        self, question: Question, limits: Limits, whom: list[Asking], claim: Optional[Claim] = None
    ) -> dict[Asking, Told]:
        """What those have said who answered in time. Nobody is waited for who cannot change what most have said."""
        heard: dict[Asking, Told] = {}
        begun, is_over = now(), False

        async def ask(peer: Asking) -> None:
            try:
                if claim is not None:
                    await self._look(peer, claim.key, limits)
                answer = await peer.ask(question.key, lambda _: question, limits)
                told: Told = answer.reply
                if claim is not None:
                    # The connection may have been lost meanwhile.
                    await self._look(peer, claim.key, limits, answer.line)
            except LeaseholdError as error:
                told = error
            if not is_over:
                heard[peer] = told
            elif claim is not None and not (told is None or isinstance(told, (Refused, SettingError))):
                # It may be granted, and nobody hears of it. What a server has granted by another address stays.
                await peer.ask(claim.key, lambda _: _questions.release(claim, None), self._last(limits))

        tasks: set[asyncio.Future[None]] = {self._spawn(ask(peer)) for peer in whom}
        until = begun + limits.each
        try:
            while tasks and now() < until:
                _, tasks = await asyncio.wait(tasks, timeout=until - now(), return_when=asyncio.FIRST_COMPLETED)
                agreed = sum(bool(number(told)) for told in _said(heard))
                if agreed >= self._majority or len(whom) - (len(heard) - agreed) < self._majority:
                    until = min(until, now() + max(LEAST_GRACE, now() - begun))
                    begun = now()
        finally:
            is_over = True
        return heard

    async def _look(self, peer: Asking, key: bytes, limits: Limits, line: Optional[Line] = None) -> None:
        """One that is named twice would count twice. After a new connection it may be another one."""
        try:
            if line is None:
                server = await within(limits.each, peer.routes.server_of(key))
                line = await server.line.get(limits.each)
            if peer in self._run_ids and self._run_ids[peer][0] is line:
                return
            reply = await line.ask(pack([b"INFO", b"server"]), limits.each)
        except (RedisError, OSError) as error:
            raise public(error) from error
        found = re.search(rb"run_id:(\w+)", reply if isinstance(reply, bytes) else b"")
        run_id = "" if found is None else found[1].decode()
        # A request at the same time may have looked, too.
        others = [its for other, (_, its) in self._run_ids.items() if other is not peer]
        if run_id and run_id in others:
            raise SettingError("client: two addresses of a quorum lead to one server")
        self._run_ids[peer] = line, run_id

    def _too_few(self, told: dict[Asking, Told]) -> Optional[LeaseholdError]:
        errors = [each for each in told.values() if isinstance(each, LeaseholdError)]
        if len(told) - len(errors) >= self._majority:
            return None
        refused = [each for each in errors if not isinstance(each, Unreachable)]
        said = f"{len(told) - len(errors)} of {len(self._peers)} servers answered in time"
        return refused[0] if refused else Unreachable(said)


def _said(told: dict[Asking, Told]) -> list[Reply]:
    return [each for each in told.values() if not isinstance(each, LeaseholdError)]


_NO_LINE = object.__new__(Line)
_NO_LINE.has_module = False  # Nobody waits in a queue that others do not share
