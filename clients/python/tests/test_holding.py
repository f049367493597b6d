"""A lock is taken, held, extended, kept and given back: from threads and from asyncio."""

from __future__ import annotations

import os
import threading
import time
import uuid
from datetime import timedelta

import pytest

import leasehold
from conftest import Make
from leasehold import Loss, Released
from servers import Server, eventually


def test_a_lock_is_taken_and_given_back(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name)
    assert server.holder(name) == b"%d:%s" % (lease.fence, lease.owner)
    assert isinstance(lease.fence, int)
    assert not lease.lost
    assert lease.release() is Released.RELEASED
    assert server.holder(name) is None
    assert lease.loss is Loss.RELEASED
    assert lease.valid_for() == 0


def test_each_lease_has_an_owner_of_its_own(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    leases = [locks.acquire(f"{name}-{number}") for number in range(2)]
    owners = [lease.owner.decode() for lease in leases]
    assert owners[0] != owners[1]
    for owner, lease in zip(owners, leases):
        process, unique = owner.split(":")
        assert int(process) == os.getpid()
        assert str(uuid.UUID(unique)) == unique
        assert lease.release() is Released.RELEASED


def test_that_somebody_else_has_it_is_no_error(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    first = locks.try_acquire(name)
    assert locks.try_acquire(name) is None
    first.release()
    second = locks.try_acquire(name)
    assert second.fence > first.fence
    second.release()


def test_a_lease_is_counted_for_less_than_the_server_grants(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=10, renew=False)
    with server.client() as client:
        counted = lease.valid_for()
        assert counted * 1000 < client.pttl(name)
    lease.release()


def test_a_lease_outlives_its_ttl_many_times(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=1)
    end = time.monotonic() + 4
    eventually(lambda: time.monotonic() > end or lease.lost, "four times the ttl")
    assert not lease.lost
    assert lease.release() is Released.RELEASED


def test_it_is_extended_and_shortened(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=10, renew=False)
    assert lease.extend(timedelta(seconds=60))
    assert 30 < lease.valid_for() < 60
    assert lease.extend(5)
    assert lease.valid_for() < 5
    lease.release()


def test_what_is_kept_stays_until_its_lease_ends(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=1)
    lease.detach()
    assert lease.loss is Loss.DETACHED
    assert lease.release() is Released.DETACHED
    assert server.holder(name) is not None
    eventually(lambda: server.holder(name) is None, "the lease ends, for nobody renews it")


def test_it_is_held_at_least_so_long(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    lease = locks.acquire(name, ttl=60, hold_at_least=2)
    began = time.monotonic()
    assert lease.release() is Released.LATER
    assert locks.try_acquire(name) is None
    eventually(lambda: server.holder(name) is None, "it is free in the end")
    assert time.monotonic() - began > 1


def test_it_is_held_at_least_so_long_from_the_grant_however_long_it_was_waited_for(
    make: Make, server: Server, name: str
) -> None:
    with server.client() as control:
        control.execute_command("LOCK.ACQUIRE", name, "before", 1200)
    locks = make(server)
    lease = locks.acquire(name, ttl=60, hold_at_least=1)
    assert lease.release() is Released.LATER
    assert locks.try_acquire(name) is None


def test_readers_hold_together_and_a_writer_alone(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    one, two = locks.read(name).acquire(), locks.read(name).try_acquire()
    assert locks.write(name).try_acquire() is None
    info = locks.info(name)
    assert (info.holders, info.share) == (2, 0)
    one.release()
    two.release()
    writer = locks.write(name).try_acquire()
    assert locks.read(name).try_acquire() is None
    writer.release()


def test_a_semaphore_has_so_many_permits(make: Make, server: Server, name: str) -> None:
    pool = make(server).semaphore(name, 2)
    one, two = pool.try_acquire(), pool.try_acquire()
    assert pool.try_acquire() is None
    one.release()
    three = pool.try_acquire()
    assert three is not None
    for lease in (two, three):
        assert lease.release().in_time


def test_info_tells_who_holds_it(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    assert locks.info(name) is None
    lease = locks.acquire(name, ttl=10)
    info = locks.info(name)
    assert (info.owner, info.fence, info.waiters, info.holders) == (lease.owner, lease.fence, 0, 1)
    assert 0 < info.ttl <= 10
    lease.release()


@pytest.mark.parametrize("key", ["zürich/ß", "a b", b"\x00\xff\r\n", b"", "{tag}:x", "}"])
def test_names_are_bytes(make: Make, server: Server, key: str | bytes) -> None:
    locks = make(server, prefix="lock:")
    lease = locks.acquire(key)
    with server.client() as client:
        expected = b"lock:" + (key if isinstance(key, bytes) else key.encode())
        assert client.keys("lock:*") == [expected]
    assert locks.try_acquire(key) is None
    with pytest.raises(leasehold.Busy):
        locks.acquire(key, wait=0.1)
    lease.release()


def test_one_that_waits_is_told_by_name_whatever_is_in_it(make: Make, server: Server) -> None:
    key = b"7 8 a\xff b\r\n"
    locks = make(server, settings=leasehold.Settings(slice=60))
    first = locks.acquire(key)

    got = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire(key, wait=30)))
    waiter.start()
    eventually(lambda: server.waiters(key) == 1, "it waits")
    first.release()
    waiter.join(20)
    assert got
    got[0].release()


def test_the_closed_client_leaves_nothing(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    lease, kept = locks.acquire(name), locks.acquire(name + ".kept", ttl=1)
    kept.detach()
    assert locks.close() == []
    assert server.holder(name) is None
    assert lease.loss is Loss.CLOSED
    assert lease.release() is Released.RELEASED if make.style == "threads" else True  # type: ignore[attr-defined]
    with pytest.raises(leasehold.Closed):
        locks.try_acquire(name)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"ttl": ttl} for ttl in (0, 0.002, -1, float("nan"), float("inf"), 10**400, "5")),
        *({"hold_at_least": least} for least in (-1, float("inf"))),
        {"wait": -1},
    ],
)
def test_arguments_without_sense_are_refused_before_anything_is_asked(make: Make, server: Server, wrong: dict) -> None:
    locks = make(server)
    with pytest.raises(leasehold.SettingError):
        locks.lock("x", **wrong)
    with pytest.raises(leasehold.SettingError):
        locks.semaphore("x", 0)


