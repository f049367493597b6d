"""A server in memory: it answers the clients of one process as a server with the module does. It has no disk, no
replicas, no users, no scripts and no limits. A thread of its own runs it."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import socket
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar, Iterable, Iterator, Optional

from redis.exceptions import ConnectionError as Disconnected, ResponseError

from ._resp import Parser, Reply
from ._running import LoopThread
from ._time import LONGEST_TIMER, now

Answer = Any  # A Reply, or a text: a status, such as OK
_NUMBERS = itertools.count(1)
LATER: Any = object()  # In place of an answer that comes when the wait is over
Keys = tuple[bytes, ...]


@dataclass(eq=False)
class Hold:
    owner: bytes
    fence: int
    share: int
    end: float
    session: Optional[Session] = None  # That it is bound to
    grace: float = 0.0

    def bind(self, session: Session, grace: Optional[float]) -> None:
        if grace is not None:
            self.session, self.grace = session, grace

    def told(self) -> list[Reply]:
        left = _millis(self.end)
        deadline = time.time_ns() // 1_000_000 + left
        return [b"owner", self.owner, b"fence", self.fence, b"ttl", left, b"deadline", deadline]


@dataclass(eq=False)
class Waiter:
    owner: bytes
    keys: Keys
    share: int
    ttl: float
    session: Session
    since: float
    until: float
    grace: Optional[float]
    kept: Optional[float]  # For how long its place is kept, if it has a ticket; a connection waits otherwise
    channel: Optional[bytes]

    def is_of(self, owner: bytes, keys: Iterable[bytes]) -> bool:
        return self.owner == owner and not set(self.keys).isdisjoint(keys)

    def told(self) -> Reply:
        kind, left = b"block" if self.kept is None else b"ticket", -1 if math.isinf(self.until) else _millis(self.until)
        its: list[Reply] = [b"owner", self.owner, b"client", self.session.number, b"waited", -_millis(self.since)]
        return [*its, b"patience", left, b"share", self.share, b"kind", kind, b"locks", len(self.keys)]


class Memory:
    def __init__(self) -> None:
        self.thread = LoopThread()
        self._process = os.getpid()
        self.sessions: set[Session] = set()
        self._locks: dict[bytes, list[Hold]] = {}
        self._queue: list[Waiter] = []  # Of all locks
        self._values: dict[bytes, bytes] = {}
        self._last_fence = 0
        self._due = math.inf  # When the next of them is over
        self._timer: Optional[asyncio.TimerHandle] = None

    def connect(self) -> socket.socket:
        """A connection, from any thread of this process: the thread that answers is not in a child."""
        if os.getpid() != self._process:
            raise Disconnected("a child process has none of the locks in memory of its parent")
        theirs, ours = socket.socketpair()
        loop = self.thread.loop
        asyncio.run_coroutine_threadsafe(loop.connect_accepted_socket(lambda: Session(self), ours), loop).result()
        return theirs

    def __del__(self) -> None:
        self.thread.stop(0.0)

    def run(self, session: Session, words: list[bytes]) -> Answer:
        if now() >= self._due:
            self._settle()
        try:
            return self._run(session, words)
        except ResponseError as error:
            return error
        except (TypeError, ValueError, IndexError):
            return ResponseError("ERR syntax error")

    def _run(self, session: Session, words: Iterable[bytes]) -> Answer:
        name, *rest = words
        if name.upper() not in self.commands:
            raise ResponseError(f"ERR unknown command '{name.decode(errors='replace')}'")
        return self.commands[name.upper()](self, session, *rest)

    def ended(self, session: Session) -> None:
        self.sessions.discard(session)
        self._queue = [each for each in self._queue if each.kept is not None or each.session is not session]
        for hold in self._holds():
            if hold.session is session:
                hold.session, hold.end = None, min(hold.end, now() + hold.grace)
        self._settle()

    def _settle(self) -> None:
        """Ends what is over, and grants what can be granted: called after whatever may have changed that."""
        here, before = now(), set[bytes]()
        lasting = {key: [hold for hold in holds if hold.end > here] for key, holds in self._locks.items()}
        self._locks = {key: holds for key, holds in lasting.items() if holds}
        for waiter in list(self._queue):
            if waiter.until <= here:
                self._leave(waiter, None)
            elif before.isdisjoint(waiter.keys) and self._admits(waiter.keys, waiter.owner, waiter.share):
                self._hand_on(waiter)
            else:
                before.update(waiter.keys)
        self._due = math.inf
        self._look_by(
            min([each.end for each in self._holds()] + [each.until for each in self._queue], default=math.inf)
        )

    def _look_by(self, moment: float) -> None:
        if moment < self._due:
            self._due = moment
            if self._timer is not None:
                self._timer.cancel()
            rest = min(max(0.0, moment - now()), LONGEST_TIMER)
            self._timer = self.thread.loop.call_later(rest + 0.0005, _settle, weakref.ref(self))

    def _hand_on(self, waiter: Waiter) -> None:
        lasts = waiter.ttl if waiter.kept is None else min(waiter.ttl, waiter.kept)
        fence = self._grant(waiter.keys, waiter.owner, waiter.share, lasts, waiter.session, waiter.grace)
        self._leave(waiter, fence)
        if waiter.channel is not None:
            told = b"%d %d %b %b" % (fence, len(waiter.owner), waiter.owner, waiter.keys[0])
            for each in self.sessions:
                if waiter.channel in each.channels:
                    each.write([b"message", waiter.channel, told])

    def _leave(self, waiter: Waiter, reply: Reply) -> None:
        self._queue.remove(waiter)
        if waiter.kept is None:
            waiter.session.answer(reply)

    def _holds(self) -> Iterator[Hold]:
        return (hold for holds in self._locks.values() for hold in holds)

    def _of(self, keys: Iterable[bytes], owner: bytes, fence: Optional[int] = None) -> list[Hold]:
        """What the owner holds of these, by that fence if one is given."""
        holds = (hold for key in keys for hold in self._locks.get(key, ()))
        return [hold for hold in holds if hold.owner == owner and fence in (None, hold.fence)]

    def _admits(self, keys: Iterable[bytes], owner: bytes, share: int) -> bool:
        others = [[hold.share for hold in self._locks.get(key, ()) if hold.owner != owner] for key in keys]
        return all(len(shares) < _smallest([share, *shares]) for shares in others)

    def _grant(self, keys: Keys, owner: bytes, share: int, ttl: float, session: Session, grace: Optional[float]) -> int:
        self._last_fence = fence = max(self._last_fence + 1, time.time_ns() // 1000)
        for key in keys:
            hold = Hold(owner, fence, share, now() + ttl)
            hold.bind(session, grace)
            self._locks[key] = [each for each in self._locks.get(key, ()) if each.owner != owner] + [hold]
            self._look_by(hold.end)
        return fence

    # The commands of the module.

    def acquire(self, session: Session, key: bytes, owner: bytes, lease: bytes, *options: bytes) -> Answer:
        (given, keys), ttl = _options(key, options), int(lease) / 1000
        share, grace = int(given.get(b"SHARE", b"1")), _seconds(given.get(b"EPHEMERAL"))
        held, fence = self._of(keys, owner), None
        if len(held) == len(keys) and all(_smallest([share, each.share]) == _smallest([each.share]) for each in held):
            for hold in held:
                hold.share, hold.end = share, max(hold.end, now() + ttl)
                hold.bind(session, grace)
            self._settle()
            return held[0].fence
        others = [each for each in self._queue if each.owner != owner and not set(keys).isdisjoint(each.keys)]
        # Whoever holds it goes before those who wait.
        if (held or not others) and self._admits(keys, owner, share):
            fence = self._grant(keys, owner, share, ttl, session, grace)
        kept, patience = _seconds(given.get(b"TICKET")), _seconds(given.get(b"BLOCK"))
        if fence is None and not held and (kept or patience) is not None:
            until = now() + (kept or patience or math.inf)
            channel = given.get(b"NOTIFY")
            self._enter(Waiter(owner, keys, share, ttl, session, now(), until, grace, kept, channel))
            if kept is None:
                return LATER
        return fence

    def _enter(self, waiter: Waiter) -> None:
        """In the place of a former request of the same owner for the same locks, or behind all others."""
        at = len(self._queue)
        for former in [each for each in self._queue if each.is_of(waiter.owner, waiter.keys)]:
            if set(former.keys) == set(waiter.keys):
                at, waiter.since = self._queue.index(former), former.since
            self._leave(
                former, ResponseError("REPLACED a newer request of the same owner took this place in the queue")
            )
        self._queue.insert(at, waiter)
        self._look_by(waiter.until)

    def release(self, _: Session, key: bytes, owner: bytes, *rest: bytes) -> Answer:
        fence, keys = _fence_and_keys(key, rest)
        released = self._of(keys, owner, fence)
        for each in keys:
            self._locks[each] = [hold for hold in self._locks.get(each, ()) if hold not in released]
        if fence is None:
            self._queue = [each for each in self._queue if each.kept is None or not each.is_of(owner, keys)]
        self._settle()
        return len(released)

    def extend(self, _: Session, key: bytes, owner: bytes, lease: bytes, *rest: bytes) -> Answer:
        (fence, keys), ttl = _fence_and_keys(key, rest), int(lease) / 1000
        held = self._of(keys, owner, fence)
        for hold in held if len(held) == len(keys) else []:
            hold.end = now() + ttl
            self._look_by(hold.end)
        return int(len(held) == len(keys))

    def guard(self, session: Session, key: bytes, owner: bytes, fence: bytes, *command: bytes) -> Answer:
        if not self._of([key], owner, int(fence)):
            raise ResponseError("NOTHOLDER this owner does not hold the lock by this fence, nothing was run")
        if command[0].upper() in (b"SUBSCRIBE", b"PING", b"WAIT", b"LOCK.GUARD"):
            raise ResponseError("ERR LOCK.GUARD does not run commands that act on a connection or a subscription")
        return self._run(session, command)

    def info(self, _: Session, key: bytes) -> Answer:
        holds = self._locks.get(key)
        if not holds:
            return None
        waiters, smallest = sum(key in each.keys for each in self._queue), _smallest(each.share for each in holds)
        share = 0 if math.isinf(smallest) else int(smallest)
        return [*holds[0].told(), b"waiters", waiters, b"holders", len(holds), b"share", share]

    def holders(self, _: Session, key: bytes, *__: bytes) -> Answer:
        return [[*each.told(), b"share", each.share] for each in self._locks.get(key, [])]

    def waiters(self, _: Session, key: bytes, *__: bytes) -> Answer:
        return [each.told() for each in self._queue if key in each.keys]

    # What else the package asks, and a few that can be guarded.

    def ping(self, session: Session) -> Answer:
        return [b"pong", b""] if session.channels else "PONG"

    def subscribe(self, session: Session, channel: bytes) -> Answer:
        session.channels.add(channel)
        return [b"subscribe", channel, len(session.channels)]

    def increment(self, _: Session, key: bytes) -> Answer:
        self._values[key] = b"%d" % (int(self._values.get(key, b"0")) + 1)
        return int(self._values[key])

    def delete(self, _: Session, *keys: bytes) -> Answer:
        gone = [key for key in keys if (self._locks.pop(key, None) or self._values.pop(key, None)) is not None]
        self._settle()
        return len(gone)

    commands: ClassVar[dict[bytes, Any]] = {
        **{b"LOCK.ACQUIRE": acquire, b"LOCK.RELEASE": release, b"LOCK.EXTEND": extend, b"LOCK.GUARD": guard},
        **{b"LOCK.INFO": info, b"LOCK.HOLDERS": holders, b"LOCK.WAITERS": waiters, b"PING": ping, b"DEL": delete},
        **{
            b"SUBSCRIBE": subscribe,
            b"SET": lambda memory, _, key, value: memory._values.update({key: value}) or "OK",
            b"INCR": increment,
            b"GET": lambda memory, _, key: memory._values.get(key),
        },
        # Nothing is counted, and there is no replica to wait for.
        **{b"LOCK.TOP": lambda *_: [], b"LOCK.LOG": lambda *_: [], b"WAIT": lambda *_: 0},
        b"COMMAND": lambda *_: [[b"lock.acquire"]],
    }


class Session(asyncio.Protocol):
    """A connection, as the server has it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._parser = Parser()
        self._requests: deque[Any] = deque()
        self._is_waiting = False
        self.channels: set[bytes] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        self._memory.sessions.add(self)
        self.number = next(_NUMBERS)

    def connection_lost(self, _: Optional[Exception]) -> None:
        self._memory.ended(self)

    def data_received(self, data: bytes) -> None:
        self._requests += self._parser.feed(data)
        self._go_on()

    def _go_on(self) -> None:
        while self._requests and not self._is_waiting:
            self._is_waiting = True
            reply = self._memory.run(self, self._requests.popleft())
            if reply is not LATER:
                self.answer(reply)

    def answer(self, reply: Answer) -> None:
        self._is_waiting = False
        self.write(reply)
        if self._requests:
            self._memory.thread.loop.call_soon(self._go_on)

    def write(self, reply: Answer) -> None:
        self.transport.write(_packed(reply))


