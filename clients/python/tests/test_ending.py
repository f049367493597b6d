"""Whoever gives up, closes or ends leaves no connection, and is not told of what is none of its business."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Dict, List

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from leasehold import Settings
from servers import Server, eventually


def connections(server: Server) -> int:
    """But for the one that asks."""
    with server.client() as client:
        return len(client.client_list()) - 1


async def in_thread(*words: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, eventually, *words)


def test_a_wait_that_is_cancelled_at_any_step_leaves_no_connection(own_server: Server, name: str) -> None:
    reported: List[Dict[str, Any]] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        given = redis.asyncio.Redis.from_url(own_server.url)
        async with leasehold.asyncio.Leasehold(given, Settings(tickets=False)) as locks:
            async with locks.lock(name, ttl=60):
                for steps in range(100):
                    waiting = asyncio.ensure_future(locks.acquire(name))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                await in_thread(lambda: own_server.waiters(name) == 0, "nobody waits")
                await in_thread(lambda: connections(own_server) == 1, "only the connection for requests is left", 5)

    asyncio.run(asyncio.wait_for(program(), 100))
    gc.collect()
    assert reported == []
