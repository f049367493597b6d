"""Locks in memory, for unit tests: with the interface and the rules of those on a server, and without any server.

    locks = MemoryLocks()  # in place of Leasehold(client)
    other = MemoryLocks(beside=locks)  # another program, with the same locks

They hold within one process: a child that was forked has none of them. There are no replicas to acknowledge a grant, no
users, and no events of the server's own, and ``top`` and ``log`` are empty. A guarded command is SET, GET, INCR or DEL.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from redis.asyncio.connection import Connection

from . import asyncio as coroutines, sync
from ._memory import Memory
from ._target import Address, Alone, Endpoint
from ._wanted import Defaults, Factory
from .settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")
E = TypeVar("E")


@dataclass(frozen=True)
class Inside(Endpoint):
    """How a client connects to it: by what is used of the connections of redis-py."""

    memory: Memory

    def open(self, _: Optional[Address], __: float) -> Any:
        opening = SimpleNamespace(_reader=None, _writer=None)

        async def connect() -> None:
            sock = self.memory.connect()
            open_it: Any = asyncio.open_connection if sock.family == socket.AF_INET else asyncio.open_unix_connection
            opening._reader, opening._writer = await open_it(sock=sock)

        opening.connect = connect
        return opening

    def open_blocking(self, _: Optional[Address], __: float) -> Any:
        return SimpleNamespace(_sock=self.memory.connect(), connect=lambda: None)


class InMemory(Factory[R, E]):
    """What is held by one of them is held for each that was made ``beside`` it."""

    def __init__(
        self,
        settings: Optional[Settings] = None,
        *,
        beside: Optional[InMemory[Any, Any]] = None,
        **defaults: Unpack[Defaults],
    ) -> None:
        self._memory: Memory = Memory() if beside is None else beside._memory
        super().__init__(Alone(Inside(Connection, {}, self._memory)), settings, **defaults)


class MemoryLocks(InMemory[sync.LockRequest, sync.Election], sync.Leasehold):
    """For programs of threads: a :class:`leasehold.Leasehold`."""


class AsyncMemoryLocks(InMemory[coroutines.LockRequest, coroutines.Election], coroutines.Leasehold):
    """For programs of asyncio: a :class:`leasehold.asyncio.Leasehold`."""
