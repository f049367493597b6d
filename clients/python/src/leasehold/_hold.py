"""A lease in the hands of a program. If the program loses hold of it without a word, it is released."""

from __future__ import annotations

from typing import Optional, Union

from ._hub import Hub
from ._lease import LeaseState
from .errors import LockLost
from .outcomes import Loss
from .settings import Duration, Name, positive


class Hold:
    """What leases have in common, whether they are used from threads or from coroutines."""

    def __init__(self, locks: object, hub: Hub, state: LeaseState) -> None:
        # As long as anybody has the lease, its client is not dropped.
        self._locks = locks
        self._hub = hub
        self._state = state

    @property
    def name(self) -> Name:
        """The name of the lock, as it was asked for."""
        return self._state.name

    @property
    def fence(self) -> int:
        """The number of this grant: larger than that of every earlier grant of the lock. Send it with each write."""
        return self._state.fence

    @property
    def owner(self) -> bytes:
        """As whom the server knows this hold."""
        return self._state.owner

    def valid_for(self) -> float:
        """For how many seconds the lock is held for certain; 0 when it is lost.

        It is counted from before the server was asked, by a clock that nobody sets, and needs no server, thread
        or loop: a program that was stopped for longer than its lease is told 0 by the first call.
        """
        return self._state.valid_for()

    @property
    def lost(self) -> bool:
        """Whether it is held no more, for whatever reason. It looks at the clock, as :meth:`valid_for` does."""
        return self._state.loss is not None

    @property
    def loss(self) -> Optional[Loss]:
        """Why it is held no more; None while it is."""
        return self._state.loss

    def check(self) -> None:
        """Raises :class:`LockLost` if it is held no more. To be called right before each step of the work."""
        loss = self._state.loss
        if loss is not None:
            raise LockLost(self.name, loss)

    def keep(self) -> None:
        """Renews it no more, and leaves the lock to its lease: it is not released either."""
        self._hub.keep(self._state)

    def _ttl(self, ttl: Optional[Duration]) -> float:
        return self._state.ttl if ttl is None else positive("ttl", ttl)

    def __repr__(self) -> str:
        state: Union[str, Loss] = self._state.loss or f"valid for {self._state.valid_for():.3f} s"
        return f"<{type(self).__name__} {self.name!r}, fence {self.fence}, {state}>"

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is None or state.release is not None or state.was_kept or state.loss is Loss.FORKED:
            return
        self._hub.drop_soon(state)
