"""A server as this client knows it: its line for requests, its subscription, and what it can do."""

from __future__ import annotations

import asyncio
from typing import Awaitable, Callable, List, Optional, Set

from redis.exceptions import ResponseError

from . import _clock
from ._limit import within
from ._line import Line, open_connection
from ._plain import Script, needs_module, script_for
from ._questions import Guarded, Question, words
from ._reply import Reply, Word
from ._subscription import Subscription
from ._target import Address, Endpoint
from ._verdict import Verdict, public, verdict

REFUSAL_LASTS = 60.0
"""How long a server that has refused tickets is not asked for any: its operator may change what a user may do."""

UNHEARD_FOR = 10.0
"""For so long places are kept without being told of grants. Then requests wait on connections."""


class TicketOffice:
    """Whether a server gives tickets to this user, and for how long. The first request tells."""

    def __init__(self) -> None:
        self._refused_at: Optional[float] = None
        self._unheard_since: Optional[float] = None
        self.longest: Optional[float] = None

    def refuse(self) -> None:
        self._refused_at = _clock.now()

    @property
    def is_closed(self) -> bool:
        return self._refused_at is not None and _clock.now() - self._refused_at < REFUSAL_LASTS

    def heard(self) -> None:
        self._unheard_since = None

    def not_heard(self) -> None:
        """No connection could be opened for being told of grants."""
        if self._unheard_since is None:
            self._unheard_since = _clock.now()
        elif _clock.now() - self._unheard_since >= UNHEARD_FOR:
            self._unheard_since = None
            self.refuse()


class Shared:
    """Something that is opened once for all who need it, and anew when it is of no more use."""

    def __init__(self) -> None:
        self._opening: Optional[asyncio.Future[object]] = None

    async def get(self, open_it: Callable[[], Awaitable[object]], limit: float) -> object:
        if self._opening is None or (self._opening.done() and not _is_good(self._opening)):
            self._opening = asyncio.ensure_future(open_it())
            # Whoever asked for it may be gone when it fails.
            self._opening.add_done_callback(_is_good)
        opening = self._opening
        if not opening.done():
            # Whoever gives up leaves it to the others.
            await within(limit, asyncio.wait([opening]))
        return opening.result()

    def now(self) -> Optional[object]:
        opening = self._opening
        return opening.result() if opening is not None and opening.done() and _is_good(opening) else None

    def stop(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()


def _is_good(opening: asyncio.Future[object]) -> bool:
    if opening.cancelled() or opening.exception() is not None:
        return False
    opened = opening.result()
    return opened.is_usable if isinstance(opened, Line) else not getattr(opened, "is_closed", False)


def _end(opening: asyncio.Future[Line]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class Server:
    def __init__(self, endpoint: Endpoint, address: Optional[Address], response: float) -> None:
        self.address = address
        self.tickets = TicketOffice()
        self._endpoint = endpoint
        self._response = response
        self._line = Shared()
        self._subscription = Shared()
        self._may_have_module = True
        self._lines: Set[Line] = set()
        self._scripts: Set[str] = set()

    async def line(self, limit: float) -> Line:
        line = await self._line.get(self.open_line, limit)
        assert isinstance(line, Line)
        return line

    async def own_line(self, limit: float) -> Line:
        """A line that nobody else asks on."""
        opening = asyncio.ensure_future(self.open_line())
        try:
            return await within(limit, opening)
        except BaseException:
            # It may have been opened in the moment in which it was given up.
            opening.add_done_callback(_end)
            raise

    async def open_line(self) -> Line:
        connection = self._endpoint.open(self.address, self._response)
        await open_connection(connection, self._response)
        connection.socket_timeout = None
        line = Line(connection, self._response)
        self._lines = {each for each in self._lines if not each.ended.is_set()} | {line}
        try:
            line.has_module = await self._has_module(line)
        except BaseException:
            line.close()
            raise
        return line

    async def _has_module(self, line: Line) -> bool:
        try:
            known = await line.ask([b"COMMAND", b"INFO", b"LOCK.ACQUIRE"], self._response)
        except ResponseError:
            # A user who may not ask finds out by the first request.
            return self._may_have_module
        return isinstance(known, list) and len(known) == 1 and known[0] is not None

    async def subscription(self, limit: float) -> Subscription:
        subscription = await self._subscription.get(self._subscribe, limit)
        assert isinstance(subscription, Subscription)
        return subscription

    async def _subscribe(self) -> Subscription:
        connection = self._endpoint.open(self.address, self._response)
        await open_connection(connection, self._response)
        subscription = Subscription(connection)
        try:
            await within(self._response, subscription.begin())
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def ask(self, line: Line, key: bytes, question: Question, limit: float) -> Reply:
        """In the words that this server knows."""
        if line.has_module:
            try:
                return await line.ask(words(key, question), limit)
            except ResponseError as error:
                if verdict(error) is not Verdict.UNKNOWN_COMMAND:
                    raise
                if isinstance(question, Guarded) and "LOCK.GUARD" not in str(error):
                    # It is the guarded command that the server does not know.
                    raise public(error) from error
                line.has_module = self._may_have_module = False
                raise
        if needs_module(question) and await self._has_module(line):
            line.has_module = self._may_have_module = True
            return await self.ask(line, key, question, limit)
        script, rest = script_for(key, question)
        try:
            return await self._run(line, script, rest, limit)
        except ResponseError as error:
            if verdict(error) is Verdict.HAS_MODULE:
                line.has_module = self._may_have_module = True
            raise

    async def _run(self, line: Line, script: Script, rest: List[Word], limit: float) -> Reply:
        """By its digest once the server has run it: a digest that is not known is an error, which it counts."""
        if script.digest in self._scripts:
            try:
                return await line.ask([b"EVALSHA", script.digest, *rest], limit)
            except ResponseError as error:
                if verdict(error) is not Verdict.UNKNOWN_SCRIPT:
                    raise
                self._scripts.clear()
        reply = await line.ask([b"EVAL", script.text, *rest], limit)
        self._scripts.add(script.digest)
        return reply

    def close(self) -> None:
        for shared in (self._line, self._subscription):
            shared.stop()
        for line in list(self._lines):
            line.close()
        subscription = self._subscription.now()
        if isinstance(subscription, Subscription):
            subscription.close()
