"""Servers without the module: the same keys, the same meaning, and polling instead of a queue."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
from conftest import Make, told
from leasehold import Loss, Released
from servers import Server, eventually, module_path
from test_waiting import Waiter


def test_a_lock_is_taken_extended_and_given_back(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    lease = locks.acquire("x", ttl=10)
    assert plain_server.holder("x") == b"%d:%s" % (lease.fence, lease.owner)
    assert locks.try_acquire("x") is None
    assert lease.extend(60)
    info = locks.info("x")
    assert (info.owner, info.fence, info.waiters) == (lease.owner, lease.fence, None)
    assert 50 < info.ttl <= 60
    assert lease.release() is Released.RELEASED
    second = locks.acquire("x")
    assert second.fence > lease.fence
    assert lease.release() is Released.RELEASED  # its own, remembered; and nothing of the second
    assert plain_server.holder("x") is not None
    second.release()


def test_who_waits_polls_until_its_deadline(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    first = locks.acquire("x", ttl=60)
    began = time.monotonic()
    with pytest.raises(leasehold.Busy):
        locks.acquire("x", wait=1)
    assert 0.9 < time.monotonic() - began < 3
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire("x", wait=60)))
    waiter.start()
    first.release()
    waiter.join(30)
    assert got[0].release().in_time


def test_it_is_renewed_and_its_loss_is_told(make: Make, plain_server: Server) -> None:
    lease = make(plain_server).acquire("x", ttl=1)
    end = time.monotonic() + 3
    eventually(lambda: time.monotonic() > end, "three times the ttl")
    assert not lease.lost
    with plain_server.client() as client:
        client.set("x", "somebody else", px=60000)
    eventually(lambda: told(lease), "the loss is told")
    assert lease.loss is Loss.TAKEN
    assert lease.release() is Released.LATE
    assert plain_server.holder("x") == b"somebody else"


def test_scripts_that_the_server_forgot_are_sent_again(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    for _ in range(2):
        lease = locks.acquire("x")
        with plain_server.client() as client:
            client.script_flush()
        assert lease.release() is Released.RELEASED


def test_several_holders_need_the_module(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    with pytest.raises(leasehold.NeedsModule):
        locks.read("x").acquire()
    with pytest.raises(leasehold.NeedsModule):
        locks.semaphore("x", 3).try_acquire()
    assert locks.semaphore("x", 1).try_acquire().release().in_time


def test_a_module_that_is_loaded_meanwhile_takes_over_the_lock(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    lease = locks.acquire("x", ttl=60)
    try:
        with plain_server.client() as client:
            client.execute_command("MODULE", "LOAD", module_path())
    except redis.ResponseError:
        pytest.skip("this server loads modules only as it starts")
    plain_server.kill_clients()
    later = make(plain_server)
    assert later.try_acquire("x") is None
    assert lease.release() is Released.RELEASED
    second = later.acquire("x")
    assert second.fence > lease.fence
    second.release()


def test_a_module_that_was_loaded_is_noticed_by_the_next_request(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    locks.acquire("x").release()
    try:
        with plain_server.client() as client:
            client.execute_command("MODULE", "LOAD", module_path())
            if not client.info("server")["redis_version"] >= "7":
                pytest.skip("scripts cannot find out on this server")
    except redis.ResponseError:
        pytest.skip("this server loads modules only as it starts")
    first, got = locks.acquire("x"), []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire("x", wait=60)))
    waiter.start()
    eventually(lambda: plain_server.waiters("x") == 1, "it waits in the queue")
    first.release()
    waiter.join(30)
    assert got[0].fence > first.fence
    got[0].release()
    third = make(plain_server).acquire("x")
    assert third.fence > got[0].fence
    third.release()


def test_readers_are_let_in_when_the_module_was_loaded(make: Make, plain_server: Server) -> None:
    locks = make(plain_server)
    with pytest.raises(leasehold.NeedsModule):
        locks.read("x").try_acquire()
    try:
        with plain_server.client() as client:
            client.execute_command("MODULE", "LOAD", module_path())
    except redis.ResponseError:
        pytest.skip("this server loads modules only as it starts")
    assert locks.read("x").try_acquire().release().in_time


def test_foreign_locks_are_respected(make: Make, plain_server: Server) -> None:
    with plain_server.client() as client:
        client.set("x", "uuid", nx=True, px=60000)
    locks = make(plain_server)
    assert locks.try_acquire("x") is None
    assert (locks.info("x").owner, locks.info("x").fence) == (b"uuid", 0)


def test_a_user_with_no_more_rights_than_locks_take_can_use_them(make: Make, plain_server: Server) -> None:
    with plain_server.client() as client:
        rights = ["+eval", "+evalsha", "+get", "+set", "+del", "+pttl", "+pexpire", "+time"]
        client.execute_command("ACL", "SETUSER", "least", "on", ">secret", "~*", "resetchannels", "-@all", *rights)
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    locks = make(kind(port=plain_server.port, username="least", password="secret"))
    lease = locks.acquire("x", ttl=60)
    assert lease.extend(30)
    assert locks.info("x").fence == lease.fence
    with pytest.raises(leasehold.Busy):
        locks.acquire("x", wait=0.3)
    assert lease.release().in_time


class Distant:
    """A server that is some way off: what is said takes its time in both directions. ``deaf`` to subscriptions: it
    hangs up on them."""

    def __init__(self, server: Server, delay: float, deaf: bool = False) -> None:
        self._server, self._delay, self._deaf = server, delay, deaf
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._server.port))
                for each in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=each, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._deaf and b"SUBSCRIBE" in data:
                    break
                time.sleep(self._delay)
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("with_module", [False, True], ids=["plain", "tickets nobody tells of"])
def test_a_wait_that_ends_while_its_last_question_is_on_the_way_was_busy(
    make: Make, server: Server, plain_server: Server, name: str, with_module: bool
) -> None:
    asked = server if with_module else plain_server
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    locks = make(kind(port=Distant(asked, 0.02, deaf=True).port))
    held = make(asked).acquire(name, ttl=60)
    locks.info(name)
    waiters = [Waiter(locks, name, wait=0.6 + number * 0.021) for number in range(12)]
    assert [type(waiter.end()) for waiter in waiters] == [leasehold.Busy] * 12
    assert held.release().in_time
