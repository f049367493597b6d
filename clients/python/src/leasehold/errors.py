"""What can go wrong. That somebody else has the lock is :class:`Busy`, and only where the caller waited."""

from __future__ import annotations

from typing import Union

from .outcomes import Loss


class LeaseholdError(Exception):
    """All that this package raises. They can be pickled: a pool of processes passes them on."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).__new__, (type(self), *self.args), self.__dict__


class Busy(LeaseholdError):
    """Others held the lock for as long as the caller was ready to wait."""

    def __init__(self, name: Union[str, bytes], waited: float) -> None:
        super().__init__(f"the lock {name!r} was held by others for {waited:.3f} s")
        self.name, self.waited = name, waited


class Unreachable(LeaseholdError):
    """No server answered in time, or none that grants locks."""


class Unanswered(Unreachable):
    """A guarded command was sent, and nobody answered: it may have been run, once at the most."""


class TooFewReplicas(LeaseholdError):
    """Too few replicas had the grant in time, or no append-only file had. The lock was given back."""

    def __init__(self, name: Union[str, bytes], acknowledged: int, wanted: int) -> None:
        super().__init__(f"the lock {name!r} was acknowledged by {acknowledged} of {wanted} replicas, and given back")
        self.name, self.acknowledged, self.wanted = name, acknowledged, wanted


class Refused(LeaseholdError):
    """The server refused, and would refuse again. ``code`` is the first word of what it said."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the server refused: {reason}")
        self.code, self.reason = code, reason


class WrongPassword(Refused):
    """The server does not know this user, or not by this password."""


class NotPermitted(Refused):
    """The user may not run this command, or not on this key."""


class OutOfMemory(Refused):
    """The server is above ``maxmemory``."""


class WrongType(Refused):
    """The key of the lock holds something that is no lock."""


class ReadOnly(Refused):
    """The server is a replica, and no primary was found in time."""


class QueueFull(Refused):
    """As many wait as may, and no place became free in time."""


class NeedsModule(Refused):
    """The server does not have the module, or one that is too old for this."""


class LockLost(LeaseholdError):
    """The lock was lost, and the work under it was stopped, or is to stop."""

    def __init__(self, name: Union[str, bytes], loss: Loss) -> None:
        super().__init__(f"the lock {name!r} was lost: {loss.value}")
        self.name, self.loss = name, loss


class Closed(LeaseholdError):
    """The client was closed."""

    def __init__(self) -> None:
        super().__init__("the client was closed")


class SettingError(LeaseholdError, ValueError):
    """A setting or an argument has no sense."""


# fmt: off
BY_CODE = {
    "NOAUTH": WrongPassword, "WRONGPASS": WrongPassword, "NOPERM": NotPermitted, "OOM": OutOfMemory,
    "WRONGTYPE": WrongType, "READONLY": ReadOnly, "QUEUEFULL": QueueFull,
}
# fmt: on
