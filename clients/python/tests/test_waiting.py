"""Waiting in the server's queue: in order, by tickets, to a deadline, and without leaving anything behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Settings
from servers import Server, eventually, raw

BY = pytest.mark.parametrize("tickets", [True, False], ids=["tickets", "connections"])


class Waiter(threading.Thread):
    """Asks for a lock in a thread, and says what came of it, and when."""

    def __init__(self, locks: Any, name: str, **options: object) -> None:
        super().__init__(daemon=True)
        self._ask = lambda: locks.acquire(name, **options)
        self.came: list[Any] = []
        self.began = time.monotonic()
        self.took = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.came.append(self._ask())
        except BaseException as error:
            self.came.append(error)
        self.took = time.monotonic() - self.began

    def end(self) -> Any:
        self.join(60)
        assert self.came, "it waits still"
        return self.came[0]


@BY
def test_those_who_wait_are_served_in_the_order_of_their_coming(
    make: Make, server: Server, name: str, tickets: bool
) -> None:
    locks = make(server, settings=Settings(tickets=tickets))
    first = locks.acquire(name)
    order: list[int] = []
    threads = []
    for number in range(5):

        def take(number: int = number) -> None:
            lease = locks.acquire(name, wait=60)
            order.append(number)
            lease.release()

        threads.append(threading.Thread(target=take, daemon=True))
        threads[-1].start()
        eventually(lambda n=number: server.waiters(name) == n + 1, "it waits")  # type: ignore[misc]
    first.release()
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3, 4]
    assert server.holder(name) is None


@BY
def test_a_wait_ends_at_its_deadline_and_leaves_the_queue(make: Make, server: Server, name: str, tickets: bool) -> None:
    locks = make(server, settings=Settings(tickets=tickets))
    first = locks.acquire(name)
    began = time.monotonic()
    with pytest.raises(leasehold.Busy):
        locks.acquire(name, wait=1)
    assert 0.9 < time.monotonic() - began < 3
    eventually(lambda: server.waiters(name) == 0, "nobody waits")
    first.release()
    assert server.holder(name) is None


@BY
def test_a_wait_ends_at_its_deadline_although_the_server_is_silent(
    make: Make, own_server: Server, name: str, tickets: bool
) -> None:
    locks = make(own_server, settings=Settings(tickets=tickets))
    first = locks.acquire(name, ttl=60)
    waiter = Waiter(locks, name, wait=4)
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    with own_server.paused():
        assert isinstance(waiter.end(), (leasehold.Busy, leasehold.Unreachable))
        assert waiter.took < 6
    eventually(lambda: own_server.waiters(name) == 0, "nobody waits")
    assert first.release().in_time
    eventually(lambda: own_server.holder(name) is None, "nobody has it")


@BY
def test_who_begins_to_wait_while_the_server_is_silent_ends_at_its_deadline(
    make: Make, own_server: Server, name: str, tickets: bool
) -> None:
    locks = make(own_server, settings=Settings(tickets=tickets))
    with own_server.paused():
        waiter = Waiter(locks, name, wait=1.5)
        assert isinstance(waiter.end(), leasehold.Unreachable)
        assert waiter.took < 3.5


@BY
def test_connections_that_are_killed_cost_no_more_than_the_place(
    make: Make, own_server: Server, name: str, tickets: bool
) -> None:
    locks = make(own_server, settings=Settings(tickets=tickets))
    first = locks.acquire(name, ttl=60)
    waiter = Waiter(locks, name, wait=60)
    for _ in range(3):
        eventually(lambda: own_server.waiters(name) == 1, "it waits")
        own_server.kill_clients()
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    first.release()
    lease = waiter.end()
    assert lease.release().in_time


def by_tickets(make: Make, server: Server, **settings: Any) -> Any:
    """A client that has no connections left to wait on, as those of threads do before they take tickets."""
    locks = make(server, settings=Settings(wait_connections=1, **settings))
    if make.style == "threads":  # type: ignore[attr-defined]
        assert locks._run().hub.take_room()
    return locks


def test_a_ticket_keeps_its_place_when_connections_are_killed(make: Make, own_server: Server, name: str) -> None:
    locks, others = by_tickets(make, own_server), make(own_server)
    first = others.acquire(name, ttl=60)
    second = Waiter(locks, name, wait=60)
    eventually(lambda: own_server.waiters(name) == 1, "the second waits")
    third = Waiter(others, name, wait=60)
    eventually(lambda: own_server.waiters(name) == 2, "the third waits")
    own_server.kill_clients()
    first.release()
    lease = second.end()
    assert not third.came
    lease.release()
    assert third.end().release().in_time


@BY
def test_killed_connections_do_not_begin_the_patience_anew(
    make: Make, own_server: Server, name: str, tickets: bool
) -> None:
    locks = make(own_server, settings=Settings(tickets=tickets))
    locks.acquire(name, ttl=60).detach()
    waiter = Waiter(locks, name, wait=3)
    while not waiter.came:
        own_server.kill_clients()
        time.sleep(0.3)
    assert isinstance(waiter.end(), (leasehold.Busy, leasehold.Unreachable))
    assert waiter.took < 5


def test_a_wait_is_granted_in_time_although_its_subscription_is_dead(make: Make, own_server: Server, name: str) -> None:
    locks = make(own_server, settings=Settings(slice=1))
    first = locks.acquire(name, ttl=60)
    waiter = Waiter(locks, name, wait=60)
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    with own_server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    first.release()
    assert waiter.end().release().in_time


def test_a_lease_after_a_long_wait_begins_with_its_grant(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    first = locks.acquire(name, ttl=60)
    waiter = Waiter(locks, name, ttl=3, wait=60)
    eventually(lambda: time.monotonic() - waiter.began > 4, "longer than its ttl")
    first.release()
    lease = waiter.end()
    assert lease.valid_for() > 1
    assert lease.release().in_time


@BY
def test_a_client_that_is_closed_sends_away_who_waits(make: Make, server: Server, name: str, tickets: bool) -> None:
    locks, others = make(server, settings=Settings(tickets=tickets)), make(server)
    first = others.acquire(name)
    waiter = Waiter(locks, name)
    eventually(lambda: server.waiters(name) == 1, "it waits")
    assert locks.close() == []
    assert isinstance(waiter.end(), leasehold.Closed)
    eventually(lambda: server.waiters(name) == 0, "nobody waits")
    first.release()
    assert server.holder(name) is None


@BY
def test_a_wait_that_is_cancelled_leaves_no_place_and_no_lock(server: Server, name: str, tickets: bool) -> None:
    async def program() -> None:
        given = redis.asyncio.Redis.from_url(server.url)
        async with leasehold.asyncio.Leasehold(given, Settings(tickets=tickets)) as locks:
            first = await locks.acquire(name)
            for _ in range(5):
                waiting = asyncio.ensure_future(locks.acquire(name))
                await asyncio.get_running_loop().run_in_executor(
                    None, eventually, lambda: server.waiters(name) == 1, "it waits"
                )
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await asyncio.get_running_loop().run_in_executor(
                    None, eventually, lambda: server.waiters(name) == 0, "nobody waits", 5
                )
            await first.release()
            # In the moment of the grant, too: whichever comes first, nothing is left.
            for _ in range(30):
                first = await locks.acquire(name)
                waiting = asyncio.ensure_future(locks.acquire(name))
                await asyncio.sleep(0.01)
                releasing = asyncio.ensure_future(first.release())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting, releasing])
                if not waiting.cancelled():
                    await waiting.result().release()
            await asyncio.get_running_loop().run_in_executor(
                None, eventually, lambda: server.holder(name) is None, "nobody has it", 10
            )

    asyncio.run(asyncio.wait_for(program(), 100))


def test_a_thousand_wait_on_two_connections(own_server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url)) as locks:
            first = await locks.acquire(name, ttl=60)
            order: list[int] = []

            async def take(number: int) -> None:
                async with locks.lock(name, ttl=60, wait=240):
                    order.append(number)

            waiting = [asyncio.ensure_future(take(number)) for number in range(1000)]

            def all_wait() -> bool:
                told = raw(own_server, "LOCK.INFO", name)
                return bool(told[told.index(b"waiters") + 1] == 1000)

            def connected() -> int:
                with own_server.client() as client:
                    return int(client.info("clients")["connected_clients"]) - 1

            run = asyncio.get_running_loop().run_in_executor
            await run(None, eventually, all_wait, "all wait", 60)
            await run(None, eventually, lambda: connected() == 2, "two are connected")
            assert await run(None, connected) == 2
            await first.release()
            await asyncio.gather(*waiting)
            assert order == sorted(order)

    asyncio.run(asyncio.wait_for(program(), 240))


INTERRUPTED = """
import signal, sys, redis, leasehold
# A parent that runs in the background may have left it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
locks = leasehold.Leasehold(redis.Redis.from_url(sys.argv[1]), leasehold.Settings(tickets=sys.argv[3] == "True"))
try:
    locks.acquire(sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
"""


@BY
def test_a_wait_that_is_interrupted_leaves_no_place_and_no_lock(server: Server, name: str, tickets: bool) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        first = locks.acquire(name)
        words = [sys.executable, "-c", INTERRUPTED, server.url, name, str(tickets)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            eventually(lambda: server.waiters(name) == 1, "it waits")
            os.kill(program.pid, signal.SIGINT)
            assert program.stdout is not None
            assert program.stdout.readline() == "interrupted\n"
            eventually(lambda: server.waiters(name) == 0, "nobody waits, while the program lives on")
            first.release()
            assert server.holder(name) is None
            program.communicate("\n")


def test_no_more_connections_wait_than_may(make: Make, own_server: Server, name: str) -> None:
    locks = make(own_server, settings=Settings(tickets=False, wait_connections=2))
    first = locks.acquire(name)
    waiters = [Waiter(locks, name, wait=60) for _ in range(6)]
    eventually(lambda: own_server.waiters(name) == 2, "two wait in the server")
    assert first.release().in_time
    while waiters:
        eventually(lambda: any(waiter.came for waiter in waiters), "the next one has it")
        served = next(waiter for waiter in waiters if waiter.came)
        assert served.end().release().in_time
        waiters.remove(served)


def test_a_place_is_kept_for_as_long_as_it_is_waited_for(make: Make, server: Server, name: str) -> None:
    locks, others = make(server, settings=Settings(slice=0.5)), make(server)
    first = others.acquire(name, ttl=60)
    second = Waiter(locks, name, wait=60)
    eventually(lambda: server.waiters(name) == 1, "the second waits")
    third = Waiter(others, name, wait=60)
    eventually(lambda: server.waiters(name) == 2, "the third waits")
    # A place for which nobody asks is given up after 1.5 seconds.
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert server.waiters(name) == 2
        time.sleep(0.1)
    first.release()
    lease = second.end()
    assert not third.came
    lease.release()
    assert third.end().release().in_time


def test_a_server_that_takes_no_more_clients_keeps_a_place_all_the_same(
    make: Make, own_server: Server, name: str
) -> None:
    locks = make(own_server)
    locks.acquire(name).release()
    with own_server.client(single_connection_client=True) as control:
        control.execute_command("LOCK.ACQUIRE", name, "other", 60000)
        control.config_set("maxclients", len(control.client_list()))
        try:
            got: list[Any] = []
            waiter = threading.Thread(target=lambda: got.append(locks.acquire(name, wait=8)))
            waiter.start()
            waiting = lambda: len(control.execute_command("LOCK.WAITERS", name))  # noqa: E731
            eventually(lambda: waiting() == 1, "it waits", 5)
            control.execute_command("LOCK.RELEASE", name, "other")
            waiter.join(4)
            assert got
            assert got[0].release().in_time
        finally:
            control.config_set("maxclients", 10000)
