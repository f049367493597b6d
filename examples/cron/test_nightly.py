from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from servers import Server, eventually, raw

PROGRAM = Path(__file__).with_name("nightly.py")
A_NIGHT = 3.0
"""The box of the program: for so long after a grant nobody else does the job."""


def strikes(server: Server, host: str, **environment: str) -> subprocess.Popen[str]:
    """Cron starts the job on this machine."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "REDIS_URL": server.url, "HOST": host, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_done(host: subprocess.Popen[str]) -> bool:
    out, error = host.communicate(timeout=30)
    assert (host.returncode, error) == (0, "")
    return out.endswith("the job is done\n")


def left(server: Server) -> float:
    return float(raw(server, "PTTL", "nightly")) / 1000


def begins(host: subprocess.Popen[str]) -> None:
    assert host.stdout is not None
    assert "begins the job" in host.stdout.readline()


def test_one_of_three_machines_does_it_and_no_later_one(server: Server) -> None:
    begun = time.monotonic()
    hosts = [strikes(server, f"host-{number}") for number in (1, 2, 3)]
    done = [is_done(host) for host in hosts]
    # On a machine that hangs for that long the night may be over.
    assert done.count(True) == 1 or time.monotonic() - begun > A_NIGHT
    late = is_done(strikes(server, "late"))
    assert not late or time.monotonic() - begun > A_NIGHT
    eventually(lambda: left(server) < 0, "the night is over")
    assert is_done(strikes(server, "tomorrow"))


def test_nobody_else_begins_it_when_the_machine_that_does_it_dies(server: Server) -> None:
    first = strikes(server, "first", STEPS="1000", BOX="60")
    begins(first)
    first.kill()
    first.communicate()
    assert not is_done(strikes(server, "late"))
    assert 30 < left(server) <= 60


def test_it_is_stopped_when_its_box_is_over(server: Server) -> None:
    host = strikes(server, "host-1", STEPS="1000", BOX="0.5")
    out, error = host.communicate(timeout=30)
    assert host.returncode == 1
    assert "was lost" in error
    assert "done" not in out
