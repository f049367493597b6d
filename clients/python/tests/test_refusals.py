"""What servers refuse is a typed error, at once where another try would come to the same."""

from __future__ import annotations

import threading
import time
from typing import Iterator

import pytest
import redis
import redis.asyncio

import leasehold
from conftest import Make
from leasehold import Released, Settings
from servers import Server, eventually
from test_waiting import by_tickets


def client_of(make: Make, server: Server, **options: object) -> object:
    """A client of redis-py in the style of the test."""
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    return kind.from_url(server.url, **options)


@pytest.fixture
def guarded_server() -> Iterator[Server]:
    server = Server()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "full", "on", ">secret", "~*", "&*", "+@all")
        client.execute_command("ACL", "SETUSER", "silent", "on", ">secret", "~*", "resetchannels", "+@all")
        client.execute_command("ACL", "SETUSER", "nobody", "on", ">secret", "~other:*", "&*", "+@all")
    yield server
    server.end()


def test_a_wrong_password_is_told_at_once(make: Make, guarded_server: Server) -> None:
    locks = make(client_of(make, guarded_server, username="full", password="wrong"))
    began = time.monotonic()
    with pytest.raises(leasehold.WrongPassword):
        locks.acquire("x", wait=30)
    assert time.monotonic() - began < 10


def test_a_right_password_is_used(make: Make, guarded_server: Server) -> None:
    locks = make(client_of(make, guarded_server, username="full", password="secret"))
    assert locks.acquire("x").release().in_time


def test_a_missing_password_is_told(make: Make, own_server: Server) -> None:
    with own_server.client() as client:
        client.config_set("requirepass", "secret")
    with pytest.raises(leasehold.WrongPassword):
        make(own_server).acquire("x", wait=30)


def test_a_missing_permission_is_told(make: Make, guarded_server: Server) -> None:
    locks = make(client_of(make, guarded_server, username="nobody", password="secret"))
    with pytest.raises(leasehold.NotPermitted) as refused:
        locks.acquire("x", wait=30)
    assert refused.value.code == "NOPERM"


def test_a_user_with_no_more_rights_than_locks_take_can_use_them(make: Make, guarded_server: Server) -> None:
    with guarded_server.client() as client:
        rights = ["+lock.acquire", "+lock.release", "+lock.extend", "+lock.info", "+subscribe"]
        client.execute_command("ACL", "SETUSER", "least", "on", ">secret", "~*", "&leasehold:*", "-@all", *rights)
    given = client_of(make, guarded_server, username="least", password="secret")
    locks = make(given, settings=Settings(slice=0.5))
    first = locks.acquire("x", ttl=60)
    assert first.extend(30)
    assert locks.info("x").fence == first.fence
    with pytest.raises(leasehold.Busy):
        locks.acquire("x", wait=3)
    assert first.release().in_time


def test_a_user_without_channels_waits_on_a_connection(make: Make, guarded_server: Server) -> None:
    locks = make(client_of(make, guarded_server, username="silent", password="secret"))
    first = locks.acquire("x")
    with pytest.raises(leasehold.Busy):
        locks.acquire("x", wait=1)
    eventually(lambda: guarded_server.waiters("x") == 0, "nobody waits")
    assert first.release() is Released.RELEASED


def test_a_server_without_memory_grants_nothing_and_releases_all_the_same(make: Make, own_server: Server) -> None:
    locks = make(own_server)
    lease = locks.acquire("held")
    with own_server.client() as client:
        client.config_set("maxmemory", "1")
    with pytest.raises(leasehold.OutOfMemory):
        locks.acquire("x", wait=30)
    assert lease.extend(20)
    assert lease.release() is Released.RELEASED


def test_a_replica_is_told_to_be_one_when_time_is_over(make: Make, own_server: Server) -> None:
    with own_server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    began = time.monotonic()
    with pytest.raises(leasehold.ReadOnly):
        make(own_server).acquire("x", wait=1)
    assert time.monotonic() - began < 3


def test_a_replica_that_is_promoted_in_time_grants(make: Make, own_server: Server) -> None:
    locks = make(own_server)
    locks.acquire("warm").release()
    with own_server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        got = []
        waiter = threading.Thread(target=lambda: got.append(locks.acquire("x", wait=60)))
        waiter.start()
        time.sleep(0.3)  # so that it meets the replica; it would be granted the lock sooner otherwise, and pass
        client.execute_command("REPLICAOF", "NO", "ONE")
        waiter.join(60)
        assert got[0].release().in_time


