from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()
