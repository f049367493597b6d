"""Where a client of redis-py connects to, and how. This package opens a few connections of its own, with the same
addresses, passwords and certificates: a pool hands a connection to one user at a time, and its retries send a request
again by themselves."""

from __future__ import annotations

import concurrent.futures
import inspect
import ipaddress
import socket
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import redis
import redis.asyncio
from redis import connection as sync_connection
from redis.asyncio import connection as async_connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.retry import Retry as BlockingRetry

from .errors import SettingError


def addresses_of(host: str, port: int, family: int) -> concurrent.futures.Future[list[str]]:
    """Whoever does not wait for it any more leaves it to the thread: the look-up cannot be interrupted."""
    found: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()

    def look() -> None:
        try:
            answers = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            found.set_result(list(dict.fromkeys(str(address[0]) for *_, address in answers)))
        except (OSError, UnicodeError) as error:
            found.set_exception(error if isinstance(error, OSError) else OSError(str(error)))

    if _is_address(host):
        found.set_result([host])
        return found
    try:
        threading.Thread(target=look, name="leasehold-names", daemon=True).start()
    except RuntimeError:
        # The interpreter is shutting down, and starts no thread any more.
        look()
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


Address = tuple[str, int]
AnyClient = Union["redis.Redis", "redis.RedisCluster", "redis.asyncio.Redis", "redis.asyncio.RedisCluster"]

_KEPT = ("username", "password", "credential_provider", "client_name", "db", "socket_type")
_TCP = ("host", "port", "socket_keepalive", "socket_keepalive_options")
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))


@dataclass(frozen=True)
class Endpoint:
    kind: type[async_connection.AbstractConnection]
    options: Mapping[str, object] = field(repr=False)

    def open(self, address: Optional[Address], limit: float) -> async_connection.AbstractConnection:
        return self.kind(**self._options(address, limit), retry=Retry(NoBackoff(), 0))

    def open_blocking(self, address: Optional[Address], limit: float) -> sync_connection.AbstractConnection:
        kind: Any = next((of_threads for its, of_threads in _KINDS if issubclass(self.kind, its)), NamedConnection)
        its_options = self._options(address, limit)
        connection: sync_connection.AbstractConnection = kind(**its_options, retry=BlockingRetry(NoBackoff(), 0))
        return connection

    def _options(self, address: Optional[Address], limit: float) -> dict[str, Any]:
        options: dict[str, Any] = dict(self.options)
        if address is not None:
            options["host"], options["port"] = address
        if issubclass(self.kind, async_connection.Connection):
            # The end of a machine that vanished without a word is noticed within some seconds.
            options["socket_keepalive"] = True
            options["socket_keepalive_options"] = keepalive()
        options["socket_timeout"] = options["socket_connect_timeout"] = limit
        return {**options, "protocol": 2, "decode_responses": False, "health_check_interval": 0}


class NamedConnection(sync_connection.Connection):
    def _connect(self) -> socket.socket:
        limit = float(self.socket_connect_timeout or 1.0)
        last: Optional[OSError] = None
        try:
            addresses = addresses_of(self.host, self.port, self.socket_type).result(limit)
        except concurrent.futures.TimeoutError:
            raise OSError(f"the name {self.host} was not found within {limit:.3f} s") from None
        for address in addresses:
            try:
                sock = socket.create_connection((address, self.port), limit)
            except OSError as error:
                last = error
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in keepalive().items():
                sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
            sock.settimeout(self.socket_timeout)
            return sock
        raise last or OSError(f"{self.host} has no address")


class NamedSSLConnection(sync_connection.SSLConnection, NamedConnection):
    pass


_KINDS = (
    (async_connection.SSLConnection, NamedSSLConnection),
    (async_connection.UnixDomainSocketConnection, sync_connection.UnixDomainSocketConnection),
    (async_connection.Connection, NamedConnection),
)
"""How event loops connect, and how threads do: clients by classes of these names. With TLS it is a Connection, too."""


@dataclass(frozen=True)
class Alone:
    endpoint: Endpoint


@dataclass(frozen=True)
class Watched:
    endpoint: Endpoint
    service: str
    sentinels: Sequence[Endpoint]


