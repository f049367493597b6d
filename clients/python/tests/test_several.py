"""Several locks by one grant: all of them or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest

import leasehold
from conftest import Make, told
from leasehold import Loss, Released
from servers import Server, eventually, raw


@pytest.fixture(params=["module", "plain"])
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With the module and without it."""
    server = Server(module=request.param == "module")
    yield server
    server.end()


def fences(server: Server, *keys: str) -> Any:
    return [int((server.holder(key) or b"0:").split(b":")[0]) for key in keys]


def test_all_are_granted_by_one_fence_or_none(either: Server, make: Make) -> None:
    locks, others = make(either, prefix="p:"), make(either, prefix="p:")
    with_both = locks.several(["a", b"b"], ttl=60).acquire()
    assert with_both.name == "a, b"
    assert fences(either, "p:a", "p:b") == [with_both.fence] * 2
    assert others.several(["c", "b"]).try_acquire() is None
    assert either.holder("p:c") is None
    assert with_both.extend(30)
    assert 29_000 < raw(either, "PTTL", "p:b") <= 30_000
    assert with_both.release() is Released.RELEASED
    after = others.several(["c", "b"]).try_acquire()
    assert after.fence > with_both.fence
    after.release()
    assert fences(either, "p:a", "p:b", "p:c") == [0, 0, 0]


def test_it_is_lost_if_one_of_them_is(either: Server, make: Make) -> None:
    locks = make(either)
    lease = locks.several(["a", "b"], ttl=0.6).acquire()
    raw(either, "DEL", "b")
    eventually(lambda: told(lease), "the renewal tells")
    assert lease.loss is Loss.TAKEN
    assert lease.release() is Released.LATE
    assert either.holder("a") is None


def test_one_that_was_deleted_is_a_late_release(either: Server, make: Make) -> None:
    lease = make(either).several(["a", "b"], ttl=60).acquire()
    raw(either, "DEL", "b")
    assert lease.release() is Released.LATE
    assert either.holder("a") is None


def test_whoever_waits_for_several_holds_none_of_them(server: Server, make: Make) -> None:
    one = make(server).acquire("a", ttl=60)
    request = make(server).several(["a", "b"], ttl=60, wait=60)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(request.acquire)
        eventually(lambda: server.waiters("a") and server.waiters("b"), "it is in both queues")
        assert server.holder("b") is None
        assert one.release() is Released.RELEASED
        lease = waiting.result(60)
    assert fences(server, "a", "b") == [lease.fence] * 2
    assert lease.release() is Released.RELEASED


def test_a_wait_for_several_that_ends_leaves_nothing_behind(server: Server, make: Make) -> None:
    one = make(server).acquire("a", ttl=60)
    with pytest.raises(leasehold.Busy, match="'a, b'"):
        make(server).several(["a", "b"], wait=0.2).acquire()
    eventually(lambda: not server.waiters("a") and not server.waiters("b"), "it has left both queues")
    one.release()


def test_what_was_detached_together_is_adopted_together(either: Server, make: Make) -> None:
    locks = make(either, prefix="p:")
    detached = locks.several(["a", "b"], ttl=60).acquire().detach()
    lease = make(either, prefix="p:").adopt(str(detached))
    assert lease.name == "a, b"
    assert lease.release() is Released.RELEASED
    assert fences(either, "p:a", "p:b") == [0, 0]


def test_names_have_to_differ(server: Server, make: Make) -> None:
    for wrong in (["a", "a"], [str(number) for number in range(130)]):
        with pytest.raises(leasehold.SettingError, match="names: they must be different, and at most 129"):
            make(server).several(wrong)
    for wrong in ([], "ab"):
        with pytest.raises(leasehold.SettingError, match="names: they must be a list of at least one name"):
            make(server).several(wrong)
