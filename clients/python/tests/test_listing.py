"""What servers know of locks: who holds them, who waits, and what went wrong."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import leasehold
from conftest import Make
from leasehold import LockInfo
from servers import Cluster, Server, eventually, raw


def test_holders_and_waiters_are_listed(server: Server, make: Make, name: str) -> None:
    locks = make(server, prefix="p:")
    assert locks.info(name) is None
    assert locks.holders(name) == locks.waiters(name) == []
    one, two = locks.read(name, ttl=60).acquire(), locks.read(name, ttl=60, owner="me").acquire()
    info = locks.info(name)
    assert info == LockInfo(one.owner, one.fence, info.ttl, 2, 0, 0)
    assert 50 < info.ttl <= 60
    holders = locks.holders(name)
    assert [(each.owner, each.fence, each.share) for each in holders] == [
        (one.owner, one.fence, 0),
        (b"me", two.fence, 0),
    ]
    assert 50 < holders[1].ttl <= 60
    assert [each.owner for each in locks.holders(name, count=1)] == [one.owner]
    request = locks.lock(name, ttl=60, wait=30, owner="waits")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(request.acquire)
        eventually(lambda: locks.waiters(name), "it waits")
        (waiter,) = locks.waiters(name)
        assert (waiter.owner, waiter.share, waiter.locks) == (b"waits", 1, 1)
        assert waiter.kind in ("block", "ticket")
        assert waiter.client > 0
        assert 0 <= waiter.waited < 30
        assert waiter.patience is None or 0 < waiter.patience <= 30
        one.release()
        two.release()
        waiting.result(60).release()


def test_what_was_contended_and_what_went_wrong_is_listed(own_server: Server, make: Make, name: str) -> None:
    locks = make(own_server)
    lease = locks.acquire(name, ttl=60)
    assert [locks.try_acquire(name), locks.try_acquire(name)] == [None, None]
    (contended,) = locks.top()
    assert (contended.name, contended.refused, contended.waits, contended.db) == (name.encode(), 2, 0, 0)
    assert (contended.wait_total, contended.wait_longest) == (0.0, 0.0)
    raw(own_server, "DEL", name)
    lease.release()
    (entry,) = locks.log(5)
    assert (entry.event, entry.name, entry.owner) == ("deleted", name.encode(), lease.owner)
    assert abs(entry.time - time.time()) < 60
    assert 0 < (entry.lasted or 0) <= 60


def test_each_node_of_a_cluster_has_lists_of_its_own(make: Make) -> None:
    cluster = Cluster()
    try:
        kind = "redis.asyncio" if make.style == "asyncio" else "redis"  # type: ignore[attr-defined]
        module = pytest.importorskip(kind)
        locks = make(module.RedisCluster.from_url(cluster.nodes[0].url))
        names = ["a", "b", "c"]  # each is on another node
        leases = [locks.acquire(each, ttl=60) for each in names]
        for each in names:
            assert locks.try_acquire(each) is None
        assert [[each.name for each in locks.top(node_of=name)] for name in names] == [[b"a"], [b"b"], [b"c"]]
        assert [each.release().in_time for each in leases] == [True] * 3
    finally:
        cluster.end()


def test_lists_need_the_module(plain_server: Server, make: Make, name: str) -> None:
    locks = make(plain_server)
    lease = locks.acquire(name, ttl=60)
    info = locks.info(name)
    assert info == LockInfo(lease.owner, lease.fence, info.ttl, 1, 1, None)
    for ask in (lambda: locks.holders(name), lambda: locks.waiters(name), locks.top, locks.log):
        with pytest.raises(leasehold.NeedsModule):
            ask()
