"""What an error means for whoever asked. Pure."""

from __future__ import annotations

import enum
from typing import Optional

from redis import exceptions as redis_errors

from .errors import BY_CODE, LeaseholdError, Refused, SettingError, Unreachable


class Verdict(enum.Enum):
    BROKEN = enum.auto()  # The connection is of no more use, and nobody knows whether the request was heard
    ELSEWHERE = enum.auto()  # This server does not grant locks any more: look for the one that does
    MOVED = enum.auto()  # The slot is there now
    ASK = enum.auto()  # This once, ask there
    AGAIN = enum.auto()  # In a moment it may be different
    REPLACED = enum.auto()  # A newer request of the same owner took the place in the queue
    UNKNOWN_COMMAND = enum.auto()  # The server has not what it had, or what was thought
    UNKNOWN_SCRIPT = enum.auto()
    HAS_MODULE = enum.auto()  # The server has the module by now, which it had not
    REFUSED = enum.auto()  # Another try would come to the same


# While redis-py connects, it cuts the code off the text of the errors that it has a class for.
_CUT: dict[type[BaseException], str] = {
    redis_errors.BusyLoadingError: "LOADING",
    redis_errors.NoPermissionError: "NOPERM",
}

# fmt: off
_AGAIN = ("TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "QUEUEFULL", "NOREPLICAS", "MISCONF")
_VERDICTS = {
    **dict.fromkeys(_AGAIN, Verdict.AGAIN), "READONLY": Verdict.ELSEWHERE, "UNBLOCKED": Verdict.ELSEWHERE,
    "MOVED": Verdict.MOVED, "ASK": Verdict.ASK, "REPLACED": Verdict.REPLACED,
    "NOSCRIPT": Verdict.UNKNOWN_SCRIPT, "LEASEHOLD": Verdict.HAS_MODULE,
}
# fmt: on


def code_of(error: BaseException) -> tuple[str, str]:
    """The first word of what the server said, and all of it; no code if it said nothing."""
    text, code = str(error), _CUT.get(type(error))
    if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        code = "NOAUTH" if "required" in text else "WRONGPASS"
    if code is not None:
        return code, text if text.startswith(code) else f"{code} {text}"
    if isinstance(error, redis_errors.ResponseError):
        if "Error running script" in text:  # Redis 6.2 wraps the error of a command that a script calls
            text = text.partition(": -")[2] or text
        first = text.split(" ", 1)[0]
        return (first, text) if first.isupper() and first.isalpha() else ("ERR", f"ERR {text}")
    return "", text


def verdict(error: BaseException) -> Verdict:
    code, text = code_of(error)
    if "max number of clients" in text and code in ("", "ERR"):
        return Verdict.AGAIN  # by redis-py that is the end of a connection
    if not code:
        is_wrong = isinstance(error, redis_errors.DataError)
        return Verdict.REFUSED if is_wrong else Verdict.BROKEN
    if code == "ERR" and "unknown command" in text:
        return Verdict.UNKNOWN_COMMAND
    return _VERDICTS.get(code, Verdict.REFUSED)


def redirection_in(error: BaseException) -> Optional[tuple[str, int, tuple[str, int]]]:
    parts = code_of(error)[1].split(" ")
    if len(parts) != 3 or parts[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = parts[2].rpartition(":")
    return (parts[0], int(parts[1]), (host, int(port))) if host else None


def public(error: BaseException) -> LeaseholdError:
    if isinstance(error, LeaseholdError):
        return error
    code, text = code_of(error)
    if isinstance(error, redis_errors.DataError):
        return SettingError(text)
    is_silent = not code or code in {"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK"}
    if is_silent:
        return Unreachable(f"no server that grants locks: {text or type(error).__name__}")
    return BY_CODE.get(code, Refused)(code, text)
