"""Locks on Redis and Valkey, as commands of the server: for redis-py, from threads and from asyncio.

:class:`Leasehold` is for programs of threads, :class:`leasehold.asyncio.Leasehold` for those of asyncio.
"""

from .errors import (
    Busy,
    Closed,
    LeaseholdError,
    LockLost,
    NeedsModule,
    NotPermitted,
    OutOfMemory,
    QueueFull,
    ReadOnly,
    Refused,
    SettingError,
    Unanswered,
    Unreachable,
    WrongPassword,
    WrongType,
)
from .outcomes import Leader, LockInfo, Loss, Released
from .settings import Duration, Name, Settings
from .sync import Election, Leadership, Lease, Leasehold, LockRequest, LossSignal

__all__ = [
    "Busy",
    "Closed",
    "Duration",
    "Election",
    "Leader",
    "Leadership",
    "Lease",
    "Leasehold",
    "LeaseholdError",
    "LockInfo",
    "LockLost",
    "LockRequest",
    "Loss",
    "LossSignal",
    "Name",
    "NeedsModule",
    "NotPermitted",
    "OutOfMemory",
    "QueueFull",
    "ReadOnly",
    "Refused",
    "Released",
    "SettingError",
    "Settings",
    "Unanswered",
    "Unreachable",
    "WrongPassword",
    "WrongType",
]
__version__ = "0.2.0"
