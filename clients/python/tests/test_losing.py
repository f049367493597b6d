"""A lease that is lost is said to be lost: in time, for good, and by the clock."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make, told
from leasehold import Loss, Released, Settings
from servers import Server, eventually


def test_a_deleted_lock_is_lost_at_the_next_renewal(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=1.5)
    with server.client() as client:
        client.delete(name)
    eventually(lambda: told(lease), "the loss is told")
    assert lease.loss is Loss.TAKEN
    assert lease.release() is Released.LATE


def test_a_deleted_lock_is_not_asked_for_again(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server).acquire(name, ttl=0.9)
    with own_server.client() as client:
        client.delete(name)
        client.config_resetstat()
        eventually(lambda: told(lease), "the loss is told")
        end = time.monotonic() + 1.8  # six more renewals
        eventually(lambda: time.monotonic() > end, "twice the ttl")
        assert client.info("commandstats")["cmdstat_lock.extend"]["calls"] == 1
    assert lease.release() is Released.LATE


class Provider(redis.CredentialProvider):
    """Of passwords, from somewhere else, which may be down. This server takes any."""

    def __init__(self) -> None:
        self.is_down = False
        self.failures = 0

    def get_credentials(self) -> tuple[str, str]:
        if self.is_down:
            self.failures += 1
            raise LookupError("nobody tells the password")
        return "default", "any"


def test_a_provider_of_passwords_that_was_down_costs_no_lease(make: Make, own_server: Server, name: str) -> None:
    provider = Provider()
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    locks = make(kind(port=own_server.port, credential_provider=provider), settings=Settings(within=0.5))
    lease = locks.acquire(name, ttl=3)
    provider.is_down = True
    own_server.kill_clients()
    with pytest.raises(leasehold.Unreachable, match="nobody tells the password"):
        locks.try_acquire(name)
    asked = provider.failures
    eventually(lambda: provider.failures > asked + 1, "it is to be renewed")
    provider.is_down = False
    end = time.monotonic() + 4
    eventually(lambda: time.monotonic() > end, "longer than the ttl")
    assert not lease.lost
    assert lease.release() is Released.RELEASED


def test_a_lease_that_nobody_renews_is_over_before_the_servers(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=1, renew=False)
    eventually(lambda: lease.lost, "it is over")
    assert lease.loss is Loss.EXPIRED
    eventually(lambda: told(lease), "and that is told", 5)
    with pytest.raises(leasehold.LockLost):
        lease.check()


def test_a_holder_that_is_cut_off_is_told_without_the_server(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server).acquire(name, ttl=2)
    with own_server.paused():
        began = time.monotonic()
        eventually(lambda: told(lease), "the loss is told")
        assert time.monotonic() - began < 4
        assert lease.loss is Loss.EXPIRED
        assert not lease.extend(60)
    # The server goes on, has the lock still, and answers what was asked: that does not bring it back.
    eventually(lambda: own_server.holder(name) is None, "it ends")
    assert lease.lost
    assert lease.valid_for() == 0


def test_a_cut_of_half_a_ttl_costs_nothing(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server).acquire(name, ttl=6)
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 1.5, "the middle between two renewals")
    with own_server.paused():
        own = time.monotonic()
        eventually(lambda: time.monotonic() - own > 3, "half of the ttl")
    eventually(lambda: time.monotonic() - began > 7, "longer than the first lease")
    assert not lease.lost
    assert lease.release() is Released.RELEASED


def test_renewal_goes_on_over_killed_connections(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server).acquire(name, ttl=1.5)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        own_server.kill_clients()
        time.sleep(0.2)
    assert not lease.lost
    assert lease.release() is Released.RELEASED


def test_a_failover_that_forgot_the_lock_is_a_loss(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server).acquire(name, ttl=3)
    own_server.kill()
    own_server.start()  # empty: as a replica is that has not heard of the grant
    eventually(lambda: told(lease), "the loss is told")
    assert lease.loss is Loss.TAKEN


def test_work_is_cancelled_when_the_lock_is_lost(server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:
            was_cancelled = False
            with pytest.raises(leasehold.LockLost) as lost:
                async with locks.lock(name, ttl=1.5):
                    with server.client() as client:
                        client.delete(name)
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        was_cancelled = True
                        raise
            assert was_cancelled
            assert lost.value.loss is Loss.TAKEN
            # The task is as usable as before.
            await asyncio.sleep(0)
            if sys.version_info >= (3, 11):
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0

    asyncio.run(asyncio.wait_for(program(), 30))


def test_the_result_of_work_whose_lock_was_lost_is_not_masked(server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:

            async def work(lease: leasehold.asyncio.Lease) -> int:
                with server.client() as client:
                    client.delete(name)
                while not told(lease):
                    try:
                        await lease.signal.wait()
                    except asyncio.CancelledError:
                        break
                return 17

            assert await locks.lock(name, ttl=1.5).run(work) == 17

    asyncio.run(asyncio.wait_for(program(), 30))


def test_a_loop_that_was_blocked_past_the_lease_knows_it_at_once(server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:
            lease = await locks.acquire(name, ttl=1)
            time.sleep(1.5)  # the loop is blocked: that is what is tested
            assert lease.valid_for() == 0
            assert lease.lost
            assert lease.signal.is_set()
            with pytest.raises(leasehold.LockLost):
                lease.check()

    asyncio.run(program())


PAUSED = """
import sys, time, redis, leasehold
locks = leasehold.Leasehold(redis.Redis.from_url(sys.argv[1]))
lease = locks.acquire(sys.argv[2], ttl=1.5)
print("held", flush=True)
sys.stdin.readline()
print("lost" if lease.lost else "held", lease.valid_for(), lease.signal.is_set(), lease.loss.name, flush=True)
"""


def test_a_process_that_was_stopped_past_its_lease_knows_it_at_once(server: Server, name: str) -> None:
    words = [sys.executable, "-c", PAUSED, server.url, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        os.kill(program.pid, signal.SIGSTOP)
        eventually(lambda: server.holder(name) is None, "its lease ends on the server")
        program.stdin.write("\n")
        program.stdin.flush()
        os.kill(program.pid, signal.SIGCONT)
        assert program.stdout.readline() == "lost 0.0 True EXPIRED\n"


def test_a_lease_is_counted_from_before_a_slow_server_was_asked(make: Make, own_server: Server, name: str) -> None:
    locks = make(own_server, settings=leasehold.Settings(response=10, within=10))
    locks.acquire("warm").release()
    own_server.pause()
    began = time.monotonic()
    threading.Timer(1.5, own_server.go_on).start()
    lease = locks.try_acquire(name, ttl=30, renew=False)
    assert time.monotonic() - began > 1.4
    # What is left is no more than if the lease had begun with the call.
    left = lease.valid_for()
    assert left <= 30 - (time.monotonic() - began)
    assert lease.extend(30)
    own_server.pause()
    asked = time.monotonic()
    threading.Timer(1.5, own_server.go_on).start()
    assert lease.extend(30)
    left = lease.valid_for()
    assert left <= 30 - (time.monotonic() - asked)
    lease.release()


def test_a_thread_that_let_no_other_run_past_the_lease_knows_it_at_once(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        lease = locks.acquire(name, ttl=1)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(100)
        try:
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                pass
            assert lease.lost
            assert lease.valid_for() == 0
        finally:
            sys.setswitchinterval(interval)
