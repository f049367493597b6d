"""What requests come to. None of these is an error."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

Name = Union[str, bytes]


class Loss(enum.Enum):
    """Why a lease holds nothing any more."""

    EXPIRED = "its lease could have ended"  # The lease has run out, or could have, before it was renewed
    TAKEN = "the server says that it is not held"  # It was deleted, or somebody else has it
    RELEASED = "it was released"  # It was given back
    DETACHED = "it was left to its lease"  # :meth:`Lease.detach` was called: nobody renews it any more
    CLOSED = "the client was closed"  # The client was closed, and gave the lock back
    FORKED = "it belongs to the parent process"  # This is a child process: the lock is its parent's


class Released(enum.Enum):
    """What a release came to."""

    RELEASED = "released"  # It was held until now, and is free or the next one's
    LATE = "late"  # It was lost before: the work may have been done without the lock. The ttl is too short for it.
    LATER = "later"  # It was held until now, and the server frees it when the time of ``hold_at_least`` is over
    DETACHED = "detached"  # :meth:`Lease.detach` was called before: the lock stays until its lease ends

    @property
    def in_time(self) -> bool:
        """Whether the lock was held up to the release."""
        return self is not Released.LATE


class Event(NamedTuple):
    """A step of a lock, for ``Settings.on_event``."""

    step: str  # asked, queued, granted, refused (granted nothing); and then renewed, lost, released
    name: Name
    owner: bytes
    fence: int  # 0 before it is granted
    seconds: float  # Since it was asked for; for lost and released: since the grant; for renewed: until its lease ends
    outcome: str = ""  # Of refused: busy, or error; of lost and released: the name of its Loss, small
    request: int = 0  # The same number for all steps of what was asked for once


class LockInfo(NamedTuple):
    """What is known of a lock that is held. If several hold it: of the oldest hold."""

    owner: bytes  # As whom it is held
    fence: int  # The fence of the grant; 0 for a lock that another kind of client wrote
    ttl: Optional[float]  # What is left of the lease, in seconds; None if it has no end
    holders: int  # How many hold it
    share: int  # How many holders at a time they tolerate: 1 for an exclusive lock, 0 for no limit
    waiters: Optional[int]  # How many wait in the server's queue; None where the server keeps no queue


class Holder(NamedTuple):
    """One of those who hold a lock."""

    owner: bytes
    fence: int
    ttl: Optional[float]
    share: int


class Waiter(NamedTuple):
    """One of those who wait for a lock."""

    owner: bytes
    client: int  # The id of its connection
    waited: float
    patience: Optional[float]  # What is left of it, or of its ticket; None: without limit
    share: int
    kind: str  # ``block`` or ``ticket``
    locks: int  # For how many it waits at once


class Contended(NamedTuple):
    """How much a lock was waited for: ``LOCK.TOP``."""

    name: bytes
    db: int
    waits: int
    refused: int
    wait_total: float
    wait_longest: float
    missed: int


class LogEntry(NamedTuple):
    """What went wrong with a lock: ``LOCK.LOG``."""

    id: int
    time: float  # Unix time
    event: str
    db: int
    name: bytes
    owner: bytes
    lasted: Optional[float]  # What it means depends on the event


@dataclass(frozen=True)
class Leader:
    """Who leads, and by which fence: it is larger than that of any earlier term."""

    candidate: str
    fence: int