@dataclass(frozen=True)
class Clustered:
    endpoint: Endpoint
    seeds: Sequence[Address]
    remap: Optional[Callable[[Address], Address]]


@dataclass(frozen=True)
class Several:
    """Servers that know nothing of each other."""

    each: Sequence[Union[Alone, Watched, Clustered]]


Target = Union[Alone, Watched, Clustered, Several]


def several(clients: Sequence[AnyClient]) -> Several:
    if not clients:
        raise SettingError("clients: a quorum has at least one server")
    return Several([target_of(each) for each in clients])


def target_of(client: AnyClient) -> Union[Alone, Watched, Clustered]:
    if _is_a(type(client), "RedisCluster", "ValkeyCluster"):
        return _of_cluster(client)
    if type(client).__module__.startswith("glide"):
        from ._glide import of_glide

        return of_glide(client)
    pool: Any = getattr(client, "connection_pool", None)
    if pool is None:
        raise SettingError(
            "client: it must be a Redis or a RedisCluster of redis-py, or one of valkey-py or Valkey GLIDE"
        )
    endpoint = _endpoint(pool.connection_class, pool.connection_kwargs)
    return _of_sentinel(pool, endpoint) if _is_a(type(pool), "SentinelConnectionPool") else Alone(endpoint)


def _is_a(kind: type, *names: str) -> bool:
    """Whether it is, or is derived from, a class of redis-py of this name, or of valkey-py, which is a fork of it."""
    return any(base.__name__ in names and base.__module__.split(".")[0] in ("redis", "valkey") for base in kind.__mro__)


def _of_sentinel(pool: Any, endpoint: Endpoint) -> Watched:
    if not pool.is_master:
        raise SettingError("client: locks are granted by the primary: use master_for of Sentinel")
    pools = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    sentinels = [_endpoint(each.connection_class, each.connection_kwargs) for each in pools]
    return Watched(endpoint, str(pool.service_name), sentinels)


def _of_cluster(client: Any) -> Clustered:
    nodes = client.nodes_manager
    options: Mapping[str, object] = nodes.connection_kwargs
    kind: object = options.get("connection_class")
    if not isinstance(kind, type):
        kind = sync_connection.SSLConnection if options.get("ssl") else sync_connection.Connection
    seeds = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
    remap = getattr(nodes, "address_remap", None)
    without_ssl = {name: value for name, value in options.items() if name not in ("ssl", "db")}
    return Clustered(_endpoint(kind, without_ssl), seeds, remap)


def _endpoint(kind: object, given: Mapping[str, object]) -> Endpoint:
    its_kind = _asynchronous(kind)
    kept: list[str] = list(_KEPT)
    kept += ["path"] if issubclass(its_kind, async_connection.UnixDomainSocketConnection) else _TCP
    options = {name: given[name] for name in kept if given.get(name) is not None}
    if issubclass(its_kind, async_connection.SSLConnection):
        options.update(_tls(given))
    return Endpoint(its_kind, options)


def _tls(given: Mapping[str, object]) -> dict[str, object]:
    known = inspect.signature(async_connection.SSLConnection.__init__).parameters
    its = {name: value for name, value in given.items() if name.startswith("ssl_") and value is not None}
    for name, value in its.items():
        if name not in known and value:
            # To leave it out would be to trust more than the caller does.
            raise SettingError(f"client: {name} is not known to the asynchronous connections of redis-py")
    return {name: value for name, value in its.items() if name in known}


def _asynchronous(kind: object) -> type[async_connection.AbstractConnection]:
    if not isinstance(kind, type):
        raise SettingError("client: its pool has no class of connections")
    if issubclass(kind, async_connection.AbstractConnection) and not _is_a(kind, "SentinelManagedConnection"):
        return kind
    for its, _ in _KINDS:
        if _is_a(kind, its.__name__):
            return its
    raise SettingError(f"client: connections of the kind {kind.__name__} are not known")


def keepalive() -> dict[int, int]:
    found = ((getattr(socket, name, None), seconds) for name, seconds in _KEEPALIVE)
    return {option: seconds for option, seconds in found if option is not None}
