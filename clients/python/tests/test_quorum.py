"""A lock on most of three servers that know nothing of each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator, Union

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Loss, Released
from servers import Server, eventually, raw

Quorum = Any


@pytest.fixture(params=["module", "one without"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[Server]]:
    servers = [Server(), Server(), Server(module=request.param == "module")]
    yield servers
    for server in servers:
        server.end()


@pytest.fixture
def quorum(make: Make) -> Any:
    def quorum_of(servers: list[Union[Server, str]], **options: Any) -> Any:
        kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
        clients = [
            kind(port=each.port) if isinstance(each, Server) else kind(unix_socket_path=each) for each in servers
        ]
        return make(clients, **options)

    return quorum_of


def fences(servers: list[Server], name: str) -> list[int]:
    return [int((server.holder(name) or b"0:").split(b":")[0]) for server in servers]


def test_one_fence_is_in_force_on_most_servers(servers: list[Server], quorum: Quorum, name: str) -> None:
    locks, others = quorum(servers), quorum(servers)
    last = 0
    for _ in range(3):
        lease = locks.acquire(name, ttl=10)
        assert lease.fence > last
        assert fences(servers, name).count(lease.fence) >= 2
        assert others.try_acquire(name) is None
        assert 9 < lease.valid_for() < 9.9
        assert lease.extend(20)
        assert lease.release() is Released.RELEASED
        eventually(lambda: fences(servers, name) == [0, 0, 0], "it is given back everywhere")
        last = lease.fence


def test_a_fence_that_most_have_not_raised_is_not_accepted(servers: list[Server], quorum: Quorum, name: str) -> None:
    for server in servers[:2]:
        raw(server, "ACL", "SETUSER", "default", "-lock.raise")
    with pytest.raises(leasehold.NotPermitted):
        quorum(servers).acquire(name, ttl=10, wait=1)
    eventually(lambda: fences(servers, name) == [0, 0, 0], "it is given back everywhere")


def test_a_minority_may_be_down_or_silent(servers: list[Server], quorum: Quorum, name: str) -> None:
    locks = quorum(servers)
    with servers[0].paused():
        began = time.monotonic()
        lease = locks.acquire(name, ttl=3, wait=20)
        assert time.monotonic() - began < 10
        end = lease._state.end
        eventually(lambda: lease._state.end > end, "it is renewed")
        assert lease.release() is Released.RELEASED
    eventually(lambda: fences(servers, name) == [0, 0, 0], "what it granted late is given back")
    servers[0].kill()
    lease = locks.acquire(name, ttl=3, wait=20)
    assert lease.release() is Released.RELEASED


def test_without_most_of_them_nothing_is_granted_and_what_is_held_is_lost(
    servers: list[Server], quorum: Quorum, name: str
) -> None:
    locks = quorum(servers)
    lease = locks.acquire(name, ttl=2)
    servers[0].kill()
    servers[1].kill()
    eventually(lambda: lease.lost, "it is lost")
    assert lease.loss is Loss.EXPIRED
    with pytest.raises(leasehold.Unreachable, match="1 of 3 servers"):
        locks.acquire(name, ttl=20, wait=3)
    eventually(lambda: servers[2].holder(name) is None, "nothing stays behind")


def test_a_lock_that_most_have_lost_is_lost(servers: list[Server], quorum: Quorum, name: str) -> None:
    lease = quorum(servers).acquire(name, ttl=2)
    for server in servers[:2]:
        raw(server, "DEL", name)
    eventually(lambda: lease.lost, "the renewal tells")
    assert lease.loss is Loss.TAKEN
    assert lease.release() is Released.LATE


def test_whoever_waits_has_it_in_the_end(servers: list[Server], quorum: Quorum, name: str) -> None:
    lease = quorum(servers).acquire(name, ttl=1, renew=False)
    after = quorum(servers).acquire(name, ttl=10, wait=30)
    assert after.fence > lease.fence
    after.release()


def test_one_server_does_not_count_twice(servers: list[Server], quorum: Quorum, name: str) -> None:
    with pytest.raises(leasehold.SettingError, match="lead to one server"):
        quorum([servers[0], servers[0], servers[1]]).acquire(name)
    with pytest.raises(leasehold.SettingError, match="exclusive locks of one name"):
        quorum(servers).read(name).acquire()


def test_an_address_that_leads_to_another_server_by_then_does_not_count_twice(
    servers: list[Server], quorum: Quorum, name: str, tmp_path: Path
) -> None:
    third = tmp_path / "third"
    third.symlink_to(servers[2].socket)
    locks = quorum([*servers[:2], str(third)])
    locks.acquire(name).release()
    third.unlink()
    third.symlink_to(servers[1].socket)
    servers[2].kill()
    with pytest.raises(leasehold.SettingError, match="lead to one server"):
        locks.acquire(name)
    eventually(lambda: fences(servers[:2], name) == [0, 0], "it is given back everywhere")
