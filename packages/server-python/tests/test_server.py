"""The package as users have it: built, installed from its file into a clean environment, and run. LEASEHOLD_PACKED names a
file that is built already."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
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
    took = time.monotonic() - begun
    print(f"first grant after {took:.2f} s")
    assert took <= 10
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
with leasehold_server.start("--requirepass", "secret") as server:
    assert ask(server, "PING").startswith(b"-NOAUTH")
"""

TEST = """
def test_a_server(leasehold_server, leasehold_shared_server):
    assert leasehold_server is leasehold_shared_server
    assert leasehold_server.url.startswith("redis://127.0.0.1:")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    packed = os.environ.get("LEASEHOLD_PACKED")
    if packed:
        return packed
    directory = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(directory), str(HERE)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel] = directory.glob("*.whl")
    return str(wheel)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheel: str) -> Path:
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory, with_pip=True)
    python = directory / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel, "pytest", "pipx"], check=True)
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


def test_two_commands_of_the_readme_get_a_lock(python: Path, wheel: str, tmp_path: Path) -> None:
    readme = (HERE.parent.parent / "README.md").read_text()
    [row] = re.findall(r"^\| to try it with Python alone \| `(.*?)`, then `(.*?)` \|", readme, re.MULTILINE)
    serve, ask = row
    assert serve == "pipx run leasehold-server"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    its = {**environment(), "PIPX_HOME": str(tmp_path / "pipx"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    command = [*serve.replace(" run ", f" run --spec {wheel} ").split(), "--port", port, "--dir", str(tmp_path)]
    running = subprocess.Popen([python.with_name("pipx"), *command[1:]], env=its, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 240  # pipx makes environments
        while subprocess.run(shlex.split(ask.replace("6379", port)), capture_output=True, check=False).returncode:
            assert running.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        told = subprocess.run(shlex.split(ask.replace("6379", port)), capture_output=True, check=True, text=True).stdout
        assert re.fullmatch(r"b':17\d{14}\\r\\n'\n", told), told
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(20)
