"""Locks that end with their program, or with its connection."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import leasehold
from conftest import Make, told
from leasehold import Loss, Released
from servers import Server, eventually, raw

HOLDER = """
import sys, time, redis, leasehold
lease = leasehold.Leasehold(redis.Redis.from_url(sys.argv[1])).acquire(sys.argv[2], ttl=60, ephemeral=0)
print(lease.fence, flush=True)
time.sleep(60)
"""


def test_a_killed_program_leaves_the_lock_to_the_next_at_once(server: Server, make: Make, name: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, server.url, name], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    first = int(holder.stdout.readline())
    request = make(server).lock(name, ttl=60, wait=60)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(request.acquire)
        eventually(lambda: server.waiters(name) == 1, "it waits")
        killed = time.monotonic()
        os.kill(holder.pid, signal.SIGKILL)
        lease = waiting.result(60)
        took = time.monotonic() - killed
    holder.wait()
    assert lease.fence > first
    assert took < 5, "not by the ttl"
    lease.release()


def bound(server: Server) -> bytes:
    """The connection on which the last request for an ephemeral hold came."""
    clients = raw(server, "CLIENT", "LIST").decode().splitlines()
    fields = [dict(field.split("=", 1) for field in line.split()) for line in clients]
    # The one for requests knows other commands, and that of threads was used before.
    its = [each for each in fields if each["cmd"].startswith("lock.acquire")]
    return max([each["id"].encode() for each in its], key=int, default=b"")


def test_a_connection_that_is_lost_is_replaced_within_the_grace(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    lease = locks.acquire(name, ttl=60, ephemeral=10)
    first = bound(server)
    raw(server, "CLIENT", "KILL", "ID", first)
    eventually(lambda: bound(server) not in (b"", first), "it is asked for on another one")
    eventually(lambda: lease.valid_for() > 50, "it is whole again")
    assert raw(server, "PTTL", name) > 50_000
    assert int((server.holder(name) or b"").split(b":")[0]) == lease.fence
    # That one counts: its end is the end of the lock, too.
    raw(server, "CLIENT", "KILL", "ID", bound(server))
    eventually(lambda: lease.valid_for() > 50, "once more")
    assert lease.release() is Released.RELEASED
    assert server.holder(name) is None


def test_without_grace_it_is_lost_with_the_connection(server: Server, make: Make, name: str) -> None:
    lease = make(server).acquire(name, ttl=60, ephemeral=0)
    raw(server, "CLIENT", "KILL", "ID", bound(server))
    eventually(lambda: told(lease), "it is told")
    assert lease.loss is Loss.EXPIRED
    assert server.holder(name) is None


def test_one_that_was_waited_for_is_bound_as_well(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    first = locks.acquire(name, ttl=60)
    request = locks.lock(name, ttl=60, wait=60, ephemeral=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(request.acquire)
        eventually(lambda: server.waiters(name) == 1, "it waits")
        first.release()
        lease = waiting.result(60)
    raw(server, "CLIENT", "KILL", "ID", bound(server))
    eventually(lambda: told(lease), "it is told")
    assert server.holder(name) is None


def test_other_leases_share_the_connection_and_outlive_it(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    other, one, two = (
        locks.acquire(name),
        locks.acquire(name + "1", ephemeral=0),
        locks.acquire(name + "2", ephemeral=0),
    )
    raw(server, "CLIENT", "KILL", "ID", bound(server))
    eventually(lambda: told(one) and told(two), "both are told")
    assert not other.lost
    other.release()


def test_it_needs_the_module(plain_server: Server, make: Make, name: str) -> None:
    with pytest.raises(leasehold.NeedsModule, match="ephemeral holds"):
        make(plain_server).acquire(name, ephemeral=1)
    with pytest.raises(leasehold.SettingError, match="ephemeral: it must be from 0 to 3153600000 seconds"):
        make(plain_server).acquire(name, ephemeral=-1)
