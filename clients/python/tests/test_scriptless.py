"""Servers without the module, for users who may not run scripts either."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
from conftest import Make, told
from leasehold import LockInfo, Loss, Released
from servers import Server, eventually, raw
from test_waiting import Waiter


@pytest.fixture
def locks(plain_server: Server, make: Make) -> Any:
    """Of a server that has SET IFEQ."""
    client = _client(plain_server, make)
    try:
        client.try_acquire("probe").release()
    except leasehold.NotPermitted:
        pytest.skip("this server has no SET IFEQ")
    return client


def _client(server: Server, make: Make) -> Any:
    raw(server, "ACL", "SETUSER", "least", "on", ">pw", "~*", "+@all", "-@scripting")
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    return make(kind(port=server.port, username="least", password="pw"))


def test_a_lock_is_taken_extended_looked_at_and_given_back(locks: Any, plain_server: Server, name: str) -> None:
    lease = locks.acquire(name, ttl=60)
    assert locks.try_acquire(name) is None
    assert lease.extend(30)
    assert 29_000 < raw(plain_server, "PTTL", name) <= 30_000
    info = locks.info(name)
    assert info == LockInfo(lease.owner, lease.fence, info.ttl, 1, 1, None)
    assert lease.release() is Released.RELEASED
    assert plain_server.holder(name) is None
    assert lease.release() is Released.RELEASED


def test_fences_grow_also_beside_those_of_scripts(locks: Any, plain_server: Server, make: Make, name: str) -> None:
    with_scripts = make(plain_server)
    fences = []
    for client in (locks, with_scripts, locks, locks, with_scripts):
        lease = client.acquire(name, ttl=60)
        fences.append(lease.fence)
        lease.release()
    assert fences == sorted(set(fences))
    raw(plain_server, "SET", f"{{{name}}}:fence", fences[-1] + 10**12)
    assert locks.acquire(name).fence == fences[-1] + 10**12 + 1


def test_both_kinds_of_users_exclude_each_other(locks: Any, plain_server: Server, make: Make, name: str) -> None:
    lease = make(plain_server).acquire(name, ttl=60, owner="me")
    assert locks.try_acquire(name) is None
    again = locks.try_acquire(name, ttl=90, owner="me")
    assert again.fence == lease.fence
    assert raw(plain_server, "PTTL", name) > 80_000
    waiter = Waiter(locks, name, wait=30)
    assert lease.release() is Released.RELEASED
    assert waiter.end().release() is Released.RELEASED


def test_a_grant_that_was_begun_is_gone_on_with_by_its_owner(locks: Any, plain_server: Server, name: str) -> None:
    raw(plain_server, "SET", name, "0000000000000000:me", "PX", 60_000)
    assert locks.try_acquire(name) is None
    lease = locks.try_acquire(name, owner="me")
    assert plain_server.holder(name) == b"%d:me" % lease.fence


def test_what_others_deleted_is_lost(locks: Any, plain_server: Server, name: str) -> None:
    lease = locks.acquire(name, ttl=0.6)
    raw(plain_server, "SET", name, "another")
    eventually(lambda: told(lease), "the renewal tells")
    assert lease.loss is Loss.TAKEN
    assert lease.release() is Released.LATE
    assert plain_server.holder(name) == b"another"


@pytest.mark.usefixtures("locks")
def test_a_lock_is_given_back_without_a_command_for_it(plain_server: Server, make: Make, name: str) -> None:
    its = next(each for each in ("delex", "delifeq") if raw(plain_server, "COMMAND", "INFO", each)[0])
    client = _client(plain_server, make)
    raw(plain_server, "ACL", "SETUSER", "least", f"-{its}")
    lease = client.acquire(name, ttl=60)
    assert lease.release() is Released.RELEASED
    eventually(lambda: plain_server.holder(name) is None, "its lease of a millisecond ends")


def test_several_locks_at_once_need_more(locks: Any) -> None:
    with pytest.raises(leasehold.NeedsModule, match="or the right to run scripts"):
        locks.several(["a", "b"]).acquire()


def test_a_server_that_has_none_of_it_says_what_is_missing(plain_server: Server, make: Make, name: str) -> None:
    if raw(plain_server, "INFO", "server").find(b"redis_version:7.0") < 0:
        pytest.skip("this server has SET IFEQ")
    with pytest.raises(leasehold.NotPermitted, match="eval"):
        _client(plain_server, make).acquire(name)
    assert plain_server.holder(name) is None
