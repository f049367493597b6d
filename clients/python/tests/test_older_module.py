"""A module from before tickets and shares. Older ones are not built here: a proxy in front of a real server answers
as they do to options that they do not know, and lets everything else through."""

from __future__ import annotations

import socket
import threading
from typing import BinaryIO, Iterator

import pytest
import redis
import redis.asyncio

import leasehold
from conftest import Make
from servers import Server, eventually


class OlderModule:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server.port)) as server:
            # A wait must end on the server when its client closes the connection, so both ends are watched.
            answers = threading.Thread(target=self._pass_answers, args=(server, client), daemon=True)
            answers.start()
            asked = client.makefile("rb")
            try:
                while True:
                    request = read_request(asked)
                    is_known = b"TICKET" not in request and b"SHARE" not in request
                    if is_known or request[0] != b"LOCK.ACQUIRE":
                        server.sendall(packed(request))
                    else:
                        self.refused += 1
                        # By way of the server, so that answers keep their order.
                        server.sendall(packed([b"LOCK.ACQUIRE", request[1], b"o", b"1", b"unknown", b"option"]))
            except (OSError, EOFError):
                server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _pass_answers(server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def end(self) -> None:
        self._listener.close()


def read_request(asked: BinaryIO) -> list[bytes]:
    head = asked.readline()
    if not head:
        raise EOFError
    words = []
    for _ in range(int(head[1:])):
        length = int(asked.readline()[1:])
        words.append(asked.read(length + 2)[:-2])
    return words


def packed(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@pytest.fixture
def older(server: Server) -> Iterator[OlderModule]:
    proxy = OlderModule(server)
    yield proxy
    proxy.end()


def test_who_waits_at_an_older_module_waits_on_a_connection(
    make: Make, server: Server, older: OlderModule, name: str
) -> None:
    kind = redis.Redis if make.style == "threads" else redis.asyncio.Redis  # type: ignore[attr-defined]
    locks = make(kind(port=older.port))
    first = locks.acquire(name, ttl=60)
    with pytest.raises(leasehold.Busy):
        locks.acquire(name, wait=1)
    # Threads wait on connections before they take tickets.
    refused = 0 if make.style == "threads" else 1  # type: ignore[attr-defined]
    assert older.refused == refused
    eventually(lambda: server.waiters(name) == 0, "nobody waits")
    got = []
    waiter = threading.Thread(target=lambda: got.append(locks.acquire(name, wait=60)))
    waiter.start()
    eventually(lambda: server.waiters(name) == 1, "it waits")
    first.release()
    waiter.join(30)
    assert got[0].release().in_time
    assert older.refused == refused
    with pytest.raises(leasehold.NeedsModule):
        locks.read(name).acquire()
