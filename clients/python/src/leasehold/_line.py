"""One connection, on which many ask at the same time: answers come in the order of the requests.

Who gives up a request leaves it in its place, and the answer is dropped when it comes. A line on which an
answer is overdue is retired: nobody asks on it any more, but it stays open for its last words. A request for
a lock that a silent server has not read yet is so followed by its release, on the same connection and behind
it: whenever the server goes on, nothing stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import Deque, List, Optional, Sequence, Tuple

from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as Silent

from . import _clock, _fork
from ._limit import within
from ._names import addresses_of
from ._reply import Reply, Words

LAST_WORDS = 60.0
"""How long a retired line stays open for a server that may read on."""


class Line:
    def __init__(self, connection: AbstractConnection, response: float) -> None:
        self._connection = connection
        self._response = response
        self._waiting: Deque[Tuple[asyncio.Future[Reply], float]] = deque()
        self._retired: Optional[Exception] = None
        self.ended = asyncio.Event()
        self.has_module = True
        self._reading = asyncio.ensure_future(self._read())
        _fork.remember(self)

    @property
    def is_usable(self) -> bool:
        return self._retired is None

    async def ask(self, words: Words, limit: float) -> Reply:
        """The answer, or an error of redis-py: what the server said, or that it said nothing in time."""
        return (await self.ask_all([words], limit))[0]

    async def ask_all(self, commands: Sequence[Words], limit: float) -> List[Reply]:
        if self._retired is not None:
            raise self._retired
        answers = [self._send(words) for words in commands]
        try:
            await asyncio.wait(answers, timeout=max(0.0, limit))
            if not all(answer.done() for answer in answers):
                raise self._overdue()
            for answer in answers:
                answer.exception()  # each is looked at, also if an earlier one is raised
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()

    async def last_word(self, words: Words, limit: float) -> bool:
        """Sends it also on a retired line. Whether it was answered in time."""
        if self.ended.is_set():
            return False
        answer = self._send(words)
        await asyncio.wait([answer], timeout=limit)
        return answer.done() and not answer.cancelled() and answer.exception() is None

    def _send(self, words: Words) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        writer = self._connection._writer
        if writer is None:
            raise Disconnected("the connection has ended")
        # Not awaited: what is written here and who waits for it are one step, whoever is cancelled.
        writer.writelines(self._connection.pack_command(*words))
        self._waiting.append((answer, _clock.now()))
        return answer

    def _overdue(self) -> Exception:
        since = _clock.now() - self._waiting[0][1] if self._waiting else 0.0
        silent = Silent(f"no answer for {since:.3f} s")
        if since >= self._response:
            self.retire(silent)
        return silent

    def retire(self, reason: Exception) -> None:
        """Nobody asks here from now on. What was asked is not answered."""
        if self._retired is not None:
            return
        self._retired = reason
        for answer, _ in self._waiting:
            if not answer.done():
                answer.set_exception(reason)
                answer.exception()
        asyncio.get_running_loop().call_later(LAST_WORDS, self.close)

    def close(self) -> None:
        """Ends the connection at once: the server drops a request that waits on it."""
        if self.ended.is_set():
            return
        self.ended.set()
        self.retire(Disconnected("the connection was closed"))
        hang_up(self._connection)
        if not self._reading.done():
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            while True:
                await self._read_one()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.retire(error)
        finally:
            self.close()

    async def _read_one(self) -> None:
        reply: Reply = None
        error: Optional[RedisError] = None
        try:
            reply = await read(self._connection)
        except (ResponseError, AuthenticationError, BusyLoadingError) as said:
            error = said
        if not self._waiting:
            raise Disconnected("the server said something unasked")
        answer, _ = self._waiting.popleft()
        if answer.done():
            return
        if error is None:
            answer.set_result(reply)
        else:
            answer.set_exception(error)

    def forget_in_child(self) -> None:
        writer = self._connection._writer
        if writer is not None:
            abandon_socket(writer)
        self._connection._writer = self._connection._reader = None


async def open_connection(connection: AbstractConnection, limit: float) -> None:
    """Whoever gives it up leaves no connection open."""
    opening = asyncio.ensure_future(_connect(connection))
    try:
        await within(limit, opening)
    except BaseException as error:
        # It may be connected before it looks at its cancellation.
        opening.add_done_callback(lambda _: hang_up(connection))
        if isinstance(error, Exception) and not isinstance(error, (RedisError, OSError)):
            # A provider of passwords has failed, and may do better the next time.
            raise Disconnected(f"{type(error).__name__}: {error}") from error
        raise


async def _connect(connection: AbstractConnection) -> None:
    if not isinstance(connection, Connection):
        await connection.connect()  # type: ignore[no-untyped-call,unused-ignore]
        return
    last: Optional[Exception] = None
    for address in await addresses_of(connection.host, connection.port, connection.socket_type):
        arguments = {**type(connection)._connection_arguments(connection), "host": address}
        if "ssl" in arguments:
            arguments["server_hostname"] = connection.host
        connection._connection_arguments = lambda arguments=arguments: arguments  # type: ignore[method-assign,misc]
        try:
            await connection.connect()  # type: ignore[no-untyped-call,unused-ignore]
        except AuthenticationError:
            raise
        except (Disconnected, OSError) as error:
            last = error
        else:
            return
    raise last or Disconnected(f"{connection.host} has no address")


def hang_up(connection: AbstractConnection) -> None:
    writer = connection._writer
    if writer is not None:
        # A child process may have the same socket open: closing alone would not end the connection.
        shutdown(writer)
        writer.transport.abort()
        connection._writer = connection._reader = None


async def read(connection: AbstractConnection) -> Reply:
    reply: Reply = await connection.read_response(disable_decoding=True, disconnect_on_error=False)
    return reply


def shutdown(writer: asyncio.StreamWriter) -> None:
    # By a copy of its number: the sockets that transports show cannot be shut down with every loop.
    number = _number(writer)
    if number >= 0:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as its_copy:
            its_copy.shutdown(socket.SHUT_RDWR)


def abandon_socket(writer: asyncio.StreamWriter) -> None:
    """In a child process: closes its copy of the socket, and leaves the connection to the parent. Its number stays
    taken, for the transport that the child leaves as it is may close it one day."""
    number = _number(writer)
    if number >= 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


def _number(writer: asyncio.StreamWriter) -> int:
    """-1 where there is none any more: another file may have it by now."""
    sock = writer.get_extra_info("socket")
    return -1 if sock is None or writer.transport.is_closing() else int(sock.fileno())
