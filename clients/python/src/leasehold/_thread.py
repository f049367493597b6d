"""The thread that renews leases and waits in queues for programs without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Callable, Coroutine, Optional, TypeVar

from .errors import Closed, LeaseholdError, Unreachable

T = TypeVar("T")

GRACE = 2.0
"""How much longer than a request may take its caller waits for the thread. It has not run for as long then."""

LAST_STEPS = 2.0
"""How long what is left on the loop may take to end."""


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._asking = threading.RLock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise LeaseholdError(f"no thread can be started: {error}") from error

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self._end_all()
        finally:
            self.loop.close()

    def _end_all(self) -> None:
        """Whoever waits for a task is told, and no connection stays open."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_STEPS))

    def call(self, work: Callable[[], Coroutine[object, object, T]], limit: Optional[float]) -> T:
        """Its result. If the caller is interrupted, such as by Ctrl-C, the work is cancelled."""
        with self._asking:
            if self._is_stopped:
                raise Closed
            future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(None if limit is None else _at_most(limit + GRACE))
        except concurrent.futures.CancelledError:
            raise Closed from None
        except concurrent.futures.TimeoutError as error:
            if future.done():
                raise
            raise Unreachable(f"no answer within {limit} s") from error
        finally:
            future.cancel()

    def stop(self, limit: float) -> None:
        with self._asking:
            if not self._is_stopped:
                self._is_stopped = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_at_most(limit))


def _at_most(limit: float) -> float:
    """The system takes no longer ones."""
    return min(limit, threading.TIMEOUT_MAX)
