"""Whoever gives up, closes or ends leaves no connection, and is not told of what is none of its business."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Iterator

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Loss, Released, Settings
from leasehold._direct import Channel
from leasehold._pending import Pending
from servers import Server, eventually
from test_waiting import Waiter


def connections(server: Server) -> int:
    """But for the one that asks."""
    with server.client() as client:
        return len(client.client_list()) - 1


async def in_thread(*words: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, eventually, *words)


def test_a_wait_that_is_cancelled_at_any_step_leaves_no_connection(own_server: Server, name: str) -> None:
    reported: list[dict[str, Any]] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        given = redis.asyncio.Redis.from_url(own_server.url)
        locks = leasehold.asyncio.Leasehold(given, Settings(tickets=False))
        async with locks, locks.lock(name, ttl=60):
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


def test_a_wait_that_begins_to_queue_while_the_client_is_closed_ends(own_server: Server, name: str) -> None:
    async def program() -> None:
        given = redis.asyncio.Redis.from_url(own_server.url)
        async with leasehold.asyncio.Leasehold(given) as others, others.lock(name, ttl=60):
            for steps in range(12):
                locks = leasehold.asyncio.Leasehold(given)
                await (await locks.acquire("warm")).release()
                waiting = asyncio.ensure_future(locks.acquire(name))
                for _ in range(steps):
                    await asyncio.sleep(0)
                assert await locks.close(60) == []
                with pytest.raises(leasehold.Closed):
                    await asyncio.wait_for(waiting, 1)
            await in_thread(lambda: own_server.waiters(name) == 0, "nobody waits")
            await in_thread(lambda: connections(own_server) == 1, "no connection is left", 5)

    asyncio.run(asyncio.wait_for(program(), 50))


def test_a_thread_that_connects_while_the_client_is_closed_does_not_begin_to_wait(
    own_server: Server, name: str
) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(own_server.url)) as others, others.lock(name, ttl=60):
        locks = leasehold.Leasehold(redis.Redis.from_url(own_server.url), Settings(tickets=False))
        pool = locks._run().hub.asking.routes.known(name.encode()).pool  # type: ignore[union-attr]
        its_open, opens, may_go_on = pool._open, threading.Event(), threading.Event()

        def slow(limit: float) -> Any:
            opens.set()
            channel = its_open(limit)
            may_go_on.wait(60)
            return channel

        pool._open = slow  # type: ignore[method-assign]
        waiter = Waiter(locks, name)
        assert opens.wait(60)
        locks.close(0.1)
        may_go_on.set()
        assert isinstance(waiter.end(), leasehold.Closed)
        assert own_server.waiters(name) == 0


def test_nobody_closes_the_connection_on_which_a_thread_still_waits(
    own_server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next socket would have its number, and the thread would go on to wait on that one."""
    numbers: list[int] = []
    its_ask = Channel.ask
    with leasehold.Leasehold(redis.Redis.from_url(own_server.url)) as others, others.lock(name, ttl=60):
        locks = leasehold.Leasehold(redis.Redis.from_url(own_server.url))
        thread = locks._run().thread

        def ask(channel: Channel, *words: Any) -> Any:
            try:
                return its_ask(channel, *words)
            except (redis.RedisError, OSError):
                # The loop has gone on, and the thread has not.
                thread.call(lambda: asyncio.sleep(0), 60)
                numbers.append(channel._sock.fileno())
                raise

        monkeypatch.setattr(Channel, "ask", ask)
        waiter = Waiter(locks, name)
        eventually(lambda: own_server.waiters(name) == 1, "it waits")
        assert locks.close(60) == []
        assert isinstance(waiter.end(), leasehold.Closed)
        assert len(numbers) == 1
        assert numbers[0] >= 0


def test_close_goes_on_with_a_release_that_rests(make: Make, own_server: Server, name: str) -> None:
    locks = make(own_server, settings=Settings(within=0.3))
    lease = locks.acquire(name, ttl=60)
    own_server.kill()
    with pytest.raises(leasehold.Unreachable):
        lease.release()
    restart = threading.Timer(0.3, own_server.start)
    restart.start()
    assert locks.close(20) == []
    restart.join()


