from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def told(text: str) -> list[str]:
    """What each line says, without times and numbers."""
    return [re.sub(r"[0-9]{16}", "FENCE", re.sub(r"[ ━]+", " ", line)).strip() for line in text.splitlines()]


def test_the_trace_is_that_of_the_docs() -> None:
    program = [sys.executable, str(HERE / "contend.py")]
    printed = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    page = (HERE.parent.parent / "docs/clients.md").read_text()
    shown = page.partition("## A trace\n")[2].split("```")[1].partition("\n")[2]
    assert told(printed) == told(shown)
    # The second service holds it when the first one does not any more.
    bars = [line[27:67] for line in printed.splitlines()]
    assert bars[2].rindex("━") <= bars[5].index("━")