@pytest.mark.parametrize(
    ("wrong", "bounds"),
    [
        ({"ttl": 900719925474099}, "ttl: it must be from 0.003 to 3153600000 seconds"),
        ({"ttl": 0.002}, "ttl: it must be from 0.003 to 3153600000 seconds"),
        ({"wait": -1}, "wait: it must be from 0 to 3153600000 seconds"),
        ({"hold_at_least": 1e10}, "hold_at_least: it must be from 0 to 3153600000 seconds"),
        ({"ttl": "5"}, "ttl: it must be a number of seconds, or a timedelta"),
    ],
)
def test_what_is_out_of_bounds_is_told_the_bounds(make: Make, server: Server, wrong: dict, bounds: str) -> None:
    with pytest.raises(leasehold.SettingError, match=bounds):
        make(server).lock("x", **wrong)
    with pytest.raises(leasehold.SettingError, match="permits: it must be an integer from 1 to 99999"):
        make(server).semaphore("x", 100_000)
    with pytest.raises(leasehold.SettingError, match="wait_connections: it must be an integer from 1 to 99999"):
        make(server, settings=leasehold.Settings(wait_connections=0))
    with pytest.raises(leasehold.Refused, match="ttl must be at most 86400000 milliseconds"):
        make(server).acquire("x", ttl=86_401)


def test_text_that_is_not_unicode_is_refused_and_not_only_by_the_codec(make: Make, server: Server, name: str) -> None:
    locks, wrong = make(server), "half of \ud800"
    asks = [lambda: locks.lock(wrong), lambda: locks.info(wrong), lambda: locks.election(name, wrong)]
    lease = locks.acquire(name)
    for ask in [*asks, lambda: make(server, prefix=wrong), lambda: lease.guard("SET", "page", wrong)]:
        with pytest.raises(leasehold.SettingError):
            ask()
    assert lease.release().in_time


def test_a_lease_that_is_dropped_is_released(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    locks.acquire(name, ttl=600)
    eventually(lambda: server.holder(name) is None, "nobody has it")
