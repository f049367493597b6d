"""What waiting in a queue comes to."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class Granted:
    fence: int
    asked: float
    """The lease is counted from here."""


class Waited(enum.Enum):
    OVER = enum.auto()
    """Patience has ended."""
    NO_QUEUE = enum.auto()
    """The server keeps none: ask again and again."""
    NO_TICKETS = enum.auto()
    """The server gives none to this user: wait on a connection."""
    NOT_NOW = enum.auto()
    """Ask again, after a rest."""
    ASK = enum.auto()
    """Ask again, at once."""
