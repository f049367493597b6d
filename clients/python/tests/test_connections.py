"""Whatever way the client of redis-py is connected, its locks are."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from conftest import Make
from leasehold import Settings
from leasehold._lines import Line, open_wire
from leasehold._resp import pack
from leasehold._target import target_of
from servers import Cluster, Sentinels, Server, free_port


class Library:
    """The classes of redis-py, or of valkey-py."""

    def __init__(self, make: Make, package: str) -> None:
        is_async = make.style == "asyncio"  # type: ignore[attr-defined]
        self.module: Any = importlib.import_module(f"{package}.asyncio" if is_async else package)
        self.alone: Any = getattr(self.module, package.capitalize())
        self.cluster: Any = getattr(self.module, f"{package.capitalize()}Cluster")


@pytest.fixture(params=["redis", "valkey"])
def library(make: Make, request: pytest.FixtureRequest) -> Library:
    return Library(make, request.param)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    port = free_port()
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    try:
        server = Server("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    except AssertionError:
        pytest.skip("this server is built without TLS")
    yield port, certificate
    server.end()


def test_encrypted_connections(make: Make, library: Library, encrypted: tuple[int, Path]) -> None:
    port, certificate = encrypted
    given = library.alone(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=str(certificate))
    locks = make(given)
    lease = locks.acquire("x")
    with pytest.raises(leasehold.Busy):
        locks.acquire("x", wait=1)
    assert lease.release().in_time


def test_a_server_that_is_not_trusted_is_asked_for_nothing(make: Make, encrypted: tuple[int, Path]) -> None:
    port, _ = encrypted
    locks = make(Library(make, "redis").alone(host="127.0.0.1", port=port, ssl=True), settings=Settings(within=3))
    with pytest.raises(leasehold.Unreachable) as unreachable:
        locks.try_acquire("x")
    assert "certificate" in str(unreachable.value).lower()


def test_sockets_in_the_file_system(make: Make, library: Library, server: Server, name: str) -> None:
    locks = make(library.alone(unix_socket_path=str(server.socket)))
    assert locks.acquire(name).release().in_time


def test_another_database(make: Make, library: Library, server: Server, name: str) -> None:
    locks, others = make(library.alone(port=server.port, db=3)), make(server)
    lease, other = locks.acquire(name), others.try_acquire(name)
    assert other is not None
    for each in (lease, other):
        assert each.release().in_time


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    sentinels = Sentinels()
    yield sentinels
    sentinels.end()


def test_clusters(make: Make, library: Library, cluster: Cluster, name: str) -> None:
    locks = make(library.cluster(host="127.0.0.1", port=cluster.nodes[0].port))
    assert all(locks.acquire(f"{name}-{number}").release().in_time for number in range(9))


def test_sentinels(make: Make, library: Library, sentinels: Sentinels, name: str) -> None:
    client = library.module.sentinel.Sentinel([("127.0.0.1", sentinels.port)]).master_for("main")
    assert make(client).acquire(name).release().in_time


def test_valkey_glide(server: Server, cluster: Cluster, name: str) -> None:
    glide: Any = pytest.importorskip("glide_sync")
    alone, of_cluster = (glide.NodeAddress("127.0.0.1", port) for port in (server.port, cluster.nodes[0].port))
    clients = [
        glide.GlideClient.create(glide.GlideClientConfiguration([alone], database_id=3)),
        glide.GlideClusterClient.create(glide.GlideClusterClientConfiguration([of_cluster])),
    ]
    for client in clients:
        with leasehold.Leasehold(client) as locks, locks.lock(name) as lease:
            assert client.custom_command(["LOCK.CHECK", name, lease.owner]) == lease.fence
            assert client.get(name) == b"%d:%b" % (lease.fence, lease.owner)
        client.close()
    with pytest.raises(leasehold.SettingError, match="one address"):
        clients[0]._config.addresses *= 2
        leasehold.Leasehold(clients[0])


def test_valkey_glide_with_encryption(encrypted: tuple[int, Path], name: str) -> None:
    glide: Any = pytest.importorskip("glide_sync")
    port, certificate = encrypted
    trusted = glide.TlsAdvancedConfiguration(root_pem_cacerts=certificate.read_bytes())
    for tls in (trusted, glide.TlsAdvancedConfiguration(use_insecure_tls=True)):
        advanced = glide.AdvancedGlideClientConfiguration(tls_config=tls)
        where = [glide.NodeAddress("127.0.0.1", port)]
        config = glide.GlideClientConfiguration(where, use_tls=True, advanced_config=advanced, lazy_connect=True)
        with leasehold.Leasehold(glide.GlideClient.create(config)) as locks, locks.lock(name) as lease:
            assert not lease.lost


def test_valkey_glide_with_asyncio(server: Server, name: str) -> None:
    glide: Any = pytest.importorskip("glide")

    async def program() -> None:
        config = glide.GlideClientConfiguration([glide.NodeAddress("127.0.0.1", server.port)])
        client = await glide.GlideClient.create(config)
        async with leasehold.asyncio.Leasehold(client) as locks, locks.lock(name) as lease:
            assert await client.custom_command(["LOCK.CHECK", name, lease.owner]) == lease.fence
        await client.close()

    asyncio.run(asyncio.wait_for(program(), 30))


def test_a_pool_that_is_exhausted_and_has_short_limits_does_not_matter(server: Server, name: str) -> None:
    pool = redis.ConnectionPool(host="127.0.0.1", port=server.port, max_connections=1, socket_timeout=0.01)
    held = pool.make_connection() if hasattr(pool, "make_connection") else None
    with leasehold.Leasehold(redis.Redis(connection_pool=pool)) as locks:
        lease = locks.acquire(name)
        with pytest.raises(leasehold.Busy):
            locks.acquire(name, wait=0.5)
        assert lease.release().in_time
    del held


def test_a_client_may_be_used_on_one_loop_after_another(server: Server, name: str) -> None:
    async def create() -> leasehold.asyncio.Leasehold:
        return leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url))

    async def use(locks: leasehold.asyncio.Leasehold) -> None:
        async with locks.lock(name):
            pass

    locks = asyncio.run(create())
    for _ in range(2):
        asyncio.run(use(locks))


def test_a_connection_that_ends_as_it_is_opened_is_not_taken_for_one() -> None:
    """Nobody would hear of its end any more, and requests would wait until they are overdue."""
    number = 0

    async def greet_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"+OK\r\n" * 3)
        await asyncio.sleep(number * 2e-6)  # each time in another moment
        writer.close()

    async def program() -> None:
        nonlocal number
        listening = await asyncio.start_server(greet_and_go, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        endpoint = target_of(redis.Redis(port=port, client_name="x")).endpoint
        for each in range(200):
            number = each
            with contextlib.suppress(redis.ConnectionError, ConnectionError):
                line = await open_wire(endpoint.open(None, 2), 2, lambda writer: Line(writer, 1))
                await line.ask(pack([b"PING"]), 1)
        listening.close()

    asyncio.run(asyncio.wait_for(program(), 30))
