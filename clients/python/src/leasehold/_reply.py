"""What servers answer, as this package reads it: bytes, numbers, nil, lists, and errors inside of lists."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Union

from redis.exceptions import RedisError

Reply = Union[None, int, bytes, RedisError, List["Reply"]]
Word = Union[bytes, str, int]
Words = Sequence[Word]


def number(reply: Reply) -> Optional[int]:
    """A fence or a count; None for nil. Scripts answer with digits."""
    if isinstance(reply, bytes):
        return int(reply)
    return reply if isinstance(reply, int) else None


def fields(reply: Reply) -> Dict[bytes, Reply]:
    """Names and values in turn. They are read by name, for later servers have more of them."""
    if not isinstance(reply, list):
        return {}
    names, values = reply[0::2], reply[1::2]
    return {name: value for name, value in zip(names, values) if isinstance(name, bytes)}
