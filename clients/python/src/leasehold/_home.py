"""What a client has on one event loop beside its leases: how it asks, and who asks at this moment."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Callable, Coroutine, NamedTuple, Set, TypeVar

from ._asking import Asking
from ._routes import Routes
from ._target import Target
from .errors import Closed
from .settings import Settings, seconds

T = TypeVar("T")
log = logging.getLogger("leasehold")


class Limits(NamedTuple):
    """The durations of the settings, in seconds."""

    response: float
    within: float
    unreachable_after: float
    slice: float


class Home:
    """Create it on the loop on which it is to be used."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.settings = settings
        self.limits = Limits(*(seconds(name, getattr(settings, name)) for name in Limits._fields))
        self.asking = Asking(Routes(target, self.limits.response), self.limits.response)
        self.loop = asyncio.get_running_loop()
        self.requests: Set[object] = set()
        """Those who ask for a lock at this moment, and leases that are released by one request."""
        self.is_closed = False
        self._background: Set[asyncio.Future[Any]] = set()
        self._room = deque(range(settings.wait_connections))
        """To wait on connections."""

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed

    def take_room(self) -> bool:
        """Whether one more may wait on a connection. From any thread."""
        try:
            self._room.pop()
        except IndexError:
            return False
        return True

    def leave_room(self) -> None:
        self._room.append(0)

    @property
    def waiting(self) -> int:
        """How many wait by tickets, at most."""
        return len(self.requests)

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
