"""``Lock`` of redis-py by the commands of the module, with the same methods, arguments and errors::

    redis.Redis().lock("report", timeout=10, lock_class=leasehold.drop_in.redis_py.Lock)

:func:`install` makes it the class of every ``Redis.lock(...)`` of the program. :class:`AsyncLock` is its twin for
``redis.asyncio``.

Whoever waits has a place in the server's queue, and gets the lock in the step that frees it: nobody sleeps between
tries. The key holds ``<fence>:<token>/<unique>``, and so does ``local.token``: whoever is given that can release the
lock, and not whoever knows the ``token`` of :meth:`Lock.acquire` alone. Only a client that waits opens connections of
its own, which :func:`close` ends. On a server without the module, and for a user who may not use its commands, the lock
is that of redis-py. A value is what redis-py's scripts compare, too: they are asked where the module does not answer.
"""

from __future__ import annotations

import asyncio
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

from .. import Busy, Leasehold, LeaseholdError, NotPermitted, SettingError, Settings, Unreachable, WrongPassword
from .._plain import parse, value
from ..asyncio import Leasehold as AsyncLeasehold
from ..settings import SHORTEST_TTL

Number = Union[int, float]
L = TypeVar("L", Leasehold, AsyncLeasehold)

_LONGEST_TTL = 86_400.0  # seconds: servers take no longer leases, unless they are told to
_FIRST_TTL = 60.0  # seconds: of a lock that is to last longer, or until it is released, until the server is told so
_LONGEST_TOKEN = 200
_BUSY_FOR = 1.0  # seconds: for how long no lock there is tried before it is waited for
_LOOKS_EVERY = 60.0  # seconds: whether a server that had no module has it by now
_UNKNOWN = ("unknown command", "doesn't exist in redis commands")

_waiting: weakref.WeakKeyDictionary[object, Leasehold] = weakref.WeakKeyDictionary()
_async_waiting: weakref.WeakKeyDictionary[object, AsyncLeasehold] = weakref.WeakKeyDictionary()
_without_module: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
_busy: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()  # When a lock there was last found held


class _Asked:
    """What one call of ``acquire`` asks for."""

    def __init__(self, lock: Any, blocking: Optional[bool], limit: Optional[Number], token: Any) -> None:
        self._begun = time.monotonic()
        self._lock = lock
        self.place = _place(lock.redis)
        self.blocks = bool(lock.blocking if blocking is None else blocking)
        self._limit = lock.blocking_timeout if limit is None else limit
        self._key = _bytes(lock, lock.name)
        # Whoever asks with the same token is another one, as there: only the first of them has the lock.
        unique = uuid.uuid4().hex.encode()
        self.owner = unique if token is None else _bytes(lock, token)[:_LONGEST_TOKEN] + b"/" + unique
        lasts = float(lock.timeout or 0)
        self._ttl = max(lasts, SHORTEST_TTL) if 0 < lasts <= _LONGEST_TTL else _FIRST_TTL
        # What the server is told then, by a command that runs only while the lock is held.
        self.rest: Optional[tuple[Any, ...]] = None
        if lasts <= 0:
            self.rest = ("PERSIST", lock.name)
        elif lasts > _LONGEST_TTL:
            self.rest = ("PEXPIRE", lock.name, int(lasts * 1000))

    @property
    def words(self) -> tuple[Any, ...]:
        return ("LOCK.ACQUIRE", self._lock.name, self.owner, int(self._ttl * 1000))

    def guarded(self, fence: int) -> Optional[tuple[Any, ...]]:
        return None if self.rest is None else ("LOCK.GUARD", self._lock.name, self.owner, fence, *self.rest)

    def is_of_redis_py(self) -> bool:
        """Whether the lock is that of redis-py, as far as is known."""
        looked = _without_module.get(self.place)
        return looked is not None and time.monotonic() - looked < _LOOKS_EVERY

    def refused(self, error: BaseException) -> bool:
        """Whether redis-py's own lock is to be asked for instead."""
        said = str(error).lower()
        if said.startswith("wrongtype") or "wrong kind of value" in said:
            return True
        if any(words in said for words in _UNKNOWN) or ("'lock." in said and "permission" in said):
            _without_module[self.place] = time.monotonic()
            return True
        return False

    def waits_at_once(self) -> bool:
        return self.blocks and time.monotonic() - _busy.get(self.place, 0.0) < _BUSY_FOR

    def tried(self, fence: Optional[int]) -> Optional[int]:
        if fence is None and self.blocks:
            _busy[self.place] = time.monotonic()
        return fence

    def among(self, all_waiting: weakref.WeakKeyDictionary[object, L], kind: Callable[..., L]) -> L:
        locks = all_waiting.get(self.place)
        if locks is None:
            # The lease must be the whole timeout, and nothing may renew it after that.
            locks = all_waiting[self.place] = kind(self._lock.redis, Settings(confirm=True))
        return locks

    @property
    def left(self) -> Optional[float]:
        return None if self._limit is None else max(0.0, self._limit - (time.monotonic() - self._begun))

    def request(self, locks: L) -> Any:
        left = self.left
        # As there, the answer comes before the time is over, by a pause between two tries at most.
        wait = None if left is None else left - min(float(self._lock.sleep), left / 10)
        return locks.lock(self._key, owner=self.owner, ttl=self._ttl, renew=False, wait=wait)

    def may_try_after(self, pause: float) -> bool:
        left = self.left
        return self.blocks and (left is None or left >= pause)


