"""From what a caller says to what is asked for: defaults, checks, and the name of the key."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, TypedDict

from ._detached import Detached
from ._questions import EXCLUSIVE, Claim
from ._time import valid_until
from .errors import SettingError
from .settings import Duration, Name, Settings, octets, patience, positive, seconds

LONGEST_OWNER = 255
MOST_HOLDERS = 99_999


class TryOptions(TypedDict, total=False):
    """How a lock is asked for. What is None or left out is as in :class:`Settings`."""

    ttl: Optional[Duration]
    """How long its lease lasts."""
    renew: bool
    """Whether it is renewed."""
    hold_at_least: Optional[Duration]
    """For so long from the grant it is held, although it is released before: for jobs that several hosts start at
    about the same time. A program that dies holds it for its ttl."""
    owner: Name
    """As whom it is asked for. Whoever asks again with it gets the same grant: two leases of one owner are one hold. If
    it is left out, each request has an owner of its own."""


class Options(TryOptions, total=False):
    wait: Optional[Duration]
    """How long to wait, as a hard limit."""


class Wanted(NamedTuple):
    """One try to get a lock."""

    name: Name
    claim: Claim
    ttl: float
    wait: float
    """How long to wait; infinite: without limit. Zero: to try."""
    renew: bool
    hold_at_least: float


class Asked:
    """A lock, and how it is asked for."""

    __slots__ = ("_candidate", "_owner", "hold_at_least", "key", "name", "renew", "share", "ttl", "wait")

    def __init__(
        self,
        settings: Settings,
        name: Name,
        share: int = EXCLUSIVE,
        *,
        ttl: Optional[Duration] = None,
        wait: Optional[Duration] = None,
        renew: bool = True,
        hold_at_least: Optional[Duration] = None,
        owner: Optional[Name] = None,
        candidate: Optional[Name] = None,
    ) -> None:
        self.name = name
        self.key = key_of(settings, name)
        self.ttl = positive("ttl", settings.ttl if ttl is None else ttl)
        if valid_until(0.0, self.ttl) <= 0:
            raise SettingError("ttl: it must be longer than what clocks may differ by, which is 2 milliseconds")
        self.wait = patience("wait", settings.wait if wait is None else wait)
        if not 0 <= share <= MOST_HOLDERS:
            raise SettingError(f"permits: it must be from 1 to {MOST_HOLDERS}")
        self.share = share
        self.renew = renew
        self.hold_at_least = 0.0 if hold_at_least is None else seconds("hold_at_least", hold_at_least)
        if self.hold_at_least < 0:
            raise SettingError("hold_at_least: it must not be negative")
        self._owner = None if owner is None else octets("owner", owner)
        if self._owner is not None and (not 0 < len(self._owner) <= LONGEST_OWNER or self._owner == b"*"):
            raise SettingError(f"owner: it must be from 1 to {LONGEST_OWNER} bytes long, and not *")
        self._candidate = None if candidate is None else octets("candidate", candidate)
        if self._candidate is not None and len(self._candidate) + 37 > LONGEST_OWNER:
            raise SettingError(f"candidate: it must be at most {LONGEST_OWNER - 37} bytes long")

    def wanted(self, is_try: bool) -> Wanted:
        """An owner is one try to get a lock, unless the caller says who it is."""
        owner = self._owner
        if owner is None:
            whom = b"%d:" % os.getpid() if self._candidate is None else self._candidate + b"/"
            owner = whom + _unique()
        wait = 0.0 if is_try else self.wait
        return Wanted(self.name, Claim(self.key, owner, self.share), self.ttl, wait, self.renew, self.hold_at_least)


def adopted(settings: Settings, detached: Detached, ttl: Optional[Duration], renew: bool) -> Wanted:
    """What a lock is as which was left held."""
    claim, prefix = Claim(detached.keys[0], detached.owner), octets("prefix", settings.prefix)
    name = claim.key[len(prefix) :] if claim.key.startswith(prefix) else claim.key
    asked = Asked(settings, claim.key, ttl=ttl)
    return Wanted(name.decode(errors="replace"), claim, asked.ttl, 0.0, renew, 0.0)


def key_of(settings: Settings, name: Name) -> bytes:
    return octets("prefix", settings.prefix) + octets("name", name)


def permits(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError("permits: it must be a positive integer")
    return EXCLUSIVE if count == 1 else count


def _unique() -> bytes:
    """A random UUID."""
    text = os.urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}".encode()


def candidate_of(owner: bytes) -> str:
    """Whoever took the lock in another way is called by its owner."""
    candidate, slash, unique = owner.rpartition(b"/")
    named = candidate if slash and len(unique) == 36 else owner
    return named.decode(errors="replace")
