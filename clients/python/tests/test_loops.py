"""Loops other than asyncio's own, and programs whose main thread has returned."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import redis.asyncio

import leasehold
import leasehold.asyncio
from leasehold import Settings
from servers import Server
from test_ending import connections, in_thread

uvloop = pytest.importorskip("uvloop")
STARTS_NO_THREAD = sys.version_info[:2] == (3, 12)
"""When the main thread has returned."""

BY = pytest.mark.parametrize("tickets", [True, False], ids=["tickets", "connections"])


@BY
def test_uvloop_waits_is_granted_and_closes_all_connections(own_server: Server, name: str, tickets: bool) -> None:
    async def program() -> None:
        given = redis.asyncio.Redis.from_url(own_server.url)
        locks = leasehold.asyncio.Leasehold(given, Settings(tickets=tickets))
        lease = await locks.acquire(name)
        with pytest.raises(leasehold.Busy):
            await locks.acquire(name, wait=0.2)
        waiting = asyncio.ensure_future(locks.acquire(name, wait=30))
        await in_thread(lambda: own_server.waiters(name) == 1, "it waits")
        await lease.release()
        assert (await (await waiting).release()).in_time
        assert await locks.close() == []
        await in_thread(lambda: connections(own_server) == 0, "no connection is left", 5)

    loop = uvloop.new_event_loop()
    loop.run_until_complete(asyncio.wait_for(program(), 60))
    loop.close()


INSTALLED = """
import sys, uvloop, redis, leasehold
uvloop.install()
locks = leasehold.Leasehold(redis.Redis.from_url(sys.argv[1]))
locks.acquire(sys.argv[2]).release()
print(locks.close())
"""


def test_threads_do_not_mind_that_uvloop_is_installed(server: Server, name: str) -> None:
    assert printed(INSTALLED, server, name) == "[]\n"


LATE = """
import sys, threading, time, concurrent.futures.thread, redis, leasehold
url, name = sys.argv[1:3]

def work():
    while not concurrent.futures.thread._shutdown:  # the main thread has returned
        time.sleep(0.01)
    locks = leasehold.Leasehold(redis.Redis.from_url(url), leasehold.Settings(within=2))
    lease = locks.acquire(name, ttl=1, wait=5)
    with redis.Redis.from_url(url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    time.sleep(1.5)
    print(lease.lost, lease.release().name, locks.close())

threading.Thread(target=work).start()
"""

LATE_COROUTINE = """
import asyncio, sys, threading, time, concurrent.futures.thread, redis.asyncio, leasehold.asyncio
url, name = sys.argv[1:3]

async def program():
    async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(url), wait=5) as locks:
        print(False, (await (await locks.acquire(name)).release()).name, await locks.close())

def work():
    while not concurrent.futures.thread._shutdown:
        time.sleep(0.01)
    asyncio.run(program())

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(LATE, id="threads", marks=pytest.mark.skipif(STARTS_NO_THREAD, reason="Python 3.12 starts none")),
        pytest.param(LATE_COROUTINE, id="asyncio"),
    ],
)
def test_a_worker_connects_to_a_name_when_the_main_thread_has_returned(server: Server, name: str, program: str) -> None:
    assert printed(program, server, name) == "False RELEASED []\n"


AT_EXIT = """
import atexit, sys, redis
{first}
def at_exit():
    try:
        with leasehold.Leasehold(redis.Redis.from_url(sys.argv[1]), wait=5) as locks:
            locks.acquire(sys.argv[2]).release()
    except leasehold.LeaseholdError as error:
        print(error)

atexit.register(at_exit)
{second}
"""


@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_client_that_is_first_used_when_the_program_ends(server: Server, name: str, imported: str) -> None:
    lines = ["import leasehold", ""] if imported == "before" else ["", "import leasehold"]
    printed(AT_EXIT.format(first=lines[0], second=lines[1]), server, name)
    assert server.holder(name) is None


def printed(program: str, server: Server, name: str) -> str:
    words = [sys.executable, "-c", program, server.url.replace("127.0.0.1", "localhost"), name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout
