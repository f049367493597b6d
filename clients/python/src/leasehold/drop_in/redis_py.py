"""``Lock`` of redis-py by the commands of the module, with the same methods, arguments and errors::

    redis.Redis().lock("report", timeout=10, lock_class=leasehold.drop_in.redis_py.Lock)

:func:`install` makes it the class of every ``Redis.lock(...)`` of the program. :class:`AsyncLock` is its twin for
``redis.asyncio``.

Whoever waits has a place in the server's queue, and gets the lock in the step that frees it: nobody sleeps between
tries. The key holds ``<fence>:<token>/<unique>``, and so does ``local.token``: whoever is given that can release the
lock, and not whoever knows the ``token`` of :meth:`Lock.acquire` alone. Only a client that waits opens connections of
its own. On a server without the module the lock is that of redis-py.
"""

from __future__ import annotations

import re
import time
import uuid
import weakref
from typing import Any, Callable, Optional, TypeVar, Union

import redis.asyncio.client
import redis.asyncio.cluster
import redis.asyncio.lock
import redis.client
import redis.cluster
import redis.lock
from redis import exceptions as errors

from .. import Busy, Leasehold, LeaseholdError, Settings, Unreachable, asyncio

Number = Union[int, float]
L = TypeVar("L", Leasehold, asyncio.Leasehold)

_VALUE = re.compile(rb"([1-9][0-9]{0,15}):(.+)", re.DOTALL)
_UNTIL_IT_PERSISTS = 60.0  # seconds: of a lock without a timeout
_BUSY_FOR = 1.0  # seconds: for how long no lock there is tried before it is waited for
_LOOKS_EVERY = 60.0  # seconds: whether a server that had no module has it by now

_waiting: weakref.WeakKeyDictionary[object, Leasehold] = weakref.WeakKeyDictionary()
_async_waiting: weakref.WeakKeyDictionary[object, asyncio.Leasehold] = weakref.WeakKeyDictionary()
_without_module: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
_busy: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()  # When a lock there was last found held


class _Asked:
    """What one call of ``acquire`` asks for."""

    def __init__(self, lock: Any, blocking: Optional[bool], limit: Optional[Number], token: Any) -> None:
        self._begun = time.monotonic()
        self._lock = lock
        self.blocks = lock.blocking if blocking is None else blocking
        self._limit = lock.blocking_timeout if limit is None else limit
        encode = _encoder(lock.redis).encode
        # Whoever asks with the same token is another one, as there: only the first of them has the lock.
        unique = uuid.uuid4().hex.encode()
        self.owner: bytes = unique if token is None else encode(token) + b"/" + unique
        self._key: bytes = encode(lock.name)
        self._ttl = lock.timeout or _UNTIL_IT_PERSISTS

    @property
    def words(self) -> tuple[Any, ...]:
        return ("LOCK.ACQUIRE", self._lock.name, self.owner, int(self._ttl * 1000))

    def waits_at_once(self) -> bool:
        return bool(self.blocks) and time.monotonic() - _busy.get(_place(self._lock.redis), 0.0) < _BUSY_FOR

    def among(self, all_waiting: weakref.WeakKeyDictionary[object, L], kind: Callable[..., L]) -> L:
        place = _place(self._lock.redis)
        _busy[place] = time.monotonic()
        locks = all_waiting.get(place)
        if locks is None:
            # The lease must be the whole timeout, and nothing may renew it after that.
            locks = all_waiting[place] = kind(self._lock.redis, Settings(confirm=True))
        return locks

    def request(self, locks: L) -> Any:
        left = None if self._limit is None else max(0.0, self._limit - (time.monotonic() - self._begun))
        # As there, the answer comes before the time is over, by a pause between two tries at most.
        wait = None if left is None else left - min(self._lock.sleep, left / 10)
        return locks.lock(self._key, owner=self.owner, ttl=self._ttl, renew=False, wait=wait)


def _place(client: Any) -> object:
    """What the clients of one server have in common."""
    return getattr(client, "connection_pool", client)


def _encoder(client: Any) -> Any:
    return client.get_encoder() if hasattr(client, "get_encoder") else client.connection_pool.get_encoder()


def _has_module(client: Any) -> bool:
    looked = _without_module.get(_place(client))
    return looked is None or time.monotonic() - looked > _LOOKS_EVERY


def _is_unknown(client: Any, error: errors.ResponseError) -> bool:
    is_unknown = "unknown command" in str(error)
    if is_unknown:
        _without_module[_place(client)] = time.monotonic()
    return is_unknown


def _of_redis(error: LeaseholdError) -> errors.RedisError:
    return (errors.ConnectionError if isinstance(error, Unreachable) else errors.ResponseError)(str(error))


def _value(fence: int, owner: bytes) -> bytes:
    """What the key holds."""
    return b"%d:%b" % (fence, owner)


def _fence(token: Optional[bytes]) -> int:
    found = _VALUE.fullmatch(token or b"")
    return int(found[1]) if found else 0


def _change(name: str, lock: Any, token: bytes, *words: Any) -> Optional[tuple[Any, ...]]:
    """A command about this grant; None if it is none of the module."""
    found = _VALUE.fullmatch(token)
    return (name, lock.name, found[2], *words, int(found[1])) if found else None


def _lost(what: str, name: Any) -> errors.LockNotOwnedError:
    message = f"Cannot {what} a lock that's no longer owned"
    return errors.LockNotOwnedError(message, lock_name=name)  # type: ignore[no-untyped-call,unused-ignore]


class Lock(redis.lock.Lock):
    """See :class:`redis.lock.Lock`."""

    @property
    def fence(self) -> int:
        """The number of this grant: larger than that of every earlier grant. 0 without the module."""
        return _fence(self.local.token)

    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Any = None,
    ) -> bool:
        asked = _Asked(self, blocking, blocking_timeout, token)
        fence: Optional[int] = -1
        try:
            if _has_module(self.redis):
                fence = None if asked.waits_at_once() else self.redis.execute_command(*asked.words)
        except errors.ResponseError as error:
            if not _is_unknown(self.redis, error):
                raise
            fence = -1
        if fence == -1:
            return bool(super().acquire(sleep, blocking, blocking_timeout, token))
        if fence is None and asked.blocks:
            try:
                lease = asked.request(asked.among(_waiting, Leasehold)).acquire()
            except Busy:
                return False
            except LeaseholdError as error:
                raise _of_redis(error) from error
            lease.detach()
            fence = lease.fence
        if fence is None:
            return False
        self.local.token = _value(fence, asked.owner)
        if not self.timeout:
            self.redis.persist(self.name)
        return True

    def do_release(self, expected_token: Any) -> None:
        words = _change("LOCK.RELEASE", self, expected_token)
        if words is None:
            super().do_release(expected_token)
        elif not self.redis.execute_command(*words):
            raise _lost("release", self.name)

    def do_extend(self, additional_time: Number, replace_ttl: bool) -> bool:
        # celery-redbeat sets a script of its own.
        if "lua_extend" in vars(self) or not self.fence:
            return bool(super().do_extend(additional_time, replace_ttl))
        left = 0 if replace_ttl else self.redis.pttl(self.name)
        return self._lasts("extend", left, additional_time)

    def do_reacquire(self) -> bool:
        if not self.fence:
            return bool(super().do_reacquire())
        return self._lasts("reacquire", 0, self.timeout)

    def _lasts(self, what: str, left: int, duration: Any) -> bool:
        words = _change("LOCK.EXTEND", self, self.local.token, left + int(duration * 1000))
        if left < 0 or words is None or not self.redis.execute_command(*words):
            raise _lost(what, self.name)
        return True


class AsyncLock(redis.asyncio.lock.Lock):
    """See :class:`redis.asyncio.lock.Lock`."""

    @property
    def fence(self) -> int:
        """The number of this grant: larger than that of every earlier grant. 0 without the module."""
        return _fence(self.local.token)

    async def acquire(
        self, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None, token: Any = None
    ) -> bool:
        asked = _Asked(self, blocking, blocking_timeout, token)
        fence: Optional[int] = -1
        try:
            if _has_module(self.redis):
                fence = None if asked.waits_at_once() else await self.redis.execute_command(*asked.words)
        except errors.ResponseError as error:
            if not _is_unknown(self.redis, error):
                raise
            fence = -1
        if fence == -1:
            return bool(await super().acquire(blocking, blocking_timeout, token))
        if fence is None and asked.blocks:
            try:
                lease = await asked.request(asked.among(_async_waiting, asyncio.Leasehold)).acquire()
            except Busy:
                return False
            except LeaseholdError as error:
                raise _of_redis(error) from error
            lease.detach()
            fence = lease.fence
        if fence is None:
            return False
        self.local.token = _value(fence, asked.owner)
        if not self.timeout:
            await self.redis.persist(self.name)
        return True

    async def do_release(self, expected_token: Any) -> None:
        words = _change("LOCK.RELEASE", self, expected_token)
        if words is None:
            await super().do_release(expected_token)
        elif not await self.redis.execute_command(*words):
            raise _lost("release", self.name)

    async def do_extend(self, additional_time: Number, replace_ttl: bool) -> bool:
        if "lua_extend" in vars(self) or not self.fence:
            return bool(await super().do_extend(additional_time, replace_ttl))
        left = 0 if replace_ttl else await self.redis.pttl(self.name)
        return await self._lasts("extend", left, additional_time)

    async def do_reacquire(self) -> bool:
        if not self.fence:
            return bool(await super().do_reacquire())
        return await self._lasts("reacquire", 0, self.timeout)

    async def _lasts(self, what: str, left: int, duration: Any) -> bool:
        words = _change("LOCK.EXTEND", self, self.local.token, left + int(duration * 1000))
        if left < 0 or words is None or not await self.redis.execute_command(*words):
            raise _lost(what, self.name)
        return True


def install() -> None:
    """Makes these the classes of every ``lock(...)`` of redis-py in this program that is not told another."""
    for module in (redis.client, redis.cluster):
        module.Lock = Lock  # type: ignore[attr-defined]
    for its in (redis.asyncio.client, redis.asyncio.cluster):
        its.Lock = AsyncLock  # type: ignore[attr-defined]
