"""Work under a lock in a task of asyncio: it is cancelled when the lock is lost, and that is not mistaken for a
cancellation by somebody else."""

from __future__ import annotations

import asyncio
import sys
from typing import Optional, Type

from ._lease import LeaseState
from .outcomes import Loss

_STOPS = (Loss.EXPIRED, Loss.TAKEN, Loss.CLOSED)


class Scope:
    """Create it in the task of the work."""

    def __init__(self, state: LeaseState) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._others = _cancellations(task)
        self._is_over = False
        self._has_cancelled = False
        state.when_lost(self._lost)

    def _lost(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop has ended, and the work with it

    def _cancel(self) -> None:
        if not self._is_over and self._state.loss in _STOPS:
            self._has_cancelled = True
            self._task.cancel()

    async def end(self, raised: Optional[Type[BaseException]]) -> Optional[Loss]:
        """Why the work was stopped, if it was stopped because of the loss."""
        self._is_over = True
        if not self._has_cancelled:
            return None
        if sys.version_info >= (3, 11):
            self._task.uncancel()
        if raised is not None and issubclass(raised, asyncio.CancelledError):
            is_ours = _cancellations(self._task) <= self._others
            return self._state.loss if is_ours else None
        # The work ended before it was cancelled: the cancellation must not hit what comes after it.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if _cancellations(self._task) > self._others:
                raise
        return None


def _cancellations(task: asyncio.Task[object]) -> int:
    """How often it was cancelled and not heard of; 0 where tasks do not count."""
    if sys.version_info >= (3, 11):
        return task.cancelling()
    return 0
