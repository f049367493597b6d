"""The blocks that were entered by one request for a lock. Several threads or tasks may use it at the same time."""

from __future__ import annotations

from typing import Generic, List, Tuple, TypeVar

from .errors import LeaseholdError

E = TypeVar("E")


class Entered(Generic[E]):
    def __init__(self) -> None:
        self._blocks: List[Tuple[object, E]] = []

    def enter(self, who: object, what: E) -> None:
        self._blocks.append((who, what))

    def leave(self, who: object) -> E:
        """The last one that was entered by the same thread or task. A generator may be closed by another one: then it
        is the only one that there is."""
        blocks = list(self._blocks)
        left = [block for block in blocks if block[0] == who][-1:] or blocks
        if len(left) != 1:
            raise LeaseholdError(
                "a block was left by another thread or task than had entered it, and there are several"
            )
        self._blocks.remove(left[0])
        return left[0][1]
