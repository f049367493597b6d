"""The thread that renews leases and waits in queues for programs without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Coroutine, Optional, TypeVar

from .errors import Unreachable

T = TypeVar("T")

GRACE = 2.0
"""How much longer than a request may take its caller waits for the thread. It has not run for as long then."""


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def call(self, work: Coroutine[object, object, T], limit: Optional[float]) -> T:
        """Its result. If the caller is interrupted, such as by Ctrl-C, the work is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(None if limit is None else limit + GRACE)
        except concurrent.futures.CancelledError:
            raise Unreachable("the thread of this client was stopped") from None
        except concurrent.futures.TimeoutError as error:
            if future.done():
                raise
            raise Unreachable(f"no answer within {limit} s") from error
        finally:
            future.cancel()

    def stop(self, limit: float) -> None:
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            return
        self._thread.join(limit)
