"""The comparison of the README can be repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servers import Server

COMPARE = Path(__file__).parent.parent / "bench" / "compare.py"


@pytest.mark.skipif(not COMPARE.exists(), reason="the sdist has no benchmarks")
def test_the_comparison_runs_and_shows_both_tables(own_server: Server) -> None:
    words = [sys.executable, str(COMPARE), own_server.url, "1", "0.1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| leasehold")]
    assert len(rows) == 4, done.stdout
    # The request and the release: nothing else is asked for a grant.
    assert all(float(row.split("|")[-2]) < 3 for row in rows), done.stdout


@pytest.mark.skipif(not COMPARE.exists(), reason="the sdist has no benchmarks")
def test_programs_that_lock_by_redis_py_wait_less_with_the_drop_in(own_server: Server) -> None:
    for program in ("redbeat", "django_redis", "dogpile.cache"):
        pytest.importorskip(program)
    words = [sys.executable, str(COMPARE), own_server.url, "1", "0.2", "--hosts"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in done.stdout.splitlines()[2:]]
    assert len(rows) == 5, done.stdout
    # The second beat is told, and does not look a second later.
    before, after = (float(cell.split()[0]) for cell in rows[-1][2:4])
    assert after < before / 2, done.stdout