@pytest.mark.parametrize("tickets", [True, False])
def test_a_full_queue_is_told_at_the_deadline(make: Make, own_server: Server, tickets: bool) -> None:
    setting = "leasehold.max-tickets" if tickets else "leasehold.max-waiters-per-lock"
    with own_server.client() as client:
        client.config_set(setting, "1")
    locks, others = (
        by_tickets(make, own_server) if tickets else make(own_server, settings=Settings(tickets=False))
        for _ in range(2)
    )
    locks.acquire("x", ttl=60).detach()
    came = []

    def wait() -> None:
        try:
            others.acquire("x", wait=60)
        except leasehold.LeaseholdError as error:
            came.append(error)

    threading.Thread(target=wait, daemon=True).start()
    eventually(lambda: own_server.waiters("x") == 1, "one waits")
    began = time.monotonic()
    with pytest.raises(leasehold.QueueFull):
        locks.acquire("x", wait=1)
    assert time.monotonic() - began < 3


def test_a_key_that_is_no_lock_is_told(make: Make, server: Server, name: str) -> None:
    with server.client() as client:
        client.rpush(name, "a")
    with pytest.raises(leasehold.WrongType):
        make(server).acquire(name, wait=30)


def test_a_server_that_is_not_there_is_told_within_the_limit(make: Make) -> None:
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    locks = make(kind(port=1), settings=Settings(within=0.5))
    began = time.monotonic()
    with pytest.raises(leasehold.Unreachable):
        locks.try_acquire("x")
    with pytest.raises(leasehold.Unreachable):
        locks.acquire("x", wait=1)
    assert time.monotonic() - began < 5


def test_a_server_that_starts_in_time_grants(make: Make, own_server: Server) -> None:
    locks = make(own_server)
    own_server.kill()
    got = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire("x", wait=60)))
    waiter.start()
    own_server.start()
    waiter.join(60)
    assert got[0].release().in_time


def test_a_server_that_never_answers_is_told_within_the_limit(make: Make, own_server: Server) -> None:
    locks = make(own_server, settings=Settings(within=1))
    lease = locks.acquire("x", ttl=60)
    with own_server.paused():
        began = time.monotonic()
        with pytest.raises(leasehold.Unreachable):
            locks.try_acquire("y")
        with pytest.raises(leasehold.Unreachable):
            lease.release()
        assert time.monotonic() - began < 5
    # What was asked for arrives now, and each of it is given back.
    eventually(lambda: own_server.holder("y") is None and own_server.holder("x") is None, "both are free")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert own_server.holder("y") is None
        time.sleep(0.05)


def test_a_release_that_fails_does_not_mask_the_result(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    locks = leasehold.Leasehold(redis.Redis.from_url(own_server.url), Settings(within=0.5))
    began = time.monotonic()

    def work(_: leasehold.Lease) -> int:
        own_server.pause()
        return 17

    assert locks.lock("x", ttl=60).run(work) == 17
    assert time.monotonic() - began < 6
    assert "may be held until its lease ends" in caplog.text
    own_server.go_on()
    locks.close()
    eventually(lambda: own_server.holder("x") is None, "the release went on")


def test_work_that_raises_gives_the_lock_back(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        with pytest.raises(ZeroDivisionError), locks.lock(name):
            raise ZeroDivisionError
        assert server.holder(name) is None
        with pytest.raises(KeyboardInterrupt), locks.lock(name):
            raise KeyboardInterrupt
        assert server.holder(name) is None


def test_a_client_that_is_closed_while_the_server_is_silent_names_what_is_left(make: Make, own_server: Server) -> None:
    before = set(threading.enumerate())
    locks = make(own_server)
    locks.acquire("warm").release()
    lease = locks.acquire("x", ttl=60)
    with own_server.paused():
        began = time.monotonic()
        assert locks.close(1) == ["x"]
        assert time.monotonic() - began < 4
    assert lease.lost
    if make.style == "threads":  # type: ignore[attr-defined]
        eventually(lambda: set(threading.enumerate()) <= before, "its thread has ended", 5)


def test_close_names_what_the_server_refused_to_release(make: Make, guarded_server: Server) -> None:
    with guarded_server.client() as client:
        client.execute_command("ACL", "SETUSER", "keeper", "on", ">secret", "~*", "&*", "+@all", "-lock.release")
        client.execute_command("LOCK.ACQUIRE", "waited", "other", 60000)
    locks = make(client_of(make, guarded_server, username="keeper", password="secret"))
    released, held, short = (locks.acquire(name, ttl=ttl) for name, ttl in [("released", 60), ("held", 60), ("s", 0.5)])
    for lease in (released, short):
        with pytest.raises(leasehold.NotPermitted):
            lease.release()
    with pytest.raises(leasehold.Busy):
        locks.acquire("waited", ttl=60, wait=0.2)
    eventually(lambda: guarded_server.holder("s") is None, "the lease of the short one ends")
    # Whoever waits on a connection leaves nothing behind.
    waited = [] if make.style == "threads" else ["waited"]  # type: ignore[attr-defined]
    assert sorted(locks.close()) == ["held", "released", *waited]
    assert held.lost
