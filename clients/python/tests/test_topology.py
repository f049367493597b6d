"""Clusters whose slots move, and sentinels that fail over."""

from __future__ import annotations

import threading
import time
from typing import Any, Iterator

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.crc import key_slot

import leasehold
from conftest import Make, told
from leasehold import Released, Settings
from servers import Cluster, Sentinels, Server, eventually, raw
from test_waiting import Waiter, by_tickets


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    sentinels = Sentinels()
    yield sentinels
    sentinels.end()


def of_cluster(make: Make, cluster: Cluster) -> Any:
    if make.style == "threads":  # type: ignore[attr-defined]
        return redis.RedisCluster(port=cluster.nodes[0].port, host="127.0.0.1")
    return redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)


def test_locks_of_all_slots_are_taken_where_they_are(make: Make, cluster: Cluster) -> None:
    locks = make(of_cluster(make, cluster))
    leases = [locks.acquire(f"all-{number}", ttl=60) for number in range(50)]
    counts = [len(node.client().keys("all-*")) for node in cluster.nodes]
    assert sum(counts) == 50
    assert all(counts)
    assert all(lease.release() is Released.RELEASED for lease in leases)


def test_a_node_that_is_cut_off_delays_no_lock_of_the_others(make: Make, cluster: Cluster) -> None:
    kind = redis.RedisCluster if make.style == "threads" else redis.asyncio.RedisCluster  # type: ignore[attr-defined]
    given = kind(host="127.0.0.1", port=cluster.nodes[1].port)
    locks = make(given, settings=Settings(response=0.8))
    # One in each third of the slots.
    names = {key_slot(name.encode()) // 5462: name for name in map(str, range(100))}
    cut_off, others = names[0], names[1]
    locks.acquire(cut_off).release()
    locks.acquire(others).release()
    took: list[float] = []
    with cluster.nodes[0].paused():
        waiting = threading.Thread(target=_fails, args=(locks, cut_off))
        waiting.start()
        # Shorter than the timeout of the cluster, which would be down then.
        end = time.monotonic() + 1.7
        while time.monotonic() < end:
            began = time.monotonic()
            locks.acquire(others).release()
            took.append(time.monotonic() - began)
            time.sleep(0.02)
        waiting.join(30)
    # Not until the node that is cut off has been silent for long enough.
    assert max(took) < 0.45, max(took)
    locks.acquire(cut_off, wait=20).release()


def _fails(locks: Any, name: str) -> None:
    with pytest.raises(leasehold.LeaseholdError):
        locks.acquire(name, wait=1.7)


def test_a_guarded_command_goes_to_the_node_of_its_lock(make: Make, cluster: Cluster) -> None:
    locks = make(of_cluster(make, cluster))
    locks.acquire("warm").release()
    for node in cluster.nodes:
        node.client().config_resetstat()
    tags = [f"guard-{number}" for number in range(12)]
    for tag in tags:
        lease = locks.acquire(f"{{{tag}}}:lock", ttl=60)
        assert lease.guard("SET", f"{{{tag}}}:page", "news") == b"OK"
        assert lease.release() is Released.RELEASED
    pages = [node.client().keys("{guard-*}:page") for node in cluster.nodes]
    assert sum(map(len, pages)) == len(tags)
    assert all(pages)
    for node in cluster.nodes:
        assert "errorstat_MOVED" not in node.client().info("errorstats")
        assert "cmdstat_command|getkeys" not in node.client().info("commandstats")


@pytest.mark.parametrize("tickets", [True, False])
def test_who_holds_and_who_waits_follow_a_slot_that_moves(
    make: Make, cluster: Cluster, name: str, tickets: bool
) -> None:
    key = f"moves-{name}"
    locks = make(of_cluster(make, cluster), settings=Settings(tickets=tickets))
    lease = locks.acquire(key, ttl=4)
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire(key, ttl=4, wait=60)), daemon=True)
    waiter.start()

    def waits() -> bool:
        return any(_waiters(node, key) == 1 for node in cluster.nodes)

    eventually(waits, "it waits")
    cluster.move(key_slot(key.encode()), key)
    eventually(waits, "it waits at the other node")
    assert lease.extend(4)
    assert lease.release() is Released.RELEASED
    waiter.join(60)
    assert got[0].fence > lease.fence
    assert got[0].release() is Released.RELEASED


def _waiters(node: Any, key: str) -> int:
    try:
        return int(node.waiters(key))
    except redis.ResponseError:
        return 0


def of_sentinels(make: Make, sentinels: Sentinels) -> Any:
    addresses = [("127.0.0.1", sentinels.port)]
    if make.style == "threads":  # type: ignore[attr-defined]
        return redis.sentinel.Sentinel(addresses).master_for("main")
    return redis.asyncio.sentinel.Sentinel(addresses).master_for("main")


def test_who_waits_and_who_asks_find_the_new_primary(make: Make, sentinels: Sentinels) -> None:
    locks = make(of_sentinels(make, sentinels))
    held = locks.acquire("held", ttl=60)
    free = locks.acquire("free", ttl=60)
    # Both have come to the replica, so the leases go on there.
    with sentinels.replica.client() as client:
        eventually(lambda: client.exists("held", "free") == 2, "the replica has heard of them")
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire("held", wait=90)), daemon=True)
    waiter.start()
    eventually(lambda: sentinels.primary.waiters("held") == 1, "it waits")
    sentinels.fail_over()
    assert locks.acquire("other", wait=60).release().in_time
    assert free.release() is Released.RELEASED
    assert held.release() is Released.RELEASED
    waiter.join(60)
    assert got[0].fence > held.fence
    got[0].release()


def test_a_lock_that_the_new_primary_has_not_heard_of_is_lost(make: Make, sentinels: Sentinels) -> None:
    locks = make(of_sentinels(make, sentinels))
    lease = locks.acquire("x", ttl=60)
    with sentinels.replica.client() as client:
        eventually(lambda: client.exists("x") == 1, "the replica has heard of it")
    sentinels.fail_over()
    with sentinels.replica.client() as client:
        client.delete("x")
    lease.extend(3)
    eventually(lambda: told(lease), "the loss is told")


def test_grants_are_told_of_by_the_server_that_the_address_leads_to(make: Make, own_server: Server, name: str) -> None:
    second = Server("--replicaof", "127.0.0.1", str(own_server.port))
    address = own_server.directory / "address"
    address.symlink_to(own_server.socket)
    try:
        eventually(lambda: raw(second, "ROLE")[3] == b"connected", "the replica is in sync")
        kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
        locks, others = by_tickets(make, kind(unix_socket_path=str(address))), make(second)
        held = locks.acquire("before", ttl=60)
        with pytest.raises(leasehold.Busy):
            locks.acquire(held.name, wait=0.5)
        eventually(lambda: raw(second, "EXISTS", "before") == 1, "it is replicated")
        address.unlink()
        address.symlink_to(second.socket)
        raw(second, "REPLICAOF", "NO", "ONE")
        raw(own_server, "REPLICAOF", "127.0.0.1", second.port)
        first = others.acquire(name, ttl=60)
        waiter = Waiter(locks, name, wait=60)
        eventually(lambda: second.waiters(name) == 1, "it waits there")
        eventually(lambda: raw(second, "PUBSUB", "CHANNELS", "leasehold:*"), "it hears of grants there")
        assert raw(own_server, "PUBSUB", "CHANNELS", "leasehold:*") == []
        assert first.release().in_time
        assert waiter.end().release().in_time
        assert held.release().in_time
    finally:
        second.end()
