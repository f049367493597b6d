"""The thread that renews leases and watches for programs without an event loop, and the end of such programs.

What a program holds that ends without ``close`` is given back, and its loops end before the interpreter does. Otherwise
the interpreter would take the loops apart while requests are under way, and say so on the terminal.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
from typing import Callable, Coroutine, Optional, Set, TypeVar

from . import _fork
from .errors import Closed, LeaseholdError, Unreachable

log = logging.getLogger("leasehold")

T = TypeVar("T")

GRACE = 2.0  # How much longer than a request may take its caller waits for the thread. It has not run for as long then.

LAST_STEPS = 2.0  # How long what is left on the loop may take to end


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
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
    return min(limit, threading.TIMEOUT_MAX)


Close = Callable[[float], object]

LIMIT = 1.0  # How long a program that ends may be kept from it by each client, in seconds


class Open:
    """Clients that are to be closed when the program ends."""

    def __init__(self) -> None:
        self.closes: Set[Close] = set()
        _fork.remember(self)

    def close_all(self) -> None:
        while self.closes:
            try:
                self.closes.pop()(LIMIT)
            except Exception as error:
                log.debug("not closed when the program ended: %s", error)

    def forget_in_child(self) -> None:
        _fork.OF_PARENTS.append(self.closes)
        self.__init__()  # type: ignore[misc]


OPEN = Open()
atexit.register(OPEN.close_all)
