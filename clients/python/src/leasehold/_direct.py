"""Connections of threads: whoever asks has one for the time of the request, and waits on it itself."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Optional

from redis.exceptions import ConnectionError as Disconnected, RedisError, TimeoutError as Silent

from . import _fork
from ._resp import Parser, Reply
from ._target import Address, Endpoint
from ._time import now

MOST_IDLE = 16


class Channel:
    __slots__ = ("__weakref__", "_limit", "_parser", "_sock", "has_module")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._limit: object = ()
        self._parser = Parser()
        self.has_module = True
        _fork.remember(self)

    def ask(self, packed: bytes, limit: Optional[float]) -> Reply:
        """The answer, which may be an error. After an exception the channel is of no more use."""
        end = None if limit is None else now() + limit
        try:
            self._set_limit(limit)
            self._sock.sendall(packed)
            while True:
                data = self._sock.recv(65536)
                if not data:
                    raise Disconnected("the server closed the connection")
                replies = self._parser.feed(data)
                if replies:
                    if len(replies) > 1 or self._parser.is_amid:
                        raise Disconnected("the server said something unasked")
                    return replies[0]
                if end is not None:
                    self._set_limit(max(0.001, end - now()))
        except socket.timeout as error:
            raise Silent(f"no answer for {limit:.3f} s") from error
        except ValueError as error:
            raise Disconnected(str(error)) from error

    def _set_limit(self, limit: Optional[float]) -> None:
        if limit != self._limit:
            self._sock.settimeout(None if limit is None else min(max(limit, 0.001), 1e6))
            self._limit = limit

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, as far as can be known, and nothing has come unasked."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self._sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([self._sock], [], [], 0)[0]

    async def last_word(self, packed: bytes, _limit: float) -> bool:
        with contextlib.suppress(OSError, ValueError):
            self._sock.settimeout(0.0)
            self._sock.send(packed)
        self.close()
        return False

    def close(self) -> None:
        self.end()
        self._sock.close()

    def end(self) -> None:
        # Closing alone would not: a child process may have the same socket open. And a thread that still waits on it
        # would go on to wait on the next socket with its number.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def forget_in_child(self) -> None:
        number = self._sock.detach()
        if number >= 0:
            os.close(number)


class Pool:
    """To one server. There are as many as are used at the same time."""

    def __init__(self, endpoint: Endpoint, address: Optional[Address]) -> None:
        self._endpoint = endpoint
        self._address = address
        self._idle: list[Channel] = []
        self._is_closed = False

    def take(self, limit: float) -> Channel:
        return self.take_idle() or self._open(limit)

    def take_idle(self) -> Optional[Channel]:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self, limit: float) -> Channel:
        if self._is_closed or limit <= 0:
            raise Disconnected("the client was closed" if self._is_closed else "there was no time to connect")
        connection = self._endpoint.open_blocking(self._address, limit)
        try:
            connection.connect()  # type: ignore[no-untyped-call,unused-ignore]
        except (RedisError, OSError):
            raise
        except Exception as error:
            # A provider of passwords has failed, and may do better the next time.
            raise Disconnected(f"{type(error).__name__}: {error}") from error
        # redis-py has opened it, and has done with it.
        sock: Optional[socket.socket] = connection._sock
        connection._sock = None
        if sock is None:
            raise Disconnected("the connection was lost")
        return Channel(sock)

    def ask(self, channel: Channel, packed: bytes, limit: Optional[float]) -> Reply:
        """The channel is given back, or closed."""
        try:
            reply = channel.ask(packed, limit)
        except BaseException:
            channel.close()
            raise
        self.give_back(channel)
        return reply

    def give_back(self, channel: Channel) -> None:
        self._idle.append(channel)
        if self._is_closed or len(self._idle) > MOST_IDLE:
            self.drop_idle(0 if self._is_closed else MOST_IDLE)

    def drop_idle(self, but: int = 0) -> None:
        with contextlib.suppress(IndexError):
            while len(self._idle) > but:
                self._idle.pop(0).close()

    def close(self) -> None:
        self._is_closed = True
        self.drop_idle()
