"""From what a caller says to what is asked for: defaults, checks, and the name of the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ._acquiring import Wanted, new_owner
from ._questions import EXCLUSIVE
from ._validity import valid_until
from .errors import SettingError
from .settings import Duration, Name, Settings, octets, patience, positive, seconds

LONGEST_OWNER = 255
MOST_HOLDERS = 99_999


@dataclass(frozen=True)
class Asked:
    """A lock, and how it is asked for."""

    settings: Settings
    name: Name
    ttl: Optional[Duration]
    wait: Optional[Duration]
    share: int
    renew: bool
    hold_at_least: Optional[Duration]
    candidate: Optional[bytes] = None

    def __post_init__(self) -> None:
        self.wanted(False)

    def wanted(self, is_try: bool) -> Wanted:
        ttl = positive("ttl", self.settings.ttl if self.ttl is None else self.ttl)
        if valid_until(0.0, ttl) <= 0:
            raise SettingError("ttl: it must be longer than what clocks may differ by, which is 2 milliseconds")
        wait = patience("wait", self.settings.wait if self.wait is None else self.wait)
        if not 0 <= self.share <= MOST_HOLDERS:
            raise SettingError(f"permits: it must be from 1 to {MOST_HOLDERS}")
        hold_at_least = 0.0 if self.hold_at_least is None else seconds("hold_at_least", self.hold_at_least)
        if hold_at_least < 0:
            raise SettingError("hold_at_least: it must not be negative")
        owner = new_owner() if self.candidate is None else self.candidate + b"/" + _unique()
        if len(owner) > LONGEST_OWNER:
            raise SettingError("candidate: it must be at most 218 bytes long")
        return Wanted(
            name=self.name,
            key=key_of(self.settings, self.name),
            ttl=ttl,
            wait=0.0 if is_try else wait,
            share=self.share,
            renew=self.renew,
            hold_at_least=hold_at_least,
            owner=owner,
        )


def key_of(settings: Settings, name: Name) -> bytes:
    return octets("prefix", settings.prefix) + octets("name", name)


def permits(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError("permits: it must be a positive integer")
    return EXCLUSIVE if count == 1 else count


def _unique() -> bytes:
    return new_owner().rsplit(b":", 1)[1]


def candidate_of(owner: bytes) -> str:
    """Whoever took the lock in another way is called by its owner."""
    candidate, slash, unique = owner.rpartition(b"/")
    named = candidate if slash and len(unique) == 36 else owner
    return named.decode(errors="replace")
