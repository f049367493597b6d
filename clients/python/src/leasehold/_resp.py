"""The protocol of the server, as far as this package needs it: RESP2."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, TypeVar, Union

from redis.exceptions import ConnectionError as Disconnected, RedisError, ResponseError

from .errors import SettingError
from .settings import octets

Reply = Union[None, int, bytes, RedisError, list["Reply"]]  # Errors are values here: those who asked raise them
Word = Union[bytes, str, int]
E = TypeVar("E")


def pack(words: Sequence[Word]) -> bytes:
    told: list[Union[int, bytes]] = []
    for word in words:
        octets = word if type(word) is bytes else b"%d" % word if type(word) is int else _octets(word)
        told.append(len(octets))
        told.append(octets)
    count = len(words)
    form = _FORMS[count] if count < len(_FORMS) else _form(count)
    return form % (*told,)


def _form(count: int) -> bytes:
    return b"*%d\r\n" % count + b"$%d\r\n%b\r\n" * count


_FORMS = [_form(count) for count in range(16)]


def _octets(word: object) -> bytes:
    if isinstance(word, str):
        return octets("command", word)
    if isinstance(word, (int, float)) and not isinstance(word, bool):
        return repr(word).encode()
    if isinstance(word, (bytes, bytearray, memoryview)):
        return bytes(word)
    raise SettingError(f"command: a word must be str, bytes or a number, and not {type(word).__name__}")


class Parser:
    __slots__ = ("_arrays", "_missing", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._missing = 0  # How many bytes have to come at least before the rest can be read
        self._arrays: list[tuple[int, list[Reply]]] = []
        """Those under way: how many elements each will have, and those that have come."""

    @property
    def is_amid(self) -> bool:
        return bool(self._pieces or self._arrays)

    def feed(self, data: bytes) -> list[Reply]:
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        replies: list[Reply] = []
        at, length, missing = 0, len(data), 1
        while at < length:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            kind, after = data[at], end + 2
            reply: Reply = None
            if kind == 36:  # $
                size = int(data[at + 1 : end])
                if size >= 0:
                    after += size + 2
                    if after > length:
                        missing = after - length
                        break
                    reply = data[end + 2 : after - 2]
            elif kind == 58:  # :
                reply = int(data[at + 1 : end])
            elif kind == 43:  # +
                reply = data[at + 1 : end]
            elif kind == 45:  # -
                reply = ResponseError(data[at + 1 : end].decode(errors="replace"))
            elif kind == 42:  # *
                size = int(data[at + 1 : end])
                at = after
                if size > 0:
                    self._arrays.append((size, []))
                    continue
                reply = [] if size == 0 else None
            else:
                raise Disconnected("the server does not speak RESP2")
            at = after
            while self._arrays:
                size, elements = self._arrays[-1]
                elements.append(reply)
                if len(elements) < size:
                    break
                self._arrays.pop()
                reply = elements
            else:
                replies.append(reply)
        if at < length:
            self._pieces, self._missing = [data[at:]], missing
        return replies


def number(reply: Reply) -> Optional[int]:
    """A fence or a count; None for nil. Scripts answer with digits."""
    if isinstance(reply, bytes):
        return int(reply)
    return reply if isinstance(reply, int) else None


def fields(reply: Reply) -> dict[bytes, Reply]:
    if not isinstance(reply, list):
        return {}
    names, values = reply[0::2], reply[1::2]
    return {name: value for name, value in zip(names, values) if isinstance(name, bytes)}


_READ: dict[str, Callable[[Reply], object]] = {
    "bytes": lambda told: told if isinstance(told, bytes) else b"",
    "str": lambda told: told.decode(errors="replace") if isinstance(told, bytes) else "",
    "int": lambda told: number(told) or 0,
    "float": lambda told: (number(told) or 0) / 1000,
    "Optional[float]": lambda told: told / 1000 if isinstance(told, int) and told >= 0 else None,
    "Optional[int]": number,
}
_NAMES = {"name": b"key", "lasted": b"ms"}


def read(kind: Callable[..., E], told: dict[bytes, Reply]) -> E:
    """What a server lists, as the fields of a class: in seconds, where it counts milliseconds."""
    names = ((_NAMES.get(name, name.replace("_", "-").encode()), form) for name, form in kind.__annotations__.items())
    return kind(*(_READ[str(getattr(form, "__forward_arg__", form))](told.get(name)) for name, form in names))


def listed(kind: Callable[..., E], reply: Reply) -> list[E]:
    return [read(kind, fields(each)) for each in (reply if isinstance(reply, list) else [])]
