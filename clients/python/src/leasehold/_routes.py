"""Which server to ask about a lock: the one there is, the primary that sentinels name, or the node of its slot."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional, Sequence, TypeVar, Union

from redis.crc import key_slot
from redis.exceptions import ConnectionError as Disconnected, RedisError

from ._resp import Reply, pack
from ._server import Server
from ._target import Address, Alone, Clustered, Watched
from ._time import now
from ._verdict import Verdict, redirection_in, verdict

T = TypeVar("T")

LOOK_EVERY = 1.0  # How often sentinels are asked who is the primary: a former one may still be reachable
NEXT_AFTER = 0.1  # How long a node may take to say who has which slot before another one is asked, too


def slots_in(reply: Reply, asked: Address) -> dict[int, Address]:
    """The answer to CLUSTER SLOTS. A node that does not know its own name is called by that of who answered."""
    known: dict[int, Address] = {}
    for entry in reply if isinstance(reply, list) else []:
        if isinstance(entry, list) and len(entry) >= 3 and isinstance(entry[2], list):
            (first, last), (host, port) = entry[:2], entry[2][:2]
            if isinstance(first, int) and isinstance(last, int) and isinstance(port, int):
                name = host.decode() if isinstance(host, bytes) and host not in (b"", b"?") else asked[0]
                known.update(dict.fromkeys(range(first, last + 1), (name, port)))
    return known


class Routes:
    def __init__(self, target: Union[Alone, Watched, Clustered], response: float) -> None:
        self._target = target
        self._response = response
        self._servers: dict[Optional[Address], Server] = {}
        self._nodes: dict[int, Address] = {}  # Which has each slot
        self.is_closed = False
        self._looked_at: Optional[float] = None
        self._primary: Optional[Address] = None
        self._looking: Optional[asyncio.Future[None]] = None
        self._alone = self.server_at(None) if isinstance(target, Alone) else None
        self._is_watched = isinstance(target, Watched)
        sentinels = target.sentinels if isinstance(target, Watched) else ()
        self._sentinels = [Server(each, None, response) for each in sentinels]

    def server_at(self, address: Optional[Address]) -> Server:
        server = self._servers.get(address)
        # Threads ask, too.
        return server or self._servers.setdefault(address, Server(self._target.endpoint, address, self._response))

    def known(self, key: bytes) -> Optional[Server]:
        if self._alone is not None:
            return self._alone
        address = self._address_of(key)
        is_due = self._looked_at is None or (self._is_watched and now() - self._looked_at >= LOOK_EVERY)
        return None if self.is_closed or is_due or address is None else self.server_at(address)

    def _address_of(self, key: bytes) -> Optional[Address]:
        return self._primary if self._is_watched else self._nodes.get(key_slot(key))

    async def server_of(self, key: bytes) -> Server:
        known = self.known(key)
        if known is not None:
            return known
        await self._look_once()
        address = self._address_of(key)
        if address is None:
            who = "sentinel names a primary" if self._is_watched else "node of the cluster says who has the slot"
            raise Disconnected(f"no {who}")
        return self.server_at(address)

    def redirected(self, error: BaseException) -> Optional[Server]:
        redirection = redirection_in(error)
        if redirection is None:
            return None
        code, slot, address = redirection
        if code == "ASK":
            return self.server_at(self._mapped(address))
        self._nodes[slot] = self._mapped(address)
        return None

    def failed(self, error: BaseException) -> None:
        if verdict(error) in (Verdict.BROKEN, Verdict.ELSEWHERE, Verdict.AGAIN):
            self._looked_at = None

    async def _look_once(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        if isinstance(self._target, Watched):
            words = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._target.service.encode()]
            self._primary = await self._first(self._sentinels, words, 0.0, _primary_in) or self._primary
        elif isinstance(self._target, Clustered):
            await self._ask_nodes(self._target)
        self._looked_at = now()

    async def _ask_nodes(self, target: Clustered) -> None:
        """One after the other, and the next one before long: all wait for this, also for locks of nodes that are up."""
        nodes = dict.fromkeys([*self._nodes.values(), *map(self._mapped, target.seeds)])

        def read(reply: Reply, server: Server) -> dict[int, Address]:
            assert server.address is not None
            return {slot: self._mapped(node) for slot, node in slots_in(reply, server.address).items()}

        servers = [self.server_at(node) for node in nodes]
        self._nodes = await self._first(servers, [b"CLUSTER", b"SLOTS"], NEXT_AFTER, read) or self._nodes

    async def _first(
        self, servers: Sequence[Server], words: list[bytes], every: float, read: Callable[[Reply, Server], Optional[T]]
    ) -> Optional[T]:
        """What is read from the first answer that says something."""
        asking: list[asyncio.Future[Optional[T]]] = []

        async def ask(number: int, server: Server) -> Optional[T]:
            if number:
                # One that has failed is not waited for.
                await asyncio.wait(asking[number - 1 : number], timeout=every * number)
            return read(await self._ask(server, words), server)

        asking += [asyncio.ensure_future(ask(number, server)) for number, server in enumerate(servers)]
        try:
            for answered in asyncio.as_completed(asking):
                came = await answered
                if came:
                    return came
            return None
        finally:
            for each in asking:
                each.cancel()

    async def _ask(self, server: Server, words: list[bytes]) -> Reply:
        try:
            line = await server.line.get(self._response)
            reply = await line.ask(pack(words), self._response)
        except (RedisError, OSError):
            return None
        return None if isinstance(reply, RedisError) else reply

    def _mapped(self, address: Address) -> Address:
        remap = self._target.remap if isinstance(self._target, Clustered) else None
        return remap(address) if remap is not None else address

    def close(self) -> None:
        self.is_closed = True
        for server in [*self._servers.values(), *self._sentinels]:
            server.close()
        if self._looking is not None:
            self._looking.cancel()


def _primary_in(reply: Reply, _: Server) -> Optional[Address]:
    if isinstance(reply, list) and len(reply) == 2:
        host, port = reply
        if isinstance(host, bytes) and isinstance(port, bytes):
            return host.decode(), int(port)
    return None
