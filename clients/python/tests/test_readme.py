"""The examples of the README, as they are printed."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any, Dict, List

from servers import Server

README = Path(__file__).parent.parent / "README.md"


def examples(server: Server) -> List[str]:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [block.replace("redis://127.0.0.1:6379", server.url) for block in blocks]


def test_the_example_of_threads_stores_by_its_fence(server: Server) -> None:
    stored: List[Any] = []
    names: Dict[str, Any] = {"parts": ["a", "b"], "store": lambda fence, part: stored.append((fence > 0, part))}
    exec(examples(server)[0], names)
    assert stored == [(True, "a"), (True, "b")]
    assert server.holder("lock:page:front") is None


def test_the_example_of_asyncio_publishes_by_its_fence(server: Server) -> None:
    published: List[int] = []

    async def publish(fence: int) -> None:
        assert server.holder("page:front") is not None
        published.append(fence)

    names: Dict[str, Any] = {"publish": publish}
    exec("async def example():\n" + textwrap.indent(examples(server)[1], "    "), names)
    asyncio.run(names["example"]())
    assert len(published) == 1
    assert server.holder("page:front") is None