def _place(client: Any) -> object:
    """What the clients of one server have in common."""
    return getattr(client, "connection_pool", client)


def _bytes(lock: Any, text: Any) -> bytes:
    client = lock.redis
    encoder = client.get_encoder() if hasattr(client, "get_encoder") else client.connection_pool.get_encoder()
    encoded: bytes = encoder.encode(text)
    return encoded


def _of_redis(error: LeaseholdError) -> errors.RedisError:
    kinds: tuple[tuple[type[LeaseholdError], type[errors.RedisError]], ...] = (
        (Unreachable, errors.ConnectionError),
        (WrongPassword, errors.AuthenticationError),
        (NotPermitted, errors.NoPermissionError),
    )
    return next((theirs for ours, theirs in kinds if isinstance(error, ours)), errors.ResponseError)(str(error))


def _grant(lock: Any, token: Any) -> Optional[tuple[int, bytes]]:
    """The fence and the owner in the token of a lock; None if it is none of the module's."""
    grant = parse(b"" if token is None else _bytes(lock, token))
    return grant if grant[0] else None


def _extension(lock: Any, duration: Any) -> Optional[tuple[Any, ...]]:
    """What the module is told so that the lease lasts so long; None if that is not for it to say."""
    grant, millis = _grant(lock, lock.local.token), int(duration * 1000)
    if grant is None or not 0 < millis <= _LONGEST_TTL * 1000:
        return None
    return ("LOCK.EXTEND", lock.name, grant[1], millis, grant[0])


def _release(lock: Any, token: Any) -> Optional[tuple[Any, ...]]:
    grant = _grant(lock, token)
    return ("LOCK.RELEASE", lock.name, grant[1], grant[0]) if grant else None


def _is_ours(kind: type, of: type) -> bool:
    """A class of somebody who asks for the lock in another way is left alone."""
    return kind.do_acquire is of.do_acquire  # type: ignore[attr-defined]


class _Fenced:
    local: Any

    @property
    def fence(self) -> int:
        """The number of this grant: larger than that of every earlier grant. 0 without the module."""
        grant = _grant(self, self.local.token)
        return grant[0] if grant else 0


class Lock(_Fenced, redis.lock.Lock):
    """See :class:`redis.lock.Lock`."""

    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Any = None,
    ) -> bool:
        asked = _Asked(self, blocking, blocking_timeout, token)
        fence: Optional[int] = None
        if asked.is_of_redis_py() or not _is_ours(type(self), redis.lock.Lock):
            return bool(super().acquire(sleep, blocking, blocking_timeout, token))
        try:
            if not asked.waits_at_once():
                fence = asked.tried(self.redis.execute_command(*asked.words))
        except Exception as error:
            if not asked.refused(error):
                raise
            return bool(super().acquire(sleep, blocking, blocking_timeout, token))
        if fence is None and asked.blocks:
            fence = self._wait(asked, float(self.sleep if sleep is None else sleep))
        if fence is None:
            return False
        try:
            words = asked.guarded(fence)
            if words is not None:
                self.redis.execute_command(*words)
        except BaseException as error:
            self.redis.execute_command("LOCK.RELEASE", self.name, asked.owner, fence)
            if not asked.refused(error):
                raise
            return bool(super().acquire(sleep, blocking, asked.left, token))
        self.local.token = value(asked.owner, fence)
        return True

    def _wait(self, asked: _Asked, pause: float) -> Optional[int]:
        try:
            lease = asked.request(asked.among(_waiting, Leasehold)).acquire()
        except Busy:
            return None
        except SettingError:
            # It cannot be connected in the same way, so it polls.
            fence: Optional[int] = None
            while fence is None and asked.may_try_after(pause):
                time.sleep(pause)
                fence = self.redis.execute_command(*asked.words)
            return fence
        except LeaseholdError as error:
            raise _of_redis(error) from error
        lease.detach()
        return int(lease.fence)

    def do_release(self, expected_token: Any) -> None:
        if not self._said(_release(self, expected_token)):
            super().do_release(expected_token)

    def do_extend(self, additional_time: Number, replace_ttl: bool) -> bool:
        # What is left is for a script to say, on the primary. celery-redbeat sets one of its own.
        is_ours = replace_ttl and "lua_extend" not in vars(self)
        if is_ours and self._said(_extension(self, additional_time)):
            return True
        return bool(super().do_extend(additional_time, replace_ttl))

    def do_reacquire(self) -> bool:
        is_said = self._said(_extension(self, self.timeout))
        return is_said or bool(super().do_reacquire())

    def _said(self, words: Optional[tuple[Any, ...]]) -> bool:
        """Whether the module says so. If not, the script is asked, which looks at the value."""
        try:
            return words is not None and bool(self.redis.execute_command(*words))
        except (errors.ConnectionError, errors.TimeoutError):
            # It may have been done: the script would find nothing, and call the lock lost.
            raise
        except errors.RedisError:
            return False


