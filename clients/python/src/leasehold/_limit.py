"""Waiting no longer than so long, also for something that does not look at its cancellation.

``asyncio.wait_for`` waits until what it cancelled has ended, and before Python 3.12 it may lose a
cancellation that comes in the same moment as the result.
"""

from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

from redis.exceptions import TimeoutError as Silent

T = TypeVar("T")


async def within(limit: float, what: Awaitable[T]) -> T:
    """Its result, or ``redis.TimeoutError``: then it is cancelled, and not waited for."""
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait([task], timeout=max(0.0, limit))
        if task.done():
            return task.result()
        raise Silent(f"no answer within {limit:.3f} s")
    finally:
        if not task.done():
            # It may fail after all.
            task.add_done_callback(looked_at)
            task.cancel()


def looked_at(ended: asyncio.Future[T]) -> None:
    """Nobody waits for it any more: how it failed is not to be reported."""
    if not ended.cancelled():
        ended.exception()
