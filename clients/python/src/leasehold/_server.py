"""A server as this client knows it: its line for requests, its subscription, and what it can do."""

from __future__ import annotations

import asyncio
import math
from typing import Awaitable, Callable, Generic, Optional, TypeVar

from redis.exceptions import ConnectionError as Disconnected, RedisError, ResponseError

from ._direct import Pool
from ._lines import Line, Subscription, Wire, open_wire
from ._plain import Script, without_scripts
from ._questions import Question
from ._resp import Reply, Word, pack
from ._target import Address, Endpoint
from ._time import looked_at, now, within
from ._verdict import Verdict, code_of, public, verdict

REFUSAL_LASTS = 60.0
"""How long a server that has refused tickets is not asked for any: its operator may change what a user may do."""

UNHEARD_FOR = 10.0  # For so long places are kept without being told of grants. Then requests wait on connections.


class TicketOffice:
    def __init__(self) -> None:
        self._refused_until = 0.0
        self._unheard_since: Optional[float] = None
        self.longest = math.inf

    def refuse(self) -> None:
        self._refused_until = now() + REFUSAL_LASTS

    @property
    def is_closed(self) -> bool:
        return now() < self._refused_until

    def heard(self) -> None:
        self._unheard_since = None

    def not_heard(self) -> None:
        if self._unheard_since is None:
            self._unheard_since = now()
        elif now() - self._unheard_since >= UNHEARD_FOR:
            self._unheard_since = None
            self.refuse()


W = TypeVar("W", bound=Wire)


class Shared(Generic[W]):
    """A connection that is opened once for all who need it, and anew when it is of no more use."""

    def __init__(self, open_it: Callable[[], Awaitable[W]]) -> None:
        self._open = open_it
        self._opening: Optional[asyncio.Future[W]] = None
        self.last: Optional[W] = None

    @property
    def now(self) -> Optional[W]:
        return self.last if self.last is not None and self.last.is_usable else None

    async def get(self, limit: float) -> W:
        if self.last is not None and self.last.is_usable:
            return self.last
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.ensure_future(self._open())
            opening.add_done_callback(self._opened)
        # Whoever gives up leaves it to the others.
        if not opening.done():
            await within(limit, asyncio.wait([opening]))
        if opening.cancelled():
            raise Disconnected("the client was closed")
        return opening.result()

    def _opened(self, opening: asyncio.Future[W]) -> None:
        self._opening = None
        looked_at(opening)
        if not opening.cancelled() and opening.exception() is None:
            self.last = opening.result()

    def stop(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self.last is not None:
            self.last.close()


class Server:
    def __init__(self, endpoint: Endpoint, address: Optional[Address], response: float) -> None:
        self.address = address
        self.tickets = TicketOffice()
        self.pool = Pool(endpoint, address)
        self.database = int(str(endpoint.options.get("db") or 0))
        self._endpoint = endpoint
        self._response = response
        self.line: Shared[Line] = Shared(self._open_shared_line)
        self.subscription: Shared[Subscription] = Shared(self.subscribed)
        self.has_module = True  # As far as is known
        self._lines: set[Wire] = set()
        self._scripts: set[str] = set()
        self._is_scriptless = False  # This user may not run any

    async def _open_shared_line(self) -> Line:
        line = await self.own_line(2 * self._response)
        if self.line.last is not None:
            # The address may lead to another server now, which tells nothing on the connections to the former one.
            self.pool.drop_idle()
            if self.subscription.last is not None:
                self.subscription.last.close()
        return line

    async def own_line(self, limit: float) -> Line:
        async def look(line: Line) -> None:
            line.has_module = self.has_module = await self._has_module(line)

        return await self._opened(limit, lambda writer: Line(writer, self._response), look)

    async def _opened(
        self, limit: float, kind: Callable[[asyncio.StreamWriter], W], begin: Callable[[W], Awaitable[None]]
    ) -> W:
        until, connection = now() + limit, self._endpoint.open(self.address, self._response)
        wire = await open_wire(connection, min(limit, self._response), kind)
        self._lines = {each for each in self._lines if not each.is_closed} | {wire}
        try:
            await within(until - now(), begin(wire))
        except BaseException:
            wire.close()
            raise
        return wire

    async def _has_module(self, line: Line) -> bool:
        known = await line.ask(pack((b"COMMAND", b"INFO", b"LOCK.ACQUIRE")), self._response)
        if isinstance(known, RedisError):
            # A user who may not ask finds out by the first request.
            return self.has_module
        return isinstance(known, list) and len(known) == 1 and known[0] is not None

    async def subscribed(self, channel: Optional[bytes] = None) -> Subscription:
        return await self._opened(2 * self._response, lambda writer: Subscription(writer, channel), Subscription.begin)

    def known_words(self, question: Question) -> Optional[bytes]:
        """In the words that this server knows, if they are known. Called from any thread."""
        if self.has_module:
            return pack(question.words)
        if isinstance(question.plain, str):
            return None
        script, rest = question.call()
        return pack([b"EVALSHA", script.digest, *rest]) if script.digest in self._scripts else None

    def learn(self, error: RedisError) -> None:
        said = verdict(error)
        if said is Verdict.UNKNOWN_COMMAND:
            self.has_module = False
        elif said is Verdict.HAS_MODULE:
            self.has_module = True
        elif said is Verdict.UNKNOWN_SCRIPT:
            self._scripts.clear()

    async def ask(self, line: Line, question: Question, limit: float) -> Reply:
        if line.has_module:
            reply = await line.ask(pack(question.words), limit)
            if not isinstance(reply, RedisError):
                return reply
            if verdict(reply) is Verdict.UNKNOWN_COMMAND:
                if question.words[0] == b"LOCK.GUARD" and "LOCK.GUARD" not in str(reply):
                    # It is the guarded command that the server does not know.
                    raise public(reply)
                line.has_module = self.has_module = False
            raise reply
        if isinstance(question.plain, str) and await self._has_module(line):
            line.has_module = self.has_module = True
            return await self.ask(line, question, limit)
        script, rest = question.call()
        try:
            return await self._run(line, script, rest, limit)
        except ResponseError as error:
            if verdict(error) is Verdict.HAS_MODULE:
                line.has_module = self.has_module = True
            raise

    async def _run(self, line: Line, script: Script, rest: list[Word], limit: float) -> Reply:
        """By its digest once the server has run it: a digest that is not known is an error, which it counts."""
        if script.digest in self._scripts:
            reply = await line.ask(pack([b"EVALSHA", script.digest, *rest]), limit)
            if not isinstance(reply, RedisError):
                return reply
            if verdict(reply) is not Verdict.UNKNOWN_SCRIPT:
                raise reply
            self._scripts.clear()
        if not self._is_scriptless:
            reply = await line.ask(pack([b"EVAL", script.text, *rest]), limit)
            if not isinstance(reply, RedisError):
                self._scripts.add(script.digest)
                return reply
            # It changes nothing, and shows whether the server has what is needed instead.
            probe = pack([b"SET", rest[1], b"", b"IFEQ", b"leasehold: no lock", b"PX", 1])
            if code_of(reply)[0] != "NOPERM" or isinstance(await line.ask(probe, limit), RedisError):
                raise reply
            self._is_scriptless = True

        async def ask(*its_words: Word) -> Reply:
            reply = await line.ask(pack(its_words), limit)
            if isinstance(reply, RedisError):
                raise reply
            return reply

        return await without_scripts(ask, script, rest)

    def close(self) -> None:
        self.pool.close()
        for shared in (self.line, self.subscription):
            shared.stop()
        for line in list(self._lines):
            line.close()
