"""Asks the server that a lock is on, and asks again while a deadline allows, until there is an answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Awaitable, Callable, Optional, Set, Tuple

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as Silent

from . import _clock
from ._backoff import RETRY
from ._limit import within
from ._line import Line
from ._questions import Question, words
from ._reply import Reply
from ._routes import Routes
from ._server import Server
from ._verdict import Verdict, code_of, public, verdict
from .errors import Unanswered

LEAST_RESPONSE = 0.02

_AT_ONCE = (Verdict.MOVED, Verdict.ASK, Verdict.UNKNOWN_COMMAND, Verdict.UNKNOWN_SCRIPT, Verdict.HAS_MODULE)
"""After these the next try is another one."""


@dataclass(frozen=True)
class Answer:
    reply: Reply
    asked: float
    """The moment before the try was sent that was answered."""
    has_module: bool
    is_repeated: bool
    """An earlier try was not answered, and may have been carried out."""


@dataclass(frozen=True)
class Limits:
    each: float
    """For the answer to each try."""
    until: float
    """For all of them."""


class Wire:
    def __init__(self, routes: Routes, response: float) -> None:
        self.routes = routes
        self._response = response

    def limits(self, ttl: float, until: float) -> Limits:
        """For a short ttl an answer may take a fifth of that: two renewals may fail before the lease is over."""
        return Limits(max(LEAST_RESPONSE, min(self._response, ttl / 5)), until)

    async def ask(
        self,
        key: bytes,
        question: Callable[[float], Question],
        limits: Limits,
        unanswered: Optional[Set[Line]] = None,
        prepare: Optional[Callable[[Server, Line, float], Awaitable[None]]] = None,
        may_repeat: bool = True,
    ) -> Answer:
        """``prepare`` is called with the server of each try, and ``question`` then with its moment. Lines on which a
        try was not answered are added to ``unanswered``. What is raised is meant for the caller of this package."""
        tries, is_repeated, once = 0, False, None
        last: Optional[BaseException] = None
        while True:
            sent: Optional[Line] = None
            try:
                server, line, limit = await self._line(key, once, limits)
                is_asking, once = once is not None, None
                if prepare is not None:
                    await prepare(server, line, limit)
                    limit = min(limit, limits.until - _clock.now())
                asked, sent = _clock.now(), line
                if unanswered is not None:
                    unanswered.add(line)
                reply = await self._ask(server, line, key, question(asked), limit, is_asking)
                if unanswered is not None:
                    unanswered.discard(line)
                return Answer(reply, asked, line.has_module, is_repeated)
            except (RedisError, OSError) as error:
                said = verdict(error)
                is_repeated = is_repeated or (sent is not None and said is Verdict.BROKEN)
                if sent is not None and unanswered is not None and said is not Verdict.BROKEN:
                    unanswered.discard(sent)
                if sent is not None and said is Verdict.BROKEN and not may_repeat:
                    raise Unanswered(f"nobody answered, and the command may have been run: {error}") from error
                rest = self._after(error, said, tries)
                once = self.routes.redirected(error)
                if said is Verdict.ELSEWHERE and sent is not None:
                    # The name of the server may lead to another one by now.
                    sent.retire(Disconnected("this server grants no locks any more"))
                if last is None or not isinstance(error, Silent):
                    # That a server was silent for the rest of the time says less than what it said before.
                    last = error
                if rest is None or _clock.now() + rest >= limits.until:
                    raise public(last) from error
            tries += 1
            await asyncio.sleep(rest)

    async def _line(self, key: bytes, once: Optional[Server], limits: Limits) -> Tuple[Server, Line, float]:
        began = _clock.now()
        if began >= limits.until:
            raise Silent("there was no time to ask")
        server = once
        if server is None:
            server = await within(limits.until - began, self.routes.server_of(key))
        line = await server.line(min(self._response, limits.until - _clock.now()))
        return server, line, min(limits.each, limits.until - _clock.now())

    async def _ask(
        self, server: Server, line: Line, key: bytes, question: Question, limit: float, is_asking: bool
    ) -> Reply:
        if is_asking:
            # In one step, so nothing comes between the two on this line. A cluster has no other dialect half-way.
            return (await line.ask_all([[b"ASKING"], words(key, question)], limit))[1]
        return await server.ask(line, key, question, limit)

    def _after(self, error: BaseException, said: Verdict, tries: int) -> Optional[float]:
        """How long to rest before the next try; None if it would come to the same."""
        if said is Verdict.REFUSED or said is Verdict.REPLACED:
            return None
        if said is Verdict.AGAIN and code_of(error)[0] == "QUEUEFULL":
            return None
        if said in _AT_ONCE and tries < 8:
            return 0.0
        self.routes.failed(error)
        return RETRY.rest(tries)