def test_close_names_what_is_being_released_and_what_may_have_been_granted(make: Make, own_server: Server) -> None:
    locks = make(own_server, settings=Settings(within=0.3))
    lease = locks.acquire("released", ttl=60)
    with own_server.paused():
        with pytest.raises(leasehold.Unreachable):
            lease.release()
        with pytest.raises(leasehold.Unreachable):
            locks.try_acquire("granted", ttl=60)
        assert sorted(locks.close(0.3)) == ["granted", "released"]


def test_a_release_after_a_close_that_ran_out_does_not_mask_the_result(own_server: Server, name: str) -> None:
    locks = leasehold.Leasehold(redis.Redis.from_url(own_server.url))
    with locks.lock(name) as lease:
        own_server.pause()
        assert locks.close(0.2) == [name]
        with pytest.raises(leasehold.Closed):
            lease.release()
        result = "done"
    assert result == "done"


def test_a_close_goes_on_when_whoever_closes_is_cancelled(own_server: Server, name: str) -> None:
    async def program() -> None:
        locks = leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url))
        with pytest.raises(leasehold.LockLost) as lost:
            async with locks.lock(name):
                # It cancels this task, for it ends the lock that it works under.
                await locks.close()
        assert lost.value.loss is Loss.CLOSED
        await in_thread(lambda: connections(own_server) == 0, "no connection is left", 5)
        assert own_server.holder(name) is None
        assert await locks.close() == []

    asyncio.run(asyncio.wait_for(program(), 60))


def test_a_lost_lease_that_is_released_after_the_close_opens_nothing(make: Make, own_server: Server, name: str) -> None:
    locks = make(own_server)
    lease = locks.acquire(name, ttl=0.2, renew=False)
    eventually(lambda: lease.lost, "it is lost")
    assert locks.close() == []
    assert lease.release() is Released.LATE
    assert connections(own_server) == 0


