"""Locks in memory. What they do is in the list of clients/conformance; this is how programs get them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import Any

import pytest

import leasehold
import leasehold.asyncio
from leasehold import LockLost, Released
from leasehold.testing import AsyncMemoryLocks, MemoryLocks
from servers import eventually


def test_threads_take_turns_without_a_server() -> None:
    order: list[int] = []

    def work(number: int) -> None:
        with locks.lock("printer", wait=60) as lease:
            order.append(number)
            fences.append(lease.fence)

    fences: list[int] = []
    with MemoryLocks() as locks, MemoryLocks(beside=locks) as other:
        assert isinstance(locks, leasehold.Leasehold)
        threads = []
        with other.lock("printer"):
            assert locks.try_acquire("printer") is None
            for number in range(5):
                threads.append(threading.Thread(target=work, args=[number]))
                threads[-1].start()
                eventually(lambda: len(other.waiters("printer")) == len(threads), "it waits")
        for thread in threads:
            thread.join(60)
    assert order == [0, 1, 2, 3, 4]
    assert fences == sorted(set(fences))


def test_coroutines_and_threads_have_the_same_locks() -> None:
    async def program() -> None:
        async with AsyncMemoryLocks(prefix="p:") as locks, AsyncMemoryLocks(beside=locks) as bare:
            assert isinstance(locks, leasehold.asyncio.Leasehold)
            threads = MemoryLocks(beside=locks)
            async with locks.lock("printer") as lease:
                assert await asyncio.to_thread(threads.try_acquire, "p:printer") is None
                held = await bare.info("p:printer")
                assert held is not None
                assert held.fence == lease.fence
            async with bare.semaphore("pool", 2), bare.semaphore("pool", 2):
                assert await bare.semaphore("pool", 2).try_acquire() is None
            mine = await asyncio.to_thread(threads.acquire, "p:printer")
            assert await locks.try_acquire("printer") is None
            assert await asyncio.to_thread(mine.release) is Released.RELEASED
            await asyncio.to_thread(threads.close)

    asyncio.run(program())


def test_a_lock_that_is_not_renewed_runs_out_and_is_lost() -> None:
    with MemoryLocks() as locks:
        lease = locks.acquire("printer", ttl=0.2, renew=False)
        with locks.lock("printer", wait=60):
            assert lease.lost
            with pytest.raises(LockLost):
                lease.check()
        renewed = locks.acquire("printer", ttl=0.2)
        assert renewed.signal.wait(1) is None


def test_guarded_commands_see_what_is_in_memory() -> None:
    with MemoryLocks() as locks, locks.lock("printer") as lease:
        assert lease.guard("SET", "page", "17") == b"OK"
        assert lease.guard("INCR", "page") == 18
        lease.release()
        with pytest.raises(LockLost):
            lease.guard("SET", "page", "19")


def test_the_thread_of_a_server_that_nobody_uses_ends() -> None:
    before = set(threading.enumerate())
    locks: Any = MemoryLocks()
    locks.acquire("printer").release()
    locks.acquire("page").detach()
    locks.close()
    del locks
    eventually(lambda: gc.collect() >= 0 and set(threading.enumerate()) <= before, "its thread has ended")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_that_its_own_thread_forgets_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        async with AsyncMemoryLocks().lock("printer"):
            pass

    before, failures = set(threading.enumerate()), list[Any]()
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    # Whoever forgets it last may be this thread.
    for _ in range(20):
        asyncio.run(program())
    eventually(lambda: gc.collect() >= 0 and set(threading.enumerate()) <= before, "its thread has ended")
    assert failures == []
