"""Which server to ask about a lock: the one there is, the primary that sentinels name, or the node of its slot."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional, Sequence, TypeVar, Union

from redis.crc import key_slot
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from ._resp import Reply, pack
from ._server import Server
from ._target import Address, Alone, Clustered, Watched
from ._time import now
from ._verdict import Verdict, redirection_in, verdict

T = TypeVar("T")

LOOK_EVERY = 1.0  # How often sentinels are asked who is the primary: a former one may still be reachable

NEXT_AFTER = 0.1  # How long a node may take to say who has which slot before another one is asked, too


class SlotMap:
    def __init__(self) -> None:
        self._nodes: dict[int, Address] = {}

    def node_of(self, key: bytes) -> Optional[Address]:
        return self._nodes.get(slot_of(key))

    def moved(self, slot: int, to: Address) -> None:
        self._nodes[slot] = to

    def nodes(self) -> list[Address]:
        return list(dict.fromkeys(self._nodes.values()))

    def learn(self, reply: Reply, asked: Address, mapped: Callable[[Address], Address] = lambda node: node) -> None:
        """The answer to CLUSTER SLOTS. A node that does not know its own name is called by that of who answered."""
        known: dict[int, Address] = {}
        for entry in reply if isinstance(reply, list) else []:
            if not isinstance(entry, list) or len(entry) < 3 or not isinstance(entry[2], list):
                continue
            first, last, primary = entry[0], entry[1], entry[2]
            host, port = primary[0], primary[1]
            if isinstance(first, int) and isinstance(last, int) and isinstance(port, int):
                name = host.decode() if isinstance(host, bytes) and host not in (b"", b"?") else asked[0]
                known.update(dict.fromkeys(range(first, last + 1), mapped((name, port))))
        if known:
            self._nodes = known


def slot_of(key: bytes) -> int:
    return int(key_slot(key))


class Routes:
    def __init__(self, target: Union[Alone, Watched, Clustered], response: float) -> None:
        self._target = target
        self._response = response
        self._servers: dict[Optional[Address], Server] = {}
        self._slots = SlotMap()
        self.is_closed = False
        self._looked_at: Optional[float] = None
        self._primary: Optional[Address] = None
        self._looking: Optional[asyncio.Future[None]] = None
        self._sentinels: list[Server] = []
        self._alone = self.server_at(None) if isinstance(target, Alone) else None
        if isinstance(target, Watched):
            self._sentinels = [Server(each, None, response) for each in target.sentinels]

    def server_at(self, address: Optional[Address]) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(self._target.endpoint, address, self._response)
        return server

    def known(self, key: bytes) -> Optional[Server]:
        if self._alone is not None:
            return self._alone
        if isinstance(self._target, Watched):
            is_due = self._looked_at is None or now() - self._looked_at >= LOOK_EVERY
            address = None if is_due else self._primary
        else:
            address = None if self._looked_at is None else self._slots.node_of(key)
        return None if address is None else self._servers.get(address)

    async def server_of(self, key: bytes) -> Server:
        known = self.known(key)
        if known is not None:
            return known
        if isinstance(self._target, Watched):
            await self._look_once()
            if self._primary is None:
                raise Disconnected("no sentinel names a primary")
            return self.server_at(self._primary)
        if self._slots.node_of(key) is None or self._looked_at is None:
            await self._look_once()
        address = self._slots.node_of(key)
        if address is None:
            raise Disconnected("no node of the cluster says who has the slot")
        return self.server_at(address)

    def redirected(self, error: BaseException) -> Optional[Server]:
        redirection = redirection_in(error)
        if redirection is None:
            return None
        code, slot, address = redirection
        if code == "ASK":
            return self.server_at(self._mapped(address))
        self._slots.moved(slot, self._mapped(address))
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
            self._primary = await self._ask_sentinels(self._target.service) or self._primary
        elif isinstance(self._target, Clustered):
            await self._ask_nodes(self._target)
        self._looked_at = now()

    async def _ask_sentinels(self, service: str) -> Optional[Address]:
        words = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.encode()]
        return await self._first(self._sentinels, words, 0.0, lambda reply, _: _address(reply))

    async def _ask_nodes(self, target: Clustered) -> None:
        """One after the other, and the next one before long: all wait for this, also for locks of nodes that are up."""
        nodes = dict.fromkeys([*self._slots.nodes(), *(self._mapped(address) for address in target.seeds)])

        def learned(reply: Reply, server: Server) -> bool:
            if reply and server.address is not None:
                self._slots.learn(reply, server.address, self._mapped)
            return bool(reply)

        await self._first([self.server_at(node) for node in nodes], [b"CLUSTER", b"SLOTS"], NEXT_AFTER, learned)

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
            line = await server.line(self._response)
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


def _address(reply: Reply) -> Optional[tuple[str, int]]:
    if isinstance(reply, list) and len(reply) == 2:
        host, port = reply
        if isinstance(host, bytes) and isinstance(port, bytes):
            return host.decode(), int(port)
    return None