def test_a_lease_of_a_closed_client_says_so(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    lease = locks.acquire(name)
    locks.close()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for ask in (lease.extend, lambda: lease.guard("GET", name), lambda: locks.info(name)):
            with pytest.raises(leasehold.Closed):
                ask()
        gc.collect()
    assert warned == []


@pytest.mark.parametrize("wait", [timedelta.max, 1e300, float("inf")])
def test_a_limit_may_be_longer_than_the_system_waits(make: Make, server: Server, name: str, wait: object) -> None:
    locks = make(server)
    assert locks.acquire(name, wait=wait).release() is Released.RELEASED
    assert locks.close(wait) == []


def test_a_block_that_another_thread_leaves_gives_its_lock_back(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        request = locks.lock(name)

        def works() -> Iterator[None]:
            with request:
                yield

        working = works()
        next(working)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(working.close).result(20)  # type: ignore[attr-defined]
        assert server.holder(name) is None


def test_a_block_that_another_task_leaves_does_not_end_the_work_of_a_third(server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:
            request = locks.semaphore(name, 2)
            leases = [await asyncio.ensure_future(request.__aenter__()) for _ in range(2)]
            with pytest.raises(leasehold.LeaseholdError):
                await request.__aexit__(None, None, None)
            assert not any(lease.lost for lease in leases)

    asyncio.run(asyncio.wait_for(program(), 60))


ENDS = """
import sys, threading, redis, leasehold
locks = leasehold.Leasehold(redis.Redis.from_url(sys.argv[1]), leasehold.Settings(tickets=sys.argv[3] == "True"))
lease = locks.acquire(sys.argv[2])

def wait():
    try:
        locks.acquire(sys.argv[2])
    except leasehold.Closed:
        pass

threading.Thread(target=wait, daemon=True).start()
sys.stdin.readline()
"""


@pytest.mark.parametrize("tickets", [True, False], ids=["tickets", "connections"])
def test_a_program_that_ends_without_close_leaves_no_lock_and_ends_in_silence(
    server: Server, name: str, tickets: bool
) -> None:
    words = [sys.executable, "-c", ENDS, server.url, name, str(tickets)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        eventually(lambda: server.waiters(name) == 1, "it holds the lock, and waits for it")
        said = program.communicate("\n", timeout=30)
    assert (said, program.returncode) == (("", ""), 0)
    assert server.waiters(name) == 0
    assert server.holder(name) is None


DROPPED = """
import asyncio, gc, os, sys, threading, time, warnings, redis, redis.asyncio, leasehold, leasehold.asyncio
url, style = sys.argv[1], sys.argv[3]
client = redis.Redis.from_url(url)

def now():
    return client.info("clients")["connected_clients"], threading.active_count(), len(os.listdir("/proc/self/fd"))

def settled(first):
    end = time.monotonic() + 10
    while now() != first and time.monotonic() < end:
        time.sleep(0.01)
    print(now()[0] - first[0], now()[1] - first[1], now()[2] - first[2], flush=True)

def threads():
    first = now()
    for number in range(20):
        name, locks = f"{sys.argv[2]}-{number}", leasehold.Leasehold(client)
        locks.acquire(name).release()
        lease = locks.acquire(name)
        try:
            locks.acquire(name, wait=0.02)
        except leasehold.Busy:
            pass
    del locks
    gc.collect()
    print(lease.lost, client.exists(name))
    del lease
    gc.collect()
    settled(first)

async def coroutines():
    first = now()
    for number in range(20):
        name, locks = f"{sys.argv[2]}-{number}", leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(url))
        await (await locks.acquire(name)).release()
        lease = await locks.acquire(name)
        try:
            await locks.acquire(name, wait=0.02)
        except leasehold.Busy:
            pass
    del locks
    gc.collect()
    print(lease.lost, client.exists(name))
    del lease
    gc.collect()
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    first = first[0], threading.active_count(), first[2]
    end = time.monotonic() + 10
    while now() != first and time.monotonic() < end:
        await asyncio.sleep(0.01)
    settled(first)

now(), threads() if style == "threads" else asyncio.run(coroutines())
"""


@pytest.mark.parametrize("style", ["threads", "asyncio"])
def test_clients_that_nobody_closed_and_nobody_has_leave_no_connection_thread_or_descriptor(
    own_server: Server, name: str, style: str
) -> None:
    words = [sys.executable, "-c", DROPPED, own_server.url, name, style]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False 1\n0 0 0\n", done.stderr


def test_a_release_whose_caller_is_cancelled_is_the_release_of_all(own_server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url)) as locks:
            for steps in range(6):
                lease = await locks.acquire(name, ttl=60)
                releasing = [asyncio.ensure_future(lease.release()) for _ in range(3)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                releasing[0].cancel()
                assert await asyncio.gather(*releasing[1:]) == [Released.RELEASED] * 2
                assert await lease.release() is Released.RELEASED
                assert own_server.holder(name) is None

    asyncio.run(asyncio.wait_for(program(), 60))


def test_close_waits_for_a_release_that_is_under_way_and_names_it(own_server: Server, name: str) -> None:
    async def program(closes_in: float) -> list:
        locks = leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url))
        lease = await locks.acquire(name, ttl=60)
        with own_server.paused():
            releasing = asyncio.ensure_future(lease.release())
            await asyncio.sleep(0.1)
            closing = asyncio.ensure_future(locks.close(closes_in))
            await asyncio.sleep(0.2)
            assert closing.done() == (closes_in < 0.2)
        left = await closing
        await asyncio.wait([releasing], timeout=10)
        assert releasing.done()
        releasing.exception()
        return left

    assert asyncio.run(asyncio.wait_for(program(20), 60)) == []
    assert own_server.holder(name) is None
    assert asyncio.run(asyncio.wait_for(program(0.1), 60)) == [name]


def test_what_is_given_up_when_the_client_is_closed_opens_no_connection(own_server: Server, name: str) -> None:
    async def program() -> None:
        locks = leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url))
        await (await locks.acquire(name)).release()
        hub = locks._hub
        assert hub is not None
        await locks.close()
        pending = Pending(locks.lock(name)._asked.wanted(is_try=False))
        pending.may_hold = True
        hub.give_up(pending)
        await asyncio.wait(list(hub._background), timeout=5)
        assert connections(own_server) == 0
        assert not hub._background

    asyncio.run(asyncio.wait_for(program(), 60))
