"""One leader at a time, and who it is."""

from __future__ import annotations

import asyncio
import threading
from typing import Optional

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Leader
from servers import Server, eventually
from test_waiting import Waiter


def test_one_leads_until_it_resigns_and_then_the_next_one_does(make: Make, server: Server, name: str) -> None:
    locks = make(server)
    first, second = locks.election(name, "host-1"), locks.election(name, "host/2")
    assert first.leader() is None
    term = first.campaign()
    assert first.leader() == Leader("host-1", term.fence)

    class Candidate:
        @staticmethod
        def acquire(_: str) -> object:
            return second.campaign()

    campaign = Waiter(Candidate, name)
    eventually(lambda: server.waiters(name) == 1, "the second one waits")
    assert term.resign().in_time
    next_term = campaign.end()
    assert second.leader() == Leader("host/2", next_term.fence)
    assert next_term.fence > term.fence
    next_term.resign()


def test_who_observes_sees_each_leader_once(server: Server, name: str) -> None:
    async def program() -> list[Optional[str]]:
        seen: list[Optional[str]] = []
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:
            election = locks.election(name, "host-1", look_every=0.05)
            term: Optional[leasehold.asyncio.Leadership] = None
            async for leader in election.observe():
                seen.append(None if leader is None else leader.candidate)
                if len(seen) == 1:
                    term = await election.campaign()
                elif len(seen) == 2 and term is not None:
                    await term.resign()
                else:
                    break
        return seen

    assert asyncio.run(asyncio.wait_for(program(), 60)) == [None, "host-1", None]


def test_who_observes_from_a_thread_sees_the_same(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        election = locks.election(name, "host-1", look_every=0.05)
        leaders = election.observe()
        assert next(leaders) is None
        term = election.campaign()
        assert next(leaders) == Leader("host-1", term.fence)
        locks.close()
        assert next(leaders, None) is None


@pytest.mark.parametrize("events", ["KEd", "KEA"], ids=["module", "plain"])
def test_who_observes_is_told_where_there_are_key_events(
    make: Make, request: pytest.FixtureRequest, name: str, events: str
) -> None:
    own_server: Server = request.getfixturevalue("own_server" if events == "KEd" else "plain_server")
    with own_server.client() as client:
        client.config_set("notify-keyspace-events", events)
    locks = make(own_server)
    kind = leasehold.Leasehold if make.style == "threads" else None  # type: ignore[attr-defined]
    seen: list[Optional[Leader]] = []

    def observe() -> None:
        # A look by the clock would come after an hour.
        with leasehold.Leasehold(redis.Redis.from_url(own_server.url)) as others:
            for leader in others.election(name, "nobody", look_every=3600).observe():
                seen.append(leader)
                if len(seen) == 4:
                    return

    async def observe_here() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url)) as others:
            async for leader in others.election(name, "nobody", look_every=3600).observe():
                seen.append(leader)
                if len(seen) == 4:
                    return

    thread = threading.Thread(target=observe if kind else lambda: asyncio.run(observe_here()), daemon=True)
    thread.start()
    eventually(lambda: seen == [None], "nobody leads")
    term = locks.election(name, "host-1").campaign()
    eventually(lambda: seen[1:] == [Leader("host-1", term.fence)], "it is told who leads")
    own_server.kill_clients()
    eventually(lambda: own_server.holder(name) is not None and len(watchers(own_server)) == 1, "it listens again")
    term.resign()
    eventually(lambda: seen[2:] == [None], "it is told that nobody does")
    last = locks.election(name, "host-2").campaign()
    eventually(lambda: seen[3:] == [Leader("host-2", last.fence)], "and who does then")
    thread.join(10)
    last.resign()


def watchers(server: Server) -> list[str]:
    with server.client() as client:
        return [str(each) for each in client.pubsub_channels("__keyspace*")]


def test_who_observes_hears_of_the_end_of_the_client_where_there_are_key_events(own_server: Server, name: str) -> None:
    with own_server.client() as client:
        client.config_set("notify-keyspace-events", "KEd")

    async def program() -> None:
        locks = leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(own_server.url))
        leaders = locks.election(name, "host-1", look_every=3600).observe()
        assert await leaders.__anext__() is None
        following = asyncio.ensure_future(leaders.__anext__())
        while not locks._hub.asking.open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await locks.close() == []
        with pytest.raises(StopAsyncIteration):
            await following

    asyncio.run(asyncio.wait_for(program(), 60))
