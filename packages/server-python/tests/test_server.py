"""The package as users have it: built, installed from its file into a clean environment, and run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent

USE = """
import socket, sys, time
import leasehold_server

def ask(server, line):
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(line.encode() + b"\\r\\n")
        return connection.recv(4096)

begun = time.monotonic()
with leasehold_server.start("--databases", "3") as server:
    assert ask(server, "LOCK.ACQUIRE printer alice 30000").startswith(b":17")
    print(f"first grant after {time.monotonic() - begun:.2f} s")
    assert ask(server, "LOCK.ACQUIRE printer bob 30000") == b"$-1\\r\\n"
    assert ask(server, "SELECT 3").startswith(b"-ERR")
    server.flush()
    assert ask(server, "DBSIZE") == b":0\\r\\n"
    directory = server.directory
assert not directory.exists()
try:
    leasehold_server.start("--no-such-option", "1")
    raise AssertionError("it started")
except RuntimeError as error:
    assert "no-such-option" in str(error), error
"""

TEST = """
def test_a_server(leasehold_server, leasehold_shared_server):
    assert leasehold_server is leasehold_shared_server
    assert leasehold_server.url.startswith("redis://127.0.0.1:")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(directory), str(HERE)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv/bin/python"
    [wheel] = directory.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel, "pytest"], check=True)
    return python


def environment() -> dict[str, str]:
    """What is installed, and not what builds it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}


def test_a_program_starts_a_server_of_its_own(python: Path) -> None:
    subprocess.run([python, "-c", USE], check=True, env=environment())


def test_tests_have_a_server(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    subprocess.run([python, "-m", "pytest", "-q", tmp_path / "test_it.py"], check=True, env=environment(), cwd=tmp_path)


def test_the_command_is_the_server(python: Path, tmp_path: Path) -> None:
    socket, file = tmp_path / "socket", tmp_path / "server.conf"
    file.write_text(f"port 0\nunixsocket {socket}\ndir {tmp_path}\n")
    command = [python.with_name("leasehold-server"), file, "--maxmemory", "100mb"]
    running = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while not socket.exists():
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