def _settle(its: weakref.ref[Memory]) -> None:
    """Its thread alone does not keep it."""
    memory = its()
    if memory is not None:
        memory._settle()


def _smallest(shares: Iterable[int]) -> float:
    """Of shares, where 0 is no limit."""
    return min((share for share in shares if share), default=math.inf)


def _seconds(millis: Optional[bytes]) -> Optional[float]:
    return None if millis is None else int(millis) / 1000


def _millis(moment: float) -> int:
    """From now on."""
    return round((moment - now()) * 1000)


def _options(key: bytes, words: Iterable[bytes]) -> tuple[dict[bytes, bytes], Keys]:
    given: dict[bytes, bytes] = {}
    keys: Keys = (key,)
    rest = deque(words)
    while rest:
        option = rest.popleft().upper()
        if option == b"ALSO":
            keys += tuple(rest.popleft() for _ in range(int(rest.popleft())))
        elif option in (b"SHARE", b"BLOCK", b"TICKET", b"NOTIFY", b"EPHEMERAL"):
            given[option] = rest.popleft()
        else:
            raise ResponseError("ERR unknown option")
    return given, keys


def _fence_and_keys(key: bytes, words: Keys) -> tuple[Optional[int], Keys]:
    has_fence = bool(words) and words[0].isdigit()
    return int(words[0]) if has_fence else None, _options(key, words[has_fence:])[1]


def _packed(reply: Answer) -> bytes:
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(_packed, reply))
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"$-1\r\n" if reply is None else f"{'+' if isinstance(reply, str) else '-'}{reply}\r\n".encode()
