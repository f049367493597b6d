"""Asks the server that a lock is on, and asks again while a deadline allows, until there is an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from typing import Any, Awaitable, Callable, Coroutine, NamedTuple, Optional, TypeVar

from redis.exceptions import ConnectionError as Disconnected, RedisError, TimeoutError as Silent

from ._lines import Line
from ._questions import Claim, Question
from ._resp import Reply, pack
from ._routes import Routes
from ._server import Server
from ._target import Clustered, Several, Target
from ._time import RETRY, now, within
from ._verdict import Verdict, code_of, public, verdict
from ._wanted import Wanted
from .errors import Closed, Unanswered
from .outcomes import Event
from .settings import Settings, seconds

T = TypeVar("T")
log = logging.getLogger("leasehold")


LEAST_RESPONSE = 0.02

_AT_ONCE = (Verdict.MOVED, Verdict.ASK, Verdict.UNKNOWN_COMMAND, Verdict.UNKNOWN_SCRIPT, Verdict.HAS_MODULE)
"""After these the next try is another one."""


class Answer(NamedTuple):
    reply: Reply
    asked: float  # The moment before the try was sent that was answered
    line: Line
    is_repeated: bool  # An earlier try was not answered, and may have been carried out


class Limits(NamedTuple):
    each: float  # For the answer to each try
    until: float  # For all of them
    outlasts: bool = False  # Whether it goes on while the client is closed: what gives back does


class Asking:
    owns_tries = False  # Whether each try has an owner of its own

    def __init__(self, target: Target, response: float) -> None:
        if isinstance(target, Several):
            # Of these no server is known by itself, so that nothing asks one alone: see Most.
            target = Clustered(target.each[0].endpoint, (), None)
        self.routes = Routes(target, response)
        self._response = response
        self.is_closed = False
        self.open: set[asyncio.Future[Any]] = set()  # What those wait for who are told of the end of the client

    def close(self) -> None:
        self.routes.close()

    def limits(self, ttl: float, until: float, outlasts: bool = False) -> Limits:
        """For a short ttl an answer may take a fifth of that: two renewals may fail before the lease is over."""
        return Limits(self.each(ttl), until, outlasts)

    def each(self, ttl: float) -> float:
        return max(LEAST_RESPONSE, min(self._response, ttl / 5))

    async def until_closed(self, what: asyncio.Future[T]) -> T:
        if self.is_closed:
            raise Closed
        self.open.add(what)
        try:
            return await what
        finally:
            self.open.discard(what)

    async def pause(self, rest: float, deadline: float = math.inf, until: Optional[asyncio.Future[Any]] = None) -> None:
        over = until or asyncio.get_running_loop().create_future()
        with contextlib.suppress(Silent):
            await within(min(rest, deadline - now()), self.until_closed(over))

    def send_away(self) -> None:
        self.is_closed = True
        for each in list(self.open):
            if not each.done():
                each.set_exception(Closed())

    async def ask(
        self,
        key: bytes,
        question: Callable[[float], Question],
        limits: Limits,
        unanswered: Optional[set[Any]] = None,
        prepare: Optional[Callable[[Server, Line, float], Awaitable[None]]] = None,
        may_repeat: bool = True,
    ) -> Answer:
        """``prepare`` and ``question`` are called for each try. Lines that say nothing are added to ``unanswered``."""
        tries, is_repeated, once = 0, False, None
        unanswered = set() if unanswered is None else unanswered
        last: Optional[BaseException] = None
        while True:
            sent: Optional[Line] = None
            if self.routes.is_closed:
                # Nothing is opened any more: nobody would close it.
                raise Closed
            try:
                server = once or self.routes.known(key)
                line = None if server is None else server.line.now
                asked = now()
                if asked >= limits.until:
                    raise Silent("there was no time to ask")
                if server is None or line is None:
                    server, line = await self._find(key, server, limits)
                    asked = now()
                is_asking, once = once is not None, None
                if prepare is not None:
                    await prepare(server, line, min(limits.each, limits.until - asked))
                    asked = now()
                sent = line
                unanswered.add(line)
                limit = min(limits.each, limits.until - asked)
                if is_asking:
                    # In one step with the request, so that nothing comes between the two on this line.
                    line.ask(pack((b"ASKING",)), limit)
                reply = await server.ask(line, question(asked), limit)
                unanswered.discard(line)
                return Answer(reply, asked, line, is_repeated)
            except (RedisError, OSError) as error:
                said = verdict(error)
                is_repeated = is_repeated or (sent is not None and said is Verdict.BROKEN)
                if said is not Verdict.BROKEN:
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
                if rest is None or now() + rest >= limits.until:
                    raise public(last) from error
            tries += 1
            await (asyncio.sleep(rest) if limits.outlasts else self.pause(rest))

    async def _find(self, key: bytes, server: Optional[Server], limits: Limits) -> tuple[Server, Line]:
        if server is None:
            server = await within(limits.until - now(), self.routes.server_of(key))
        return server, await server.line.get(min(self._response, limits.until - now()))

    def _after(self, error: BaseException, said: Verdict, tries: int) -> Optional[float]:
        if said in (Verdict.REFUSED, Verdict.REPLACED) or code_of(error)[0] == "QUEUEFULL":
            return None
        if said in _AT_ONCE and tries < 8:
            return 0.0
        self.routes.failed(error)
        return RETRY.rest(tries)


class Durations(NamedTuple):
    response: float
    within: float
    unreachable_after: float
    slice: float


class Home:
    def __init__(self, target: Target, settings: Settings) -> None:
        self.settings = settings
        self.limits = Durations(*(seconds(name, getattr(settings, name)) for name in Durations._fields))
        self._background: set[asyncio.Future[Any]] = set()
        self.asking = Asking(target, self.limits.response)
        # Ephemeral holds end with the connection on which they were asked for: these have one of their own.
        self.bound = Asking(target, self.limits.response)
        self.loop = asyncio.get_running_loop()
        self.requests: set[Any] = set()
        """Those who ask for a lock at this moment, and leases that are released by one request."""
        self.is_closed = False
        self._room = deque(range(settings.wait_connections))  # To wait on connections

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed

    def asking_for(self, claim: Claim) -> Asking:
        return self.asking if claim.grace is None else self.bound

    def take_room(self) -> bool:
        """Whether one more may wait on a connection. From any thread."""
        try:
            return self._room.pop() >= 0
        except IndexError:
            return False

    def leave_room(self) -> None:
        self._room.append(0)

    def tell(
        self, step: str, wanted: Wanted, since: float, fence: int = 0, until: Optional[float] = None, outcome: str = ""
    ) -> None:
        if self.settings.on_event is not None:
            seconds = (now() if until is None else until) - since
            try:
                self.settings.on_event(
                    Event(step, wanted.name, wanted.claim.owner, fence, seconds, outcome, wanted.number)
                )
            except Exception:
                log.exception("on_event has failed")

    def call(self, what: Callable[..., object], *words: object) -> None:
        """From any thread; nothing if the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(what, *words)
        except RuntimeError:
            pass

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._background.add(task)

        def ended(ended: asyncio.Future[T]) -> None:
            self._background.discard(ended)
            if not ended.cancelled() and ended.exception() is not None:
                log.debug("in the background: %r", ended.exception())

        task.add_done_callback(ended)
        return task
