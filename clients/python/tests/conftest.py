"""What the tests share: a server with the module, one without, and clients in both styles."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
import threading
from typing import Any, Callable, Iterator

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from leasehold.drop_in import redis_py
from servers import Server

_names = itertools.count()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """For tests that leave it as it was."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


@pytest.fixture
def plain_server() -> Iterator[Server]:
    server = Server(module=False)
    yield server
    server.end()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drop-in for redis-py is the class of all its locks."""
    for module in (redis.client, redis.cluster, redis.asyncio.client, redis.asyncio.cluster):
        monkeypatch.setattr(module, "Lock", module.Lock)
    redis_py.install()


@pytest.fixture
def name() -> str:
    return f"lock-{next(_names)}"


@pytest.fixture(autouse=True)
def current_loop() -> Iterator[None]:
    """On Python 3.9 clients of redis.asyncio can be created only where there is a loop."""
    if sys.version_info >= (3, 10):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


class OnLoop:
    """The asynchronous client as tests for both styles use it: each coroutine is run on a loop in a thread."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return self._wrapped(value)
        if not inspect.iscoroutinefunction(value):
            return lambda *words, **options: self._wrapped(value(*words, **options))

        def call(*words: Any, **options: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(value(*words, **options), self._loop)
            return self._wrapped(future.result(120))

        return call

    def _wrapped(self, value: Any) -> Any:
        is_ours = type(value).__module__ == "leasehold.asyncio" or isinstance(value, leasehold.ReadWrite)
        return OnLoop(value, self._loop) if is_ours else value


class Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


Make = Callable[..., Any]


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes clients of a server, in one of the styles. They are closed in the end."""
    clients: list[Any] = []
    loop = Loop() if request.param == "asyncio" else None

    def client_of(server: Any, **options: Any) -> Any:
        if loop is None:
            given = server if not isinstance(server, Server) else redis.Redis.from_url(server.url)
            kind: Any = leasehold.Quorum if isinstance(given, list) else leasehold.Leasehold
            client: Any = kind(given, **options)
        else:
            given = server if not isinstance(server, Server) else redis.asyncio.Redis.from_url(server.url)
            kind = leasehold.asyncio.Quorum if isinstance(given, list) else leasehold.asyncio.Leasehold
            client = OnLoop(kind(given, **options), loop.loop)
        clients.append(client)
        return client

    client_of.style = request.param  # type: ignore[attr-defined]
    yield client_of
    for client in clients:
        client.close(2)
    if loop is not None:
        loop.end()


def told(lease: Any) -> bool:
    """Whether the loss was told, and not merely found by looking at the clock."""
    return lease._state._loss is not None
