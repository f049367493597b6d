"""What the README and the pages of the repository show for Python, run as it is printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import redis

import leasehold
from servers import Server

PACKAGE = Path(__file__).parent.parent
README = PACKAGE / "README.md"
ROOT = PACKAGE.parent.parent
DOCS = ROOT / "docs"
ADDRESS = "redis://127.0.0.1:6379"
BLOCK = re.compile(r"^( *)```(?:python|py)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def snippets() -> list[Any]:
    # The sdist has no docs.
    pages = [README, *sorted(DOCS.rglob("*.md"))]
    if DOCS.exists():
        pages.append(ROOT / "README.md")
    found: list[tuple[Path, str]] = []
    for page in pages:
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        found += [(page, textwrap.dedent(block)) for _, block in blocks]
    return [pytest.param(text, id=f"{page.stem}-{number}") for number, (page, text) in enumerate(found)]


def held(server: Server) -> list[int]:
    """The fences of all locks that are held."""
    with server.client() as client:
        values = [client.get(key) or b"" for key in client.scan_iter()]
    return [int(value.split(b":")[0]) for value in values if b":" in value]


class Given:
    """What the pages take for granted: parts to work on, and a store that takes them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.fences: list[int] = []
        self.names: dict[str, Any] = {
            "parts": ["a", "b"],
            "body": "news",
            "store": lambda fence, _part: self._take(fence),
            "publish": self._publish,
        }

    async def _publish(self, fence: int) -> None:
        self._take(fence)

    def _take(self, fence: int) -> None:
        assert fence in held(self._server)
        self.fences.append(fence)

    def run(self, text: str) -> None:
        code = compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ending = eval(code, self.names)
        if inspect.iscoroutine(ending):
            asyncio.run(ending)


@pytest.mark.parametrize("text", snippets())
def test_a_snippet_takes_a_lock_works_by_its_fence_and_gives_it_back(server: Server, text: str) -> None:
    given = Given(server)
    if "import" not in text:
        given.names["locks"] = leasehold.Leasehold(redis.Redis.from_url(server.url))
    else:
        assert text.count(ADDRESS) == 1
    with server.client() as client:
        client.config_resetstat()
        given.run(text.replace(ADDRESS, server.url))
        assert client.info("commandstats")["cmdstat_lock.release"]["calls"] == 1
        assert held(server) == []
        if "guard" in text:
            assert client.get("{page}:front") == b"news"
        else:
            assert given.fences
    if "import" not in text:
        assert given.names["locks"].close() == []


def test_the_pages_show_something_for_python() -> None:
    assert len(snippets()) >= (4 if DOCS.exists() else 2)
