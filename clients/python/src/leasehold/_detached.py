"""A lock that is left held, for somebody else to go on with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Tuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from .errors import SettingError

_TEXT = re.compile(r"leasehold:([^:]*):([^:]+):([0-9]{1,16})")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})|[^!-~]")


@dataclass(frozen=True)
class Detached:
    """A lock that was left held by :meth:`Lease.detach`. As text, for the payload of a job, it is
    ``leasehold:<lock>:<owner>:<fence>``, several locks separated by commas, other bytes than ``-._~`` in percent."""

    keys: Tuple[bytes, ...]  # The locks as the server names them, prefix included
    owner: bytes
    fence: int

    def __str__(self) -> str:
        keys = ",".join(quote_from_bytes(key, safe="") for key in self.keys)
        return f"leasehold:{keys}:{quote_from_bytes(self.owner, safe='')}:{self.fence}"

    @classmethod
    def parse(cls, text: str) -> Detached:
        found = _TEXT.fullmatch(text)
        if found is None or _STRAY.search(text):
            raise SettingError("detached: it must be leasehold:<lock>:<owner>:<fence>")
        return cls(tuple(map(unquote_to_bytes, found[1].split(","))), unquote_to_bytes(found[2]), int(found[3]))
