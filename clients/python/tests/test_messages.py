"""The message is the grant: what it is worth, and what a message of no grant comes to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Loss, Released
from leasehold._lines import Line, Subscription
from leasehold._resp import pack
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


def hub_of(locks: Any) -> Any:
    return locks._run().hub if isinstance(locks, leasehold.Leasehold) else locks._hub


def test_a_message_of_a_grant_that_lapsed_while_nothing_was_answered_is_only_a_reason_to_ask(
    make: Make, own_server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, others = by_tickets(make, own_server), make(own_server)
    warm, held = others.acquire("warm", ttl=60), others.acquire(name, ttl=60)
    with pytest.raises(leasehold.Busy):
        locks.acquire(warm.name, wait=0.5)
    hub, late = hub_of(locks), []
    subscription = hub.asking.routes.known(b"").subscription.now
    subscription.data_received = late.append
    with monkeypatch.context() as silent:
        silent.setattr(Line, "data_received", lambda *_: None)
        waiter = Waiter(locks, name, ttl=1, wait=60)
        eventually(lambda: own_server.waiters(name) == 1, "it waits")
        before = len(late)
        # Nothing is answered to the other client either.
        raw(own_server, "LOCK.RELEASE", name, held.owner)
        eventually(lambda: len(late) > before, "it is granted")
        eventually(lambda: own_server.holder(name) is None, "the grant lapses")
        assert raw(own_server, "LOCK.ACQUIRE", name, "another", 60000)
        # Whatever was asked for before has come to its end.
        time.sleep(2)
    eventually(lambda: own_server.waiters(name) == 1, "it waits again")
    time.sleep(0.2)
    del subscription.data_received
    hub.loop.call_soon_threadsafe(subscription.data_received, b"".join(late))
    time.sleep(0.3)
    assert not waiter.came
    raw(own_server, "LOCK.RELEASE", name, "another")
    assert waiter.end().release() is Released.RELEASED


class Slow:
    """A transport that keeps what is written until it is told to go on."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.kept: list[bytes] = []
        self.write = self.kept.append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def go_on(self) -> None:
        kept, self.write = list(self.kept), self._transport.write
        for data in kept:
            self._transport.write(data)


def test_a_request_for_a_place_that_comes_after_the_release_leaves_no_grant(
    make: Make, own_server: Server, name: str
) -> None:
    locks, others = by_tickets(make, own_server, slice=0.5), make(own_server)
    held = others.acquire(name, ttl=60)
    waiter = Waiter(locks, name, wait=60)
    eventually(lambda: own_server.waiters(name) == 1, "it waits")
    hub = hub_of(locks)
    line = hub.asking.routes.known(name.encode()).line.now
    eventually(lambda: not line._waiting, "nothing is under way")
    slow = line._transport = Slow(line._transport)
    eventually(lambda: slow.kept, "its place is asked for again")
    held.release()
    assert waiter.end().release() is Released.RELEASED
    before = asked(own_server)
    hub.loop.call_soon_threadsafe(slow.go_on)
    eventually(lambda: asked(own_server) > before, "the request comes")
    eventually(lambda: own_server.holder(name) is None, "nobody has it", 5)


def test_a_lease_that_is_not_renewed_lasts_for_its_ttl(make: Make, own_server: Server, name: str) -> None:
    locks, others = by_tickets(make, own_server), make(own_server)
    for options in ({"renew": False}, {}):
        held = others.acquire(name, ttl=60)
        waiter = Waiter(locks, name, ttl=60, wait=60, **options)
        eventually(lambda: own_server.waiters(name) == 1, "it waits")
        held.release()
        lease = waiter.end()
        assert lease.valid_for() > 50 or not options
        lease.detach()
        eventually(lambda: raw(own_server, "PTTL", name) > 50000, "all of it is claimed", 5)
        raw(own_server, "LOCK.RELEASE", name, lease.owner)


def test_a_grant_that_was_over_when_it_was_heard_of_is_none(own_server: Server, name: str) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url)) as locks:
            warm = await locks.acquire("warm")
            with pytest.raises(leasehold.Busy):
                await locks.acquire("warm", wait=0.5)
            waiting = asyncio.ensure_future(locks.acquire(name, ttl=0.3))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # As a process that was stopped for as long.
            time.sleep(0.5)
            lease = await waiting
            assert lease.valid_for() > 0
            await lease.release()
            await warm.release()

    asyncio.run(asyncio.wait_for(program(), 60))


def test_messages_are_heard_however_they_are_cut() -> None:
    class Told:
        def __init__(self) -> None:
            self.fences: list[int] = []
            self.told = self.fences.append

        def deaf(self) -> None: ...

    async def program() -> None:
        silent = await asyncio.start_server(lambda _reader, _writer: asyncio.sleep(5), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*silent.sockets[0].getsockname())
        subscription, told = Subscription(writer), Told()
        subscription.listeners[b"al\r\nice", b"printer"] = told
        parts = [b"message", subscription.channel, b"7 7 al\r\nice printer"]
        one = pack(parts)
        for count in (1, 2, 3):
            for cut in range(len(one) * count):
                told.fences.clear()
                subscription.data_received((one * count)[:cut])
                subscription.data_received((one * count)[cut:])
                assert told.fences == [7] * count
        subscription.close()
        silent.close()

    asyncio.run(program())


def test_a_wait_that_nobody_answers_does_not_say_that_others_hold_the_lock(own_server: Server, name: str) -> None:
    """Not even if it ends before an answer is overdue."""

    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url)) as locks:
            async with locks.lock("warm"):
                with pytest.raises(leasehold.Busy):
                    await locks.acquire("warm", wait=0.5)
            with own_server.paused(), pytest.raises(leasehold.Unreachable):
                await locks.acquire(name, wait=0.3)
            async with locks.lock(name, wait=60) as lease:
                assert not lease.lost

    asyncio.run(asyncio.wait_for(program(), 60))
