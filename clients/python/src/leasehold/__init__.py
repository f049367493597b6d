"""Locks on Redis and Valkey, as commands of the server: for redis-py, from threads and from asyncio.

:class:`Leasehold` is for programs of threads, :class:`leasehold.asyncio.Leasehold` for those of asyncio.
"""

from ._detached import Detached as Detached
from ._wanted import ReadWrite as ReadWrite
from .errors import Busy as Busy
from .errors import Closed as Closed
from .errors import LeaseholdError as LeaseholdError
from .errors import LockLost as LockLost
from .errors import NeedsModule as NeedsModule
from .errors import NotPermitted as NotPermitted
from .errors import OutOfMemory as OutOfMemory
from .errors import QueueFull as QueueFull
from .errors import ReadOnly as ReadOnly
from .errors import Refused as Refused
from .errors import SettingError as SettingError
from .errors import TooFewReplicas as TooFewReplicas
from .errors import Unanswered as Unanswered
from .errors import Unreachable as Unreachable
from .errors import WrongPassword as WrongPassword
from .errors import WrongType as WrongType
from .outcomes import Leader as Leader
from .outcomes import LockInfo as LockInfo
from .outcomes import Loss as Loss
from .outcomes import Released as Released
from .settings import Duration as Duration
from .settings import Name as Name
from .settings import Settings as Settings
from .sync import Election as Election
from .sync import Leadership as Leadership
from .sync import Lease as Lease
from .sync import Leasehold as Leasehold
from .sync import LockRequest as LockRequest
from .sync import LossSignal as LossSignal

__version__ = "0.2.0"
