"""Grants that replicas, or append-only files, have to acknowledge."""

from __future__ import annotations

from typing import Iterator

import pytest

import leasehold
from conftest import Make
from leasehold import Released, TooFewReplicas
from servers import Server, eventually, raw

Pair = tuple[Server, Server]


@pytest.fixture(params=["module", "plain"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary and its replica."""
    primary = Server("--repl-diskless-sync-delay", "0", module=request.param == "module")
    replica = Server("--replicaof", "127.0.0.1", str(primary.port), module=request.param == "module")
    with replica.client() as client:
        eventually(lambda: client.info("replication")["master_link_status"] == "up", "the replica is in sync")
    with primary.client() as client:
        eventually(lambda: client.info("replication")["slave0"]["state"] == "online", "the primary knows")
    yield primary, replica
    replica.end()
    primary.end()


def test_a_grant_is_on_the_replica_before_it_is_told(pair: Pair, make: Make, name: str) -> None:
    primary, replica = pair
    locks = make(primary)
    for _ in range(2):
        lease = locks.acquire(name, ttl=60, replicas=1, replicas_within=10)
        assert raw(replica, "GET", name) == primary.holder(name)
        assert lease.release() is Released.RELEASED


def test_a_lock_that_too_few_have_is_given_back(pair: Pair, make: Make, name: str) -> None:
    primary, _ = pair
    locks = make(primary)
    with pytest.raises(TooFewReplicas) as few:
        locks.acquire(name, ttl=60, replicas=2, replicas_within=3)
    assert (few.value.acknowledged, few.value.wanted, few.value.name) == (1, 2, name)
    eventually(lambda: primary.holder(name) is None, "it is given back")


def test_a_replica_that_is_silent_counts_for_nothing(pair: Pair, make: Make, name: str) -> None:
    primary, replica = pair
    locks = make(primary)
    others = locks.acquire(name + ".other", ttl=60)
    with replica.paused():
        with pytest.raises(TooFewReplicas, match="by 0 of 1 replicas"):
            locks.acquire(name, ttl=60, replicas=1, replicas_within=0.2)
        # Requests of others do not wait behind it.
        assert others.release() is Released.RELEASED
    eventually(lambda: primary.holder(name) is None, "it is given back")


def test_a_grant_may_have_to_be_on_the_disk(make: Make, name: str) -> None:
    durable = Server("--appendonly", "yes", "--appendfsync", "everysec")
    try:
        if not raw(durable, "COMMAND", "INFO", "WAITAOF")[0]:
            with pytest.raises(leasehold.Refused, match="unknown command"):
                make(durable).acquire(name, durable=True)
            pytest.skip("this server has no WAITAOF")
        lease = make(durable).acquire(name, ttl=60, durable=True, replicas_within=10)
        assert lease.release() is Released.RELEASED
        with pytest.raises(TooFewReplicas):
            make(durable).acquire(name, durable=True, replicas=1, replicas_within=0.05)
    finally:
        durable.end()


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "1"])
def test_a_number_of_replicas_is_an_integer(server: Server, make: Make, wrong: object) -> None:
    with pytest.raises(leasehold.SettingError, match="replicas: it must be an integer from 0 to 99999"):
        make(server).lock("x", replicas=wrong)
