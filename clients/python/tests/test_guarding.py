"""Commands that the server runs for the holder of a lock, and for nobody else."""

from __future__ import annotations

import time

import pytest

import leasehold
from conftest import Make
from leasehold import Loss, Settings
from servers import Server


def test_the_holder_writes_and_whoever_has_lost_the_lock_does_not(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name, ttl=60)
    assert lease.guard("SET", "page", b"\xff") == b"OK"
    assert lease.guard("GET", "page") == b"\xff"
    assert lease.guard("GET", "nothing") is None
    with pytest.raises(leasehold.WrongType):
        lease.guard("INCR", lease.guard("RPUSH", "list", 1) and "list")
    assert not lease.lost
    with server.client() as client:
        client.delete(name)
    with pytest.raises(leasehold.LockLost):
        lease.guard("SET", "page", "late")
    assert server.holder("page") == b"\xff"
    assert lease.loss is Loss.TAKEN


def test_a_guarded_command_that_is_not_known_says_nothing_of_the_module(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    lease = locks.acquire(name)
    with pytest.raises(leasehold.Refused) as refused:
        lease.guard("NOSUCH", "page")
    assert not isinstance(refused.value, leasehold.NeedsModule)
    # The lock, and those that several hold, are asked for in the words of the module as before.
    assert lease.guard("SET", "page", 1.5) == b"OK"
    assert locks.semaphore(name + ".pool", 2).try_acquire().release().in_time


def test_an_argument_that_is_no_word_is_told_as_such(make: Make, server: Server, name: str) -> None:
    lease = make(server).acquire(name)
    for wrong in (None, {}, True):
        with pytest.raises(leasehold.SettingError):
            lease.guard("SET", "page", wrong)
    assert lease.release().in_time


def test_a_command_that_nobody_answers_is_not_sent_again(make: Make, own_server: Server, name: str) -> None:
    lease = make(own_server, settings=Settings(within=10)).acquire(name, ttl=60)
    with own_server.paused():
        began = time.monotonic()
        with pytest.raises(leasehold.Unanswered):
            lease.guard("INCR", "count")
        assert time.monotonic() - began < 8
    assert lease.release().in_time
    assert own_server.holder("count") in (None, b"1")


def test_it_needs_the_module(make: Make, plain_server: Server, name: str) -> None:
    lease = make(plain_server).acquire(name)
    with pytest.raises(leasehold.NeedsModule):
        lease.guard("SET", "page", "x")
    lease.release()
