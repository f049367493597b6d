"""Fixtures of pytest: they are there as soon as this package is installed."""

from __future__ import annotations

from typing import Iterator

import pytest

from . import Server, start


@pytest.fixture(scope="session")
def leasehold_shared_server() -> Iterator[Server]:
    """One for all tests: see ``leasehold_server``."""
    with start() as server:
        yield server


@pytest.fixture
def leasehold_server(leasehold_shared_server: Server) -> Server:
    """A server with the module, and without any key."""
    leasehold_shared_server.flush()
    return leasehold_shared_server
