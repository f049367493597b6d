"""What a program is told of each step of its locks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import leasehold
from conftest import Make
from leasehold import Event, Settings
from servers import Server, eventually, raw


def steps(events: list[Event]) -> list[str]:
    return [event.step for event in events]


def test_each_step_is_told_with_the_lock_its_owner_and_its_fence(server: Server, make: Make, name: str) -> None:
    first = make(server).acquire(name, ttl=60)
    events: list[Event] = []
    locks = make(server, settings=Settings(on_event=events.append))
    assert locks.try_acquire(name) is None
    assert steps(events) == ["asked", "refused"]
    events.clear()
    request = locks.lock(name, ttl=0.6, wait=60, owner="me")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(request.acquire)
        eventually(lambda: steps(events) == ["asked", "queued"], "it waits")
        first.release()
        lease = waiting.result(60)
    eventually(lambda: "renewed" in steps(events), "it is renewed")
    lease.release()
    assert steps(events)[:3] == ["asked", "queued", "granted"]
    assert steps(events)[-1] == "released"
    assert {(event.name, event.owner) for event in events} == {(name, b"me")}
    assert [event.fence for event in events] == [0, 0] + [lease.fence] * (len(events) - 2)
    asked, queued, granted = events[:3]
    assert 0 <= asked.seconds <= queued.seconds <= granted.seconds < 60
    renewed = next(event for event in events if event.step == "renewed")
    assert 0 < renewed.seconds <= 0.6
    assert events[-1].seconds > 0


def test_a_loss_is_told_and_the_release_after_it_is_none(server: Server, make: Make, name: str) -> None:
    events: list[Event] = []
    locks = make(server, settings=Settings(on_event=events.append))
    lease = locks.acquire(name, ttl=0.5)
    raw(server, "DEL", name)
    eventually(lambda: "lost" in steps(events), "it is told")
    lease.release()
    assert steps(events) == ["asked", "granted", "lost"]


def test_what_the_listener_raises_hurts_nobody(plain_server: Server, make: Make, name: str) -> None:
    def fail(event: Event) -> None:
        raise ValueError(event)

    locks = make(plain_server, settings=Settings(on_event=fail))
    with pytest.raises(leasehold.Busy):
        holder = locks.acquire(name, ttl=60)
        locks.acquire(name, wait=0.1)
    assert holder.release().in_time
