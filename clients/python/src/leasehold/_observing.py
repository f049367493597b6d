"""Who leads an election."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Optional, Union

from redis.exceptions import RedisError

from ._hub import Hub
from ._lines import Subscription
from ._resp import pack
from ._time import within
from ._wanted import candidate_of, key_of
from .errors import LeaseholdError
from .outcomes import Leader
from .settings import Name

log = logging.getLogger("leasehold")

SAFETY = 30  # So many times ``look_every`` may pass without a look where key events tell: a slot may have moved


class Watch(Subscription):
    def __init__(self, writer: asyncio.StreamWriter, channel: bytes) -> None:
        super().__init__(writer, channel)
        self.told = asyncio.Event()

    def _tell(self, _: bytes, /) -> None:
        self.told.set()

    def ended(self, reason: Exception) -> None:
        super().ended(reason)
        self.told.set()


class Leaders:
    """Those who lead, one after the other."""

    def __init__(self, hub: Hub, name: Name, look_every: float) -> None:
        self._hub, self._name, self._look_every = hub, name, look_every
        self._last: Union[Leader, str, None] = "not known"
        self._watch: Optional[Watch] = None
        self._rest = 0.0
        self._polls = False  # The server publishes no such events, or does not say so

    async def next(self) -> Optional[Leader]:
        while True:
            if self._rest:
                await self._pause(self._rest)
            self._rest = self._look_every
            try:
                if not self._polls and (self._watch is None or self._watch.is_closed):
                    self._watch = await self._watching()
                    self._polls = self._watch is None
                if self._watch is not None:
                    self._watch.told.clear()
                info = await self._hub.info(self._name)
            except (RedisError, OSError, LeaseholdError) as error:
                self._hub.check_open()
                log.debug("nobody says who leads: %s", error)
                continue
            if self._watch is not None:
                left = None if info is None else info.ttl
                self._rest = self._look_every * SAFETY if left is None else max(left, 0.001)
            leader = None if info is None else Leader(candidate_of(info.owner), info.fence)
            if leader != self._last:
                self._last = leader
                return leader

    async def _pause(self, rest: float) -> None:
        if self._watch is None or self._watch.is_closed:
            await self._hub.asking.pause(rest)
            return
        told = asyncio.ensure_future(self._watch.told.wait())
        with contextlib.suppress(RedisError):
            await within(rest, self._hub.asking.until_closed(told))

    async def _watching(self) -> Optional[Watch]:
        key, limit = key_of(self._hub.settings, self._name), self._hub.limits.response
        server = await within(limit, self._hub.asking.routes.server_of(key))
        line = await server.line(limit)
        told = await line.ask(pack((b"CONFIG", b"GET", b"notify-keyspace-events")), limit)
        kinds = told[1] if isinstance(told, list) and len(told) == 2 else None
        kinds = kinds if isinstance(kinds, bytes) else b""
        if b"K" not in kinds or not (b"A" in kinds or (b"d" in kinds and line.has_module)):
            return None
        return await server.subscribed(lambda writer: Watch(writer, b"__keyspace@%d__:%b" % (server.database, key)))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
