"""From what a caller says to what is asked for: defaults, checks, and the name of the key."""

from __future__ import annotations

import itertools
import math
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Generic, NamedTuple, Optional, Sequence, TypedDict, TypeVar, Union
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ._questions import EXCLUSIVE, UNLIMITED, Claim
from ._target import Alone, AnyClient, Several, several, target_of
from .errors import SettingError
from .settings import SHORTEST_TTL, Duration, Name, Renewal, Settings, between, integer, octets, patience

_TEXT = re.compile(r"leasehold:([^:]*):([^:]+):([0-9]{1,16})")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})|[^!-~]")


@dataclass(frozen=True)
class Detached:
    """A lock that was left held by :meth:`Lease.detach`. As text, for the payload of a job, it is
    ``leasehold:<lock>:<owner>:<fence>``, several locks separated by commas, other bytes than ``-._~`` in percent."""

    keys: tuple[bytes, ...]  # The locks as the server names them, prefix included
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


if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")
E = TypeVar("E")


@dataclass(frozen=True)
class ReadWrite(Generic[R]):
    """The right to read, and the right to write."""

    read: R
    write: R


class Factory(Generic[R, E]):
    _kind: Callable[[Any, Wanted], R]
    _election: Callable[[Any, Wanted, float], E]

    def __init__(
        self,
        client: Union[AnyClient, Alone, Several],
        settings: Optional[Settings] = None,
        **defaults: Unpack[Defaults],
    ) -> None:
        given: dict[str, Any] = {name: its for name, its in defaults.items() if its is not None}
        self._settings = replace(settings or Settings(), **given)
        self._target = client if isinstance(client, (Several, Alone)) else target_of(client)
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        raise NotImplementedError

    def lock(self, name: Name, **options: Unpack[BlockOptions]) -> R:
        """A lock that one holds at a time."""
        return self._kind(self, Wanted(self._settings, name, EXCLUSIVE, **options))

    def read(self, name: Name, **options: Unpack[BlockOptions]) -> R:
        """The right to read: readers hold a lock together, and a writer alone. It needs the module."""
        return self._kind(self, Wanted(self._settings, name, UNLIMITED, **options))

    def write(self, name: Name, **options: Unpack[BlockOptions]) -> R:
        """The right to write: alone, when all readers who came before have left. It is what :meth:`lock` is."""
        return self.lock(name, **options)

    def read_write(self, name: Name, **options: Unpack[BlockOptions]) -> ReadWrite[R]:
        """Both sides of one lock."""
        return ReadWrite(self.read(name, **options), self.write(name, **options))

    def several(self, names: Sequence[Name], **options: Unpack[BlockOptions]) -> R:
        """All of these locks or none, with one fence: in a cluster, of one slot. Whoever waits holds none."""
        if isinstance(names, (str, bytes)) or not names:
            raise SettingError("names: they must be a list of at least one name")
        return self._kind(self, Wanted(self._settings, names[0], EXCLUSIVE, also=names[1:], **options))

    def semaphore(self, name: Name, count: int, **options: Unpack[BlockOptions]) -> R:
        """One of ``count`` permits: if those who ask disagree, the smallest count. More than one needs the module."""
        return self._kind(self, Wanted(self._settings, name, integer("permits", count, 1), **options))

    def election(self, name: Name, candidate: str, *, look_every: Duration = 1.0, **options: Unpack[Options]) -> E:
        """An election, in which this program goes by the name of ``candidate``, such as that of its host."""
        asked = Wanted(self._settings, name, candidate=candidate, **options)
        return self._election(self, asked, between("look_every", look_every))


class OfSeveral(Factory[R, E]):
    def __init__(
        self, clients: Sequence[AnyClient], settings: Optional[Settings] = None, **defaults: Unpack[Defaults]
    ) -> None:
        super().__init__(several(clients), settings, **defaults)


LONGEST_OWNER = 255
_NUMBERS = itertools.count(1)
MOST_ALSO = 128


class Defaults(TypedDict, total=False):
    """Those of :class:`Settings`, which has more of them."""

    prefix: Optional[Name]
    ttl: Optional[Duration]
    wait: Optional[Duration]


class TryOptions(TypedDict, total=False):
    """How a lock is asked for. What is None or left out is as in :class:`Settings`."""

    ttl: Optional[Duration]  # How long its lease lasts
    renew: Renewal  # Whether it is renewed, or for how long
    hold_at_least: Optional[Duration]  # For so long from the grant it is held, although it is released before
    ephemeral: Optional[Duration]  # How long it is held after the end of its program or of the connection: 0 or more
    replicas: int  # How many replicas have to acknowledge the grant; :class:`TooFewReplicas` if fewer do
    replicas_within: Optional[Duration]  # How long they may take; ``Settings.response`` if it is left out
    durable: bool  # Whether it has to be in the append-only files of the server and of these replicas
    owner: Name  # As whom: whoever asks again with it gets the same grant. Otherwise each request has another one.


