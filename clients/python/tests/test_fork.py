"""A child process holds nothing of its parent's, disturbs nothing of it, and can begin anew."""

from __future__ import annotations

import os
import signal
import threading
from typing import Callable

import pytest
import redis

import leasehold
from leasehold import Loss, Released, Settings, Unreachable
from leasehold.testing import MemoryLocks
from servers import Server, eventually

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_does_not_hold_the_lock_of_its_parent(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        lease = locks.acquire(name, ttl=2)

        def child() -> bool:
            is_lost = lease.lost and lease.loss is Loss.FORKED and lease.valid_for() == 0
            return is_lost and lease.release() is Released.LATE and not lease.extend(60)

        assert exit_code(in_child(child)) == 0
        assert server.holder(name) is not None
        assert not lease.lost
        assert lease.release() is Released.RELEASED


def test_a_child_can_use_the_client_of_its_parent(server: Server, name: str) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:
        lease = locks.acquire(name)

        def child() -> bool:
            with locks.lock(name + ".child") as mine:
                return locks.try_acquire(name) is None and not mine.lost

        assert exit_code(in_child(child)) == 0
        with locks.lock(name + ".parent"):
            pass
        assert lease.release() is Released.RELEASED


def test_a_child_that_lives_on_keeps_no_wait_of_its_parent_in_the_queue(server: Server, name: str) -> None:
    """A closed connection is closed for the server, too, although a child had inherited it."""

    given = redis.Redis.from_url(server.url)
    with leasehold.Leasehold(given, leasehold.Settings(tickets=False)) as locks:
        first = locks.acquire(name)
        waiting = threading.Thread(target=lambda: pytest.raises(leasehold.Busy, locks.acquire, name, wait=3))
        waiting.start()
        eventually(lambda: server.waiters(name) == 1, "it waits")
        reading, writing = os.pipe()

        def child() -> bool:
            os.close(writing)
            return os.read(reading, 1) == b""

        pid = in_child(child)
        waiting.join(30)
        eventually(lambda: server.waiters(name) == 0, "nobody waits")
        os.close(writing)
        os.close(reading)
        assert exit_code(pid) == 0
        assert first.release().in_time


def test_a_child_has_no_locks_in_memory_and_does_not_wait_for_them() -> None:
    def child() -> bool:
        signal.alarm(20)
        with pytest.raises(Unreachable):
            locks.try_acquire("printer")
        return True

    with MemoryLocks(Settings(within=0.1)) as locks, locks.lock("printer"):
        assert exit_code(in_child(child)) == 0
