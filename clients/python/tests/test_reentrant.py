"""A block inside a block of the same lock has the same lease, and asks nobody."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from leasehold import Busy, LockLost, SettingError
from servers import Server, raw


def asked(server: Server) -> int:
    with server.client() as client:
        stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_lock.{verb}", {"calls": 0})["calls"] for verb in ("acquire", "release"))


def test_a_thread_enters_again_and_the_last_block_gives_it_back(own_server: Server) -> None:
    server = own_server
    with leasehold.Leasehold(redis.Redis.from_url(server.url), wait=0) as locks:

        @locks.locked("x", reentrant=True)
        def work(depth: int) -> set[int]:
            with locks.lock("x", reentrant=True) as lease:
                assert server.holder("x") is not None
                return {lease.fence} | (work(depth - 1) if depth else set())

        assert len(work(5)) == 1
        assert (asked(server), server.holder("x")) == (2, None)
        with locks.lock("x", reentrant=True) as first:
            with locks.lock("y", reentrant=True), locks.lock("x", reentrant=True) as again:
                assert again is first
            assert not first.lost
            # Another way to hold it is another block.
            with pytest.raises(Busy), locks.lock("x"):
                pass
            # So is another thread, unless it has the context.
            came: list[object] = []
            context = contextvars.copy_context()

            def enter() -> None:
                try:
                    with locks.lock("x", reentrant=True) as its:
                        came.append(its)
                except Busy as busy:
                    came.append(busy)

            for target in (enter, lambda: context.run(enter)):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join(20)
            assert isinstance(came[0], Busy)
            assert came[1] is first
        assert first.lost
        assert server.holder("x") is None
        with pytest.raises(SettingError, match="blocks"):
            locks.acquire("x", reentrant=True)


def test_a_lease_that_serves_more_serves_less(server: Server) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url), wait=0) as locks:
        with locks.write("x", reentrant=True) as writer, locks.read("x", reentrant=True) as reader:
            assert reader is writer
        with locks.several(["a", "b", "c"], reentrant=True) as all_three:
            for names in (["c", "a"], ["c", "b", "a"]):
                with locks.several(names, reentrant=True) as some:
                    assert some is all_three
            with locks.lock("b", reentrant=True) as one:
                assert one is all_three
            with pytest.raises(SettingError, match="itself"), locks.several(["b", "d"], reentrant=True):
                pass
        with locks.read("x", reentrant=True), pytest.raises(SettingError, match="itself"):
            locks.write("x", reentrant=True).__enter__()
        assert server.client().dbsize() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_is_in_no_block(server: Server) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url), wait=0) as locks, locks.lock("x", reentrant=True):
        with locks._reentries._alone:
            child = os.fork()
        if child == 0:
            try:
                with locks.lock("x", reentrant=True):
                    os._exit(1)
            except Busy:
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_one_that_was_lost_is_asked_for_anew(server: Server) -> None:
    with (
        leasehold.Leasehold(redis.Redis.from_url(server.url), wait=0) as locks,
        locks.lock("x", reentrant=True) as first,
    ):
        raw(server, "DEL", "x")
        assert not first.extend()
        with locks.lock("x", reentrant=True) as second:
            assert second.fence > first.fence
            with locks.lock("x", reentrant=True) as third:
                assert third is second
        assert server.holder("x") is None


def test_a_task_enters_again_and_so_do_the_tasks_that_it_starts(server: Server) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url), wait=0) as locks:
            begun = asyncio.Event()

            async def child() -> leasehold.asyncio.Lease:
                async with locks.lock("x", reentrant=True) as lease:
                    begun.set()
                    await asyncio.sleep(0.1)
                    assert server.holder("x") is not None
                    return lease

            async with locks.lock("x", reentrant=True) as first:
                async with locks.lock("x", reentrant=True) as second:
                    assert second is first
                task = asyncio.create_task(child())
                await begun.wait()
            assert not first.lost, "the child has not left"
            assert await task is first
            assert server.holder("x") is None

            with pytest.raises(LockLost):
                async with locks.lock("x", ttl=0.3, reentrant=True), locks.lock("x", reentrant=True):
                    raw(server, "DEL", "x")
                    await asyncio.sleep(60)

            # A block that is entered again, while a child is in it alone, is stopped as well.
            begun.clear()
            async with locks.lock("x", ttl=0.3, reentrant=True) as first:
                task = asyncio.create_task(child())
                await begun.wait()
            with pytest.raises(LockLost):
                async with locks.lock("x", reentrant=True) as again:
                    assert again is first
                    raw(server, "DEL", "x")
                    await asyncio.sleep(60)
            with contextlib.suppress(LockLost, AssertionError):
                await task
            await asyncio.sleep(0)
            assert server.holder("x") is None

    asyncio.run(asyncio.wait_for(program(), 30))
