"""Being told of grants: one connection for all tickets that a client has at a server.

A message may be lost, and one may come for nothing: it is a reason to ask, and nothing more.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Dict, Optional, Tuple

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from . import _clock, _fork
from ._line import abandon_socket, hang_up, read
from ._reply import Reply

Ticket = Tuple[bytes, bytes]
"""An owner and the key of a lock."""


class Subscription:
    """Open it with :meth:`begin`."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._seats: Dict[Ticket, asyncio.Event] = {}
        self._reading: Optional[asyncio.Future[None]] = None
        self._heard_at = self._checked_at = _clock.now()
        self.channel = f"leasehold:{uuid.uuid4()}".encode()
        self.is_closed = False
        _fork.remember(self)

    async def begin(self) -> None:
        await self._connection.send_command("SUBSCRIBE", self.channel)
        await read(self._connection)
        self._connection.socket_timeout = None
        self._reading = asyncio.ensure_future(self._read())

    def seat(self, ticket: Ticket) -> asyncio.Event:
        """It is set when this ticket was granted, or when nobody tells of grants any more."""
        told = self._seats.setdefault(ticket, asyncio.Event())
        if self.is_closed:
            told.set()
        return told

    def leave(self, ticket: Ticket) -> None:
        self._seats.pop(ticket, None)

    def check(self, every: float) -> None:
        """A connection may die without a word: who asks for its ticket looks after this, too."""
        now = _clock.now()
        if self.is_closed or now - self._checked_at < every:
            return
        if self._heard_at < self._checked_at:
            # What was sent at the last look has not been answered since.
            self.close()
            return
        self._checked_at = now
        writer = self._connection._writer
        if writer is not None:
            writer.writelines(self._connection.pack_command("PING"))

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        seats, self._seats = list(self._seats.values()), {}
        for told in seats:
            told.set()
        hang_up(self._connection)
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()

    def forget_in_child(self) -> None:
        writer = self._connection._writer
        if writer is not None:
            abandon_socket(writer)
        self._connection._writer = self._connection._reader = None

    async def _read(self) -> None:
        try:
            while True:
                try:
                    said = await read(self._connection)
                except ResponseError:
                    said = None  # a user may subscribe and not PING: the server is there
                self._hear(said)
        except Exception:
            pass  # whatever it was, nobody tells of grants here any more
        finally:
            self.close()

    def _hear(self, said: Reply) -> None:
        self._heard_at = _clock.now()
        if isinstance(said, list) and len(said) == 3 and said[0] == b"message" and isinstance(said[2], bytes):
            ticket = parse(said[2])
            told = self._seats.get(ticket) if ticket is not None else None
            if told is not None:
                told.set()


def parse(message: bytes) -> Optional[Ticket]:
    """``<fence> <length of owner> <owner> <key>``. Owners and keys may contain spaces."""
    parts = message.split(b" ", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    length, rest = int(parts[1]), parts[2]
    if len(rest) <= length or rest[length : length + 1] != b" ":
        return None
    return rest[:length], rest[length + 1 :]
