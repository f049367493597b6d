"""Connections of event loops: one on which many ask at the same time, and one on which grants are told of.

Answers come in the order of the requests, also to those who have given up. A line on which an answer is overdue is
retired: nobody asks on it any more, but it stays open for its last words. A request that a silent server has not read
yet is so followed by its release: whenever the server goes on, nothing stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import uuid
from collections import deque
from typing import Any, Callable, Iterable, Optional, Protocol, TypeVar

from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import (
    AuthenticationError,
    ConnectionError as Disconnected,
    RedisError,
    ResponseError,
    TimeoutError as Silent,
)

from . import _fork
from ._resp import Parser, Reply, pack
from ._target import addresses_of
from ._time import now, wake, within

LAST_WORDS = 60.0  # How long a retired line stays open for a server that may read on

W = TypeVar("W", bound="Wire")


class Sink(Protocol):
    def done(self) -> bool: ...
    def set_result(self, result: Reply, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Wire(asyncio.Protocol):
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        # What wrote to the transport would close it if it went.
        self._writer = writer
        self._transport: asyncio.Transport = writer.transport  # type: ignore[assignment]
        self._parser = Parser()
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self._transport.set_protocol(self)
        _fork.remember(self)

    @property
    def is_usable(self) -> bool:
        return not self.is_closed

    def data_received(self, data: bytes) -> None:
        try:
            for reply in self._parser.feed(data):
                self.heard(reply)
        except (RedisError, ValueError) as error:
            self.close(error)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.close(exc if isinstance(exc, OSError) else Disconnected("the server closed the connection"))

    def close(self, reason: Optional[Exception] = None) -> None:
        """Ends the connection at once: the server drops a request that waits on it."""
        if not self.is_closed:
            self.is_closed = True
            hang_up(self._transport)
            self.ended(reason or Disconnected("the connection was closed"))

    def heard(self, reply: Reply) -> None:
        raise NotImplementedError

    def ended(self, reason: Exception) -> None:
        raise NotImplementedError

    def forget_in_child(self) -> None:
        """Closes the copy of the child. Its number stays taken, for the transport may close it one day."""
        number = _number(self._transport)
        if number >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number, inheritable=False)
            os.close(nothing)
        self.is_closed = True


class Line(Wire):
    def __init__(self, writer: asyncio.StreamWriter, response: float) -> None:
        super().__init__(writer)
        self._response = response
        self._waiting: deque[tuple[Sink, float, float]] = deque()
        """Who waits, when it was sent, and when the answer is overdue."""
        self._retired: Optional[Exception] = None
        self.bonds: set[Callable[[], object]] = set()  # What is to be asked for elsewhere when it is of no more use
        self._watch: Optional[asyncio.TimerHandle] = None
        self._look_by = math.inf
        self.has_module = True

    @property
    def is_usable(self) -> bool:
        return self._retired is None

    def ask(self, packed: bytes, limit: float) -> asyncio.Future[Reply]:
        if self._retired is not None:
            raise self._retired
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self.send(packed, (answer,), limit)
        return answer

    def send(self, packed: bytes, sinks: Iterable[Sink], limit: float) -> None:
        self._transport.write(packed)
        sent = self._loop.time()
        due = sent + limit if 0 < limit < 1e6 else sent + max(0.0, min(limit, 1e6))
        for sink in sinks:
            self._waiting.append((sink, sent, due))
        if due < self._look_by:
            self._look_at(due)

    async def last_word(self, packed: bytes, limit: float) -> bool:
        """Sends it also on a retired line. Whether it was answered in time."""
        if self.is_closed:
            return False
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self.send(packed, (answer,), limit)
        await asyncio.wait([answer])
        return answer.exception() is None and not isinstance(answer.result(), RedisError)

    def _look_at(self, due: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch, self._look_by = self._loop.call_at(due, self._look), due

    def _look(self) -> None:
        """What is overdue is given up, and the line with it if it has been silent for long enough."""
        self._watch, self._look_by, here = None, math.inf, self._loop.time() + 0.001
        overdue = [(sink, sent) for sink, sent, due in self._waiting if due <= here and not sink.done()]
        for sink, sent in overdue:
            sink.set_exception(Silent(f"no answer for {here - sent:.3f} s"))
        # This may come late, and whoever waits for a lock on a connection may do so for longer than answers take.
        if overdue and here - self._waiting[0][1] >= self._response:
            self.retire(Silent(f"no answer for {here - self._waiting[0][1]:.3f} s"))
        due_later = [due for sink, _, due in self._waiting if due > here and not sink.done()]
        if due_later:
            self._look_at(min(due_later))

    def retire(self, reason: Exception) -> None:
        if self._retired is not None:
            return
        self._retired = reason
        self._fail_all(reason)
        for bond in list(self.bonds):
            bond()
        if not self.is_closed:
            self._loop.call_later(LAST_WORDS, self.close)

    def _fail_all(self, reason: Exception) -> None:
        for sink, _, _ in list(self._waiting):
            if not sink.done():
                sink.set_exception(reason)
                if isinstance(sink, asyncio.Future):
                    sink.exception()

    def heard(self, reply: Reply) -> None:
        if not self._waiting:
            raise reply if isinstance(reply, RedisError) else Disconnected("the server said something unasked")
        sink = self._waiting.popleft()[0]
        if not sink.done():
            sink.set_result(reply)

    def ended(self, reason: Exception) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.retire(reason)
        self._fail_all(reason)


class Listener(Protocol):
    def told(self, fence: int, /) -> None: ...


Place = tuple[bytes, bytes]  # An owner and the key of a lock


class Subscription(Wire):
    """One for all places that a client has in the queues of a server. A message may be lost, and one may come late."""

    def __init__(self, writer: asyncio.StreamWriter, channel: Optional[bytes] = None) -> None:
        super().__init__(writer)
        self.channel = channel or f"leasehold:{uuid.uuid4()}".encode()
        self._before = pack((b"message", self.channel, b""))[:-5]  # What comes before the length of each message
        self.listeners: dict[Place, Listener] = {}
        self.places: Any = None  # Those in the queues of this server, kept together
        self.told: asyncio.Future[None] = self._loop.create_future()  # Done after a message, and at the end
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self._heard_at = self._checked_at = now()

    async def begin(self) -> None:
        self._transport.write(pack((b"SUBSCRIBE", self.channel)))
        await self._subscribed

    def data_received(self, data: bytes) -> None:
        if data.startswith(self._before) and not self._parser.is_amid:
            length, _, rest = data[len(self._before) :].partition(b"\r\n")
            if length.isdigit() and len(rest) == int(length) + 2:
                # It is one message, as it is most of the time.
                self._heard_at = now()
                self._tell(rest[:-2])
                return
        super().data_received(data)

    def heard(self, reply: Reply) -> None:
        self._heard_at = now()
        if isinstance(reply, list) and len(reply) == 3:
            kind, _, message = reply
            if kind == b"message" and isinstance(message, bytes):
                self._tell(message)
            elif kind == b"subscribe" and not self._subscribed.done():
                self._subscribed.set_result(None)
        elif isinstance(reply, ResponseError) and not self._subscribed.done():
            self._subscribed.set_exception(reply)
        # Anything else answers a PING, also if it is refused: the server is there.

    def _tell(self, message: bytes, /) -> None:
        wake(self.told)
        parsed = parse(message)
        if parsed is not None:
            listener = self.listeners.get(parsed[1])
            if listener is not None:
                listener.told(parsed[0])

    def check(self, every: float) -> None:
        """A connection may die without a word: who keeps places looks after this, too."""
        here = now()
        if self.is_closed or here - self._checked_at < every:
            return
        if self._heard_at < self._checked_at:
            # What was sent at the last look has not been answered since.
            self.close()
            return
        self._checked_at = here
        self._transport.write(pack((b"PING",)))

    def ended(self, reason: Exception) -> None:
        if not self._subscribed.done():
            self._subscribed.set_exception(reason)
            self._subscribed.exception()
        wake(self.told)
        listeners, self.listeners = list(self.listeners.values()), {}
        for listener in listeners:
            listener.told(0)


def parse(message: bytes) -> Optional[tuple[int, Place]]:
    """``<fence> <length of owner> <owner> <key>``. Owners and keys may contain spaces."""
    parts = message.split(b" ", 2)
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    length, rest = int(parts[1]), parts[2]
    if len(rest) <= length or rest[length : length + 1] != b" ":
        return None
    return int(parts[0]), (rest[:length], rest[length + 1 :])


async def open_wire(connection: AbstractConnection, limit: float, kind: Callable[[asyncio.StreamWriter], W]) -> W:
    """Whoever gives it up leaves no connection open."""
    opening = asyncio.ensure_future(_connect(connection))
    try:
        await within(limit, opening)
        if connection._reader is None or connection._reader.at_eof():
            # Nobody is told of an end that was read before.
            raise Disconnected("the connection was lost")
        writer = _taken_from(connection)
        if writer is None or writer.transport.is_closing():
            raise Disconnected("the connection was lost")
        return kind(writer)
    except BaseException as error:
        # It may be connected before it looks at its cancellation.
        opening.add_done_callback(lambda _: _hang_up(connection))
        if isinstance(error, Exception) and not isinstance(error, (RedisError, OSError)):
            # A provider of passwords has failed, and may do better the next time.
            raise Disconnected(f"{type(error).__name__}: {error}") from error
        raise


async def _connect(connection: AbstractConnection) -> None:
    if not isinstance(connection, Connection):
        await connection.connect()  # type: ignore[no-untyped-call,unused-ignore]
        return
    last: Optional[Exception] = None
    addresses = addresses_of(connection.host, connection.port, connection.socket_type)
    for address in await asyncio.wrap_future(addresses):
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


def _taken_from(connection: AbstractConnection) -> Optional[asyncio.StreamWriter]:
    writer = connection._writer
    connection._writer = connection._reader = None
    return writer


def _hang_up(connection: AbstractConnection) -> None:
    writer = _taken_from(connection)
    if writer is not None:
        hang_up(writer.transport)


def hang_up(transport: asyncio.BaseTransport) -> None:
    # A child process may have the same socket open: closing alone would not end the connection. It is shut down by a
    # copy of its number, for the sockets that transports show cannot be shut down with every loop.
    number = _number(transport)
    if number >= 0:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as its_copy:
            its_copy.shutdown(socket.SHUT_RDWR)
    transport.abort()  # type: ignore[attr-defined]


def _number(transport: asyncio.BaseTransport) -> int:
    """-1 where there is none any more: another file may have it by now."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None or transport.is_closing() else int(sock.fileno())
