"""What a client can be asked for, whether it is used from threads or from coroutines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, Generic, Optional, TypeVar

from ._questions import EXCLUSIVE, UNLIMITED
from ._target import AnyClient, target_of
from ._wanted import Asked, Options, permits
from .settings import Duration, Name, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")


class Factory(Generic[R]):
    def __init__(
        self,
        client: AnyClient,
        settings: Optional[Settings] = None,
        *,
        prefix: Optional[Name] = None,
        ttl: Optional[Duration] = None,
        wait: Optional[Duration] = None,
    ) -> None:
        """``prefix``, ``ttl`` and ``wait`` are those of :class:`Settings`, which has more of them."""
        given: Dict[str, Any] = {"prefix": prefix, "ttl": ttl, "wait": wait}
        self._settings = replace(
            settings or Settings(), **{name: its for name, its in given.items() if its is not None}
        )
        self._target = target_of(client)
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        raise NotImplementedError

    def _request(self, asked: Asked) -> R:
        raise NotImplementedError

    def lock(self, name: Name, **options: Unpack[Options]) -> R:
        """A lock that one holds at a time."""
        return self._request(Asked(self._settings, name, EXCLUSIVE, **options))

    def read(self, name: Name, **options: Unpack[Options]) -> R:
        """The right to read: readers hold a lock together, and a writer alone. It needs the module."""
        return self._request(Asked(self._settings, name, UNLIMITED, **options))

    def write(self, name: Name, **options: Unpack[Options]) -> R:
        """The right to write: alone, when all readers who came before have left. It is what :meth:`lock` is."""
        return self.lock(name, **options)

    def semaphore(self, name: Name, count: int, **options: Unpack[Options]) -> R:
        """One of ``count`` permits. If those who ask disagree on how many there are, the smallest number counts.
        More than one needs the module."""
        return self._request(Asked(self._settings, name, permits(count), **options))
