"""A program that ends without ``close``: what it holds is given back, and its loops end before the interpreter does.

Otherwise the interpreter would take the loops apart while requests are under way, and say so on the terminal.
"""

from __future__ import annotations

import atexit
import logging
from typing import Callable, Set

from . import _fork

log = logging.getLogger("leasehold")

Close = Callable[[float], object]

LIMIT = 1.0
"""How long a program that ends may be kept from it by each client, in seconds."""


class _Open:
    def __init__(self) -> None:
        self._closes: Set[Close] = set()
        _fork.remember(self)

    def add(self, close: Close) -> None:
        self._closes.add(close)

    def discard(self, close: Close) -> None:
        self._closes.discard(close)

    def close_all(self) -> None:
        while self._closes:
            try:
                self._closes.pop()(LIMIT)
            except Exception as error:
                log.debug("not closed when the program ended: %s", error)

    def forget_in_child(self) -> None:
        _fork.OF_PARENTS.append(self._closes)
        self._closes = set()
        _fork.remember(self)


OPEN = _Open()
atexit.register(OPEN.close_all)
