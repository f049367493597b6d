"""Real servers for tests: started in a directory of their own, killed in the end, their log shown on failure.

``LEASEHOLD_MODULE`` names the module to load, ``LEASEHOLD_SERVER`` the server to run; redis-server by default.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import redis

PATIENCE = 20.0
"""How long a test waits for what is to come. It never decides what comes."""


def eventually(is_so: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    end = time.monotonic() + within
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"it has not come within {within} s: {what}")
        time.sleep(0.005)


def free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < 55000:  # a cluster bus takes the port 10,000 above it
            return port


def module_path() -> str:
    path = os.environ.get("LEASEHOLD_MODULE")
    if not path:
        raise RuntimeError("LEASEHOLD_MODULE must name libleasehold.so")
    return os.path.abspath(path)


def server_path() -> str:
    return os.environ.get("LEASEHOLD_SERVER") or shutil.which("redis-server") or "redis-server"


class Server:
    def __init__(self, *options: str, module: bool = True, program: Optional[list[str]] = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="leasehold-python-"))
        self.port = free_port()
        self.log = self.directory / "log"
        self._command = [
            *(program or [server_path()]),
            *("--port", str(self.port), "--dir", str(self.directory), "--save", "", "--appendonly", "no"),
            *("--unixsocket", str(self.socket), "--enable-module-command", "yes"),
            *(["--loadmodule", module_path()] if module else []),
            *options,
        ]
        self._process: Optional[subprocess.Popen[bytes]] = None
        self.start()

    @property
    def socket(self) -> Path:
        return self.directory / "socket"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.directory)
        eventually(self._answers, f"the server answers: {self.tail()}")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server has ended: {self.tail()}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False

    def client(self, **options: object) -> redis.Redis:
        client: redis.Redis = redis.Redis.from_url(self.url, **options)
        return client

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.go_on()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def waiters(self, key: str | bytes) -> int:
        return len(raw(self, "LOCK.WAITERS", key))

    def holder(self, key: str) -> Optional[bytes]:
        """What the key holds."""
        with self.client() as client:
            held: Optional[bytes] = client.get(key)
            return held

    def kill_clients(self) -> None:
        """All connections but the one that asks."""
        with self.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")


class Sentinels:
    """A primary, a replica, and a sentinel that fails over as soon as it may."""

    def __init__(self) -> None:
        self.primary = Server()
        self.replica = Server("--replicaof", "127.0.0.1", str(self.primary.port))
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leasehold-python-"))
        config = self.directory / "sentinel.conf"
        config.write_text(
            f"port {self.port}\ndir {self.directory}\n"
            f"sentinel monitor main 127.0.0.1 {self.primary.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
        )
        self._process = subprocess.Popen(
            [server_path(), str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.sentinel = redis.Redis(port=self.port)
        with self.replica.client() as replica:
            eventually(lambda: replica.info("replication")["master_link_status"] == "up", "the replica is in sync")
        eventually(self._knows_the_replica, "the sentinel knows the replica")

    def _knows_the_replica(self) -> bool:
        try:
            return bool(self.sentinel.execute_command("SENTINEL", "REPLICAS", "main"))
        except redis.RedisError:
            return False

    def fail_over(self) -> None:
        """The primary dies, and the replica takes over."""
        self.primary.kill()
        eventually(self._has_taken_over, "the replica takes over", 60)

    def _has_taken_over(self) -> bool:
        try:
            return bool(raw(self.replica, "ROLE")[0] == b"master")
        except redis.RedisError:  # its clients are sent away as it is promoted
            return False

    def end(self) -> None:
        self.sentinel.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.primary.end()
        self.replica.end()


class Cluster:
    """Three primaries, with the slots spread evenly."""

    def __init__(self) -> None:
        # A short one, or a slot that is moved while a node looks away would be undecided for long.
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        self.nodes = [Server(*options) for _ in range(3)]
        bounds = [0, 5461, 10923, 16384]
        for node, first, last in zip(self.nodes, bounds, bounds[1:]):
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        with self.nodes[0].client() as client:
            for node in self.nodes[1:]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in self.nodes:
            eventually(lambda node=node: self._is_whole(node), "the cluster is whole", 60)  # type: ignore[misc]

    def _is_whole(self, node: Server) -> bool:
        is_ok = b"cluster_state:ok" in raw(node, "CLUSTER", "INFO")
        return is_ok and len(raw(node, "CLUSTER", "NODES").splitlines()) == 3

    def move(self, slot: int, key: str) -> None:
        """Moves a slot with this one key in it to the node after its own."""
        ids = {node.port: raw(node, "CLUSTER", "MYID") for node in self.nodes}
        source = next(node for node in self.nodes if self._has(node, slot))
        target = self.nodes[(self.nodes.index(source) + 1) % 3]
        raw(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        raw(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
        raw(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        for node in (target, source):
            raw(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])

    def _has(self, node: Server, slot: int) -> bool:
        owners = [entry[2][1] for entry in raw(node, "CLUSTER", "SLOTS") if entry[0] <= slot <= entry[1]]
        return owners == [node.port]

    def end(self) -> None:
        for node in self.nodes:
            node.end()


def raw(server: Server, *words: object) -> Any:
    """The answer as the server gives it, whatever the version of redis-py makes of it."""
    connection = redis.Connection(host="127.0.0.1", port=server.port, protocol=2)
    try:
        connection.connect()
        connection.send_command(*words)
        return connection.read_response(disable_decoding=True)
    finally:
        connection.disconnect()
