"""One leader at a time, and who it is."""

from __future__ import annotations

import asyncio
from typing import List, Optional

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
    async def program() -> List[Optional[str]]:
        seen: List[Optional[str]] = []
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