class Options(TryOptions, total=False):
    wait: Optional[Duration]  # How long to wait, as a hard limit


class BlockOptions(Options, total=False):
    reentrant: bool  # Whether a block inside the block has the same lease, without asking: the last one gives it back


class Copies(NamedTuple):
    replicas: int
    limit: float
    is_durable: bool


class Wanted:
    """A lock, and how it is asked for: of a request, and then of each try with an owner of its own."""

    # fmt: off
    __slots__ = (
        "_candidate", "_owner", "claim", "copies", "hold_at_least", "name", "number", "reentrant", "renew", "ttl",
        "wait",
    )
    # fmt: on

    def __init__(
        self,
        settings: Settings,
        name: Name,
        share: int = EXCLUSIVE,
        *,
        ttl: Optional[Duration] = None,
        wait: Optional[Duration] = None,
        renew: Renewal = True,
        hold_at_least: Optional[Duration] = None,
        owner: Optional[Name] = None,
        ephemeral: Optional[Duration] = None,
        replicas: int = 0,
        replicas_within: Optional[Duration] = None,
        durable: bool = False,
        reentrant: bool = False,
        also: Sequence[Name] = (),
        candidate: Optional[Name] = None,
    ) -> None:
        self.name: Name = name
        key = key_of(settings, name)
        others: tuple[bytes, ...] = ()
        if also:
            self.name = ", ".join(map(_text, (name, *also)))
            others = tuple(key_of(settings, each) for each in also)
            if len(also) > MOST_ALSO or len({key, *others}) <= len(also):
                raise SettingError(f"names: they must be different, and at most {MOST_ALSO + 1}")
        self.ttl = between("ttl", settings.ttl if ttl is None else ttl, SHORTEST_TTL)
        self.wait = patience("wait", settings.wait if wait is None else wait)
        self.reentrant = reentrant
        self.number = 0  # Of each request, which may ask several times
        self.renew = (math.inf if renew else 0.0) if isinstance(renew, bool) else between("renew", renew, 0)
        self.hold_at_least = 0.0 if hold_at_least is None else between("hold_at_least", hold_at_least, 0)
        grace = None if ephemeral is None else between("ephemeral", ephemeral, 0)
        self.claim = Claim(key, b"", share, others, grace)  # It has an owner as soon as it is asked for
        self.copies: Optional[Copies] = None
        if replicas or durable:
            limit = between("replicas_within", settings.response if replicas_within is None else replicas_within)
            self.copies = Copies(integer("replicas", replicas, 0), limit, durable)
        self._owner = None if owner is None else octets("owner", owner)
        if self._owner is not None and (not 0 < len(self._owner) <= LONGEST_OWNER or self._owner == b"*"):
            raise SettingError(f"owner: it must be from 1 to {LONGEST_OWNER} bytes long, and not *")
        self._candidate = None if candidate is None else octets("candidate", candidate)
        if self._candidate is not None and len(self._candidate) + 37 > LONGEST_OWNER:
            raise SettingError(f"candidate: it must be at most {LONGEST_OWNER - 37} bytes long")

    def check_alone(self) -> None:
        if self.reentrant:
            raise SettingError("reentrant: it is for blocks: with, run, or locked")

    def owner(self) -> bytes:
        if self._owner is not None:
            return self._owner
        return (b"%d:" % os.getpid() if self._candidate is None else self._candidate + b"/") + _unique()

    def wanted(self, is_try: bool) -> Wanted:
        owner = self.owner()
        its, claim = object.__new__(Wanted), self.claim
        its.name, its.ttl, its.renew, its.copies = self.name, self.ttl, self.renew, self.copies
        its.number = self.number or next(_NUMBERS)
        its.hold_at_least, its.wait = self.hold_at_least, 0.0 if is_try else self.wait
        its.claim = Claim(claim.key, owner, claim.share, claim.also, claim.grace)
        its._owner, its._candidate = self._owner, self._candidate  # Of a quorum, each try has an owner of its own
        return its


def adopted(settings: Settings, detached: Detached, ttl: Optional[Duration], renew: Renewal) -> Wanted:
    keys, prefix = detached.keys, octets("prefix", settings.prefix)
    names = [key[len(prefix) :] if key.startswith(prefix) else key for key in keys]
    wanted = Wanted(settings, names[0], ttl=ttl, also=names[1:], renew=renew)
    wanted.name = ", ".join(map(_text, names))
    wanted.claim, wanted.number = Claim(keys[0], detached.owner, EXCLUSIVE, keys[1:]), next(_NUMBERS)
    return wanted


def _text(name: Name) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


def key_of(settings: Settings, name: Name) -> bytes:
    return octets("prefix", settings.prefix) + octets("name", name)


def _unique() -> bytes:
    text = os.urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}".encode()


def candidate_of(owner: bytes) -> str:
    """Whoever took the lock in another way is called by its owner."""
    candidate, slash, unique = owner.rpartition(b"/")
    named = candidate if slash and len(unique) == 36 else owner
    return named.decode(errors="replace")
