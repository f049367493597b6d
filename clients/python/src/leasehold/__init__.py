"""Locks on Redis and Valkey, as commands of the server: for redis-py, from threads and from asyncio.

:class:`Leasehold` is for programs of threads, :class:`leasehold.asyncio.Leasehold` for those of asyncio.
"""

# fmt: off
from ._wanted import Detached as Detached  # noqa: I001
from ._wanted import ReadWrite as ReadWrite
from .errors import (
    Busy as Busy, Closed as Closed, LeaseholdError as LeaseholdError, LockLost as LockLost,
    NeedsModule as NeedsModule, NotPermitted as NotPermitted, OutOfMemory as OutOfMemory, QueueFull as QueueFull,
    ReadOnly as ReadOnly, Refused as Refused, SettingError as SettingError, TooFewReplicas as TooFewReplicas,
    Unanswered as Unanswered, Unreachable as Unreachable, WrongPassword as WrongPassword, WrongType as WrongType,
)
from .outcomes import (
    Contended as Contended, Event as Event, Holder as Holder, Leader as Leader, LockInfo as LockInfo,
    LogEntry as LogEntry, Loss as Loss, Released as Released, Waiter as Waiter,
)
from .settings import Duration as Duration, Name as Name, Settings as Settings
from .sync import (
    Election as Election, Leadership as Leadership, Lease as Lease, Leasehold as Leasehold,
    LockRequest as LockRequest, LossSignal as LossSignal, Quorum as Quorum,
)
# fmt: on

__version__ = "0.3.0"