class AsyncLock(_Fenced, redis.asyncio.lock.Lock):
    """See :class:`redis.asyncio.lock.Lock`."""

    async def acquire(
        self, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None, token: Any = None
    ) -> bool:
        asked = _Asked(self, blocking, blocking_timeout, token)
        fence: Optional[int] = None
        if asked.is_of_redis_py() or not _is_ours(type(self), redis.asyncio.lock.Lock):
            return bool(await super().acquire(blocking, blocking_timeout, token))
        try:
            if not asked.waits_at_once():
                fence = asked.tried(await self.redis.execute_command(*asked.words))
        except Exception as error:
            if not asked.refused(error):
                raise
            return bool(await super().acquire(blocking, blocking_timeout, token))
        if fence is None and asked.blocks:
            fence = await self._wait(asked, float(self.sleep))
        if fence is None:
            return False
        try:
            words = asked.guarded(fence)
            if words is not None:
                await self.redis.execute_command(*words)
        except BaseException as error:
            await self.redis.execute_command("LOCK.RELEASE", self.name, asked.owner, fence)
            if not asked.refused(error):
                raise
            return bool(await super().acquire(blocking, asked.left, token))
        self.local.token = value(asked.owner, fence)
        return True

    async def _wait(self, asked: _Asked, pause: float) -> Optional[int]:
        try:
            lease = await asked.request(asked.among(_async_waiting, AsyncLeasehold)).acquire()
        except Busy:
            return None
        except SettingError:
            fence: Optional[int] = None
            while fence is None and asked.may_try_after(pause):
                await asyncio.sleep(pause)
                fence = await self.redis.execute_command(*asked.words)
            return fence
        except LeaseholdError as error:
            raise _of_redis(error) from error
        lease.detach()
        return int(lease.fence)

    async def do_release(self, expected_token: Any) -> None:
        if not await self._said(_release(self, expected_token)):
            await super().do_release(expected_token)

    async def do_extend(self, additional_time: Number, replace_ttl: bool) -> bool:
        # What is left is for a script to say, on the primary. celery-redbeat sets one of its own.
        is_ours = replace_ttl and "lua_extend" not in vars(self)
        if is_ours and await self._said(_extension(self, additional_time)):
            return True
        return bool(await super().do_extend(additional_time, replace_ttl))

    async def do_reacquire(self) -> bool:
        is_said = await self._said(_extension(self, self.timeout))
        return is_said or bool(await super().do_reacquire())

    async def _said(self, words: Optional[tuple[Any, ...]]) -> bool:
        """Whether the module says so. If not, the script is asked, which looks at the value."""
        try:
            return words is not None and bool(await self.redis.execute_command(*words))
        except (errors.ConnectionError, errors.TimeoutError):
            # It may have been done: the script would find nothing, and call the lock lost.
            raise
        except errors.RedisError:
            return False


def close(client: Any) -> None:
    """Ends the connections on which locks of this client were waited for, if there are any."""
    locks = _waiting.pop(_place(client), None)
    if locks is not None:
        locks.close()


async def aclose(client: Any) -> None:
    """The same for a client of ``redis.asyncio``, before its loop ends."""
    locks = _async_waiting.pop(_place(client), None)
    if locks is not None:
        await locks.close()


def install() -> None:
    """Makes these the classes of every ``lock(...)`` of redis-py in this program that is not told another."""
    for module in (redis.client, redis.cluster):
        module.Lock = Lock  # type: ignore[attr-defined]
    for its in (redis.asyncio.client, redis.asyncio.cluster):
        its.Lock = AsyncLock  # type: ignore[attr-defined]
