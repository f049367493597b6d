from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from servers import Server, raw

PROGRAM = Path(__file__).with_name("nightly.py")
LONG = 60.0
"""Longer than a test takes."""

Host = subprocess.Popen[str]


@pytest.fixture
def strikes(server: Server) -> Iterator[Callable[..., Host]]:
    """Cron starts the job on this machine."""
    hosts: list[Host] = []

    def start(name: str, **environment: str) -> Host:
        own = {**os.environ, "REDIS_URL": server.url, "HOST": name, "BOX": str(LONG), **environment}
        pipe = subprocess.PIPE
        host = subprocess.Popen([sys.executable, str(PROGRAM)], env=own, stdout=pipe, stderr=pipe, text=True)
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.kill()
        host.communicate()


def is_done(host: Host) -> bool:
    out, error = host.communicate(timeout=LONG / 2)
    assert (host.returncode, error) == (0, "")
    assert ("begins the job" in out) is not ("another machine does the job" in out)
    return out.endswith("the job is done\n")


def left(server: Server) -> float:
    """Of the lease, in seconds."""
    return float(raw(server, "PTTL", "nightly")) / 1000


def test_one_of_three_machines_does_it_and_no_later_one(server: Server, strikes: Callable[..., Host]) -> None:
    hosts = [strikes(f"host-{number}") for number in (1, 2, 3)]
    assert sorted(is_done(host) for host in hosts) == [False, False, True]
    assert not is_done(strikes("late"))
    assert 0 < left(server) <= LONG


def test_nobody_else_begins_it_when_the_machine_that_does_it_dies(server: Server, strikes: Callable[..., Host]) -> None:
    first = strikes("first", STEPS="1000")
    assert first.stdout is not None
    assert "begins the job" in first.stdout.readline()
    first.kill()
    assert not is_done(strikes("late"))
    assert 0 < left(server) <= LONG


def test_it_is_stopped_when_its_box_is_over(strikes: Callable[..., Host]) -> None:
    host = strikes("host-1", STEPS="1000", BOX="2")
    out, error = host.communicate(timeout=LONG / 2)
    assert host.returncode == 1
    assert "was lost" in error
    assert "done" not in out
