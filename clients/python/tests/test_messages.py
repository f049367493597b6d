"""The message is the grant: what it is worth, and what a message of no grant comes to."""

from __future__ import annotations

import contextlib
import time

import pytest

import leasehold
from conftest import Make
from leasehold import Loss, Released
from servers import Server, eventually, raw
from test_waiting import Waiter, by_tickets


def waiter_of(server: Server, name: str) -> bytes:
    """The owner of the only one that waits."""
    told = raw(server, "LOCK.WAITERS", name)[0]
    owner = told[told.index(b"owner") + 1] if isinstance(told, list) and b"owner" in told else told[0]
    assert isinstance(owner, bytes)
    return owner


def forge(server: Server, name: str) -> None:
    """Tells a client of a grant that there was not."""
    owner, (channel,) = waiter_of(server, name), raw(server, "PUBSUB", "CHANNELS", "leasehold:*")
    raw(server, "PUBLISH", channel, b"7 %d %b %b" % (len(owner), owner, name.encode()))


def asked(server: Server) -> int:
    with server.client() as client:
        return int(client.info("commandstats")["cmdstat_lock.acquire"]["calls"])


@pytest.mark.parametrize("confirm", [False, True])
def test_a_grant_that_was_waited_for_takes_one_request_and_one_more_to_be_confirmed(
    make: Make, own_server: Server, name: str, confirm: bool
) -> None:
    locks, others = by_tickets(make, own_server, confirm=confirm), make(own_server)
    warm = others.acquire("warm", ttl=60)
    with pytest.raises(leasehold.Busy):
        locks.acquire(warm.name, wait=1)
    first = others.acquire(name, ttl=60)
    before = asked(own_server)
    waiter = Waiter(locks, name, wait=60)
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    first.release()
    lease = waiter.end()
    assert asked(own_server) - before == 1 + confirm
    assert 10 < lease.valid_for() < (31 if confirm else 15)
    # The claim is the first renewal.
    assert lease.guard("SET", "page", "news") == b"OK"
    assert lease.release() is Released.RELEASED


def test_a_message_of_no_grant_is_found_out_by_whatever_the_holder_asks(
    make: Make, own_server: Server, name: str
) -> None:
    locks, others = by_tickets(make, own_server), make(own_server)
    held = others.acquire(name, ttl=60)
    for ask in (lambda lease: lease.guard("SET", "page", "late"), lambda lease: lease.extend()):
        waiter = Waiter(locks, name, wait=60)
        eventually(lambda: own_server.waiters(name) == 1, "it waits")
        forge(own_server, name)
        lease = waiter.end()
        with contextlib.suppress(leasehold.LockLost):
            assert ask(lease) is False
        assert lease.loss is Loss.TAKEN
        assert lease.release() is Released.LATE
        eventually(lambda: own_server.waiters(name) == 0, "its place is given up")
    assert not held.lost
    assert own_server.holder("page") is None


@pytest.mark.parametrize("settings", [{"confirm": True}, {"slice": 0.5}], ids=["confirmed", "may have lapsed"])
def test_a_message_is_only_a_reason_to_ask(make: Make, own_server: Server, name: str, settings: dict) -> None:
    """Where it is to be confirmed, and where an earlier grant may have been lost before the last answer."""
    locks, others = by_tickets(make, own_server, **settings), make(own_server)
    held = others.acquire(name, ttl=60)
    before = asked(own_server)
    waiter = Waiter(locks, name, ttl=0.3, wait=60)
    eventually(lambda: asked(own_server) > before + 8 or "confirm" in settings, "it has asked several times")
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        if own_server.waiters(name) == 1:
            forge(own_server, name)
        assert not waiter.came
        time.sleep(0.02)
    held.release()
    assert waiter.end().release() is Released.RELEASED
