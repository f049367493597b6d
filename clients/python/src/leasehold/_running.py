"""How threads ask: each by itself, on a connection that it has for the time of the request. Whatever goes wrong, or
takes longer than one request, is left to the event loop in the thread that renews leases: it asks again in the name of
the same owner, finds the server that grants locks now, and keeps places in queues."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import math
import os
import threading
from typing import Callable, Coroutine, Optional, TypeVar, Union

from redis.exceptions import RedisError

from . import _questions
from ._direct import Channel
from ._holding import released_by
from ._hub import Hub
from ._pending import Granted, LeaseState, Pending, is_fresh
from ._resp import Reply, Word, number
from ._server import Server
from ._target import Target
from ._time import now
from ._verdict import Verdict, public, verdict
from ._waiting import LATE
from .errors import Closed, LeaseholdError, Unanswered, Unreachable
from .outcomes import Loss, Released
from .settings import Name, Settings

log = logging.getLogger("leasehold")

L = TypeVar("L")
T = TypeVar("T")

GRACE = 2.0  # How much longer than a request may take its caller waits for the thread. It has not run for as long then.

LAST_STEPS = 2.0  # How long what is left on the loop may take to end
AT_EXIT = 1.0  # How long a program that ends may be kept from it by each client


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self._asking = threading.RLock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise LeaseholdError(f"no thread can be started: {error}") from error

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self._end_all()
        finally:
            self.loop.close()

    def _end_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_STEPS))

    def call(self, work: Callable[[], Coroutine[object, object, T]], limit: Optional[float]) -> T:
        """Its result. If the caller is interrupted, such as by Ctrl-C, the work is cancelled."""
        with self._asking:
            if self._is_stopped:
                raise Closed
            future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(None if limit is None else _at_most(limit + GRACE))
        except concurrent.futures.CancelledError:
            raise Closed from None
        except concurrent.futures.TimeoutError as error:
            if future.done():
                raise
            raise Unreachable(f"no answer within {limit} s") from error
        finally:
            future.cancel()

    def stop(self, limit: float) -> None:
        with self._asking:
            if not self._is_stopped:
                self._is_stopped = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        # What it ran may have been the last to refer to it.
        if threading.current_thread() is not self._thread:
            self._thread.join(_at_most(limit))


def _at_most(limit: float) -> float:
    return min(limit, threading.TIMEOUT_MAX)


_open: set[Running] = set()


@atexit.register
def _close_all() -> None:
    while _open:
        running = _open.pop()
        try:
            # A child process has those of its parent, too.
            if running.process == os.getpid():
                running.close(AT_EXIT)
        except Exception as error:
            log.debug("not closed when the program ended: %s", error)


_Came = Union[Granted, bool]  # What came of a request of the thread; False: others have it, True: ask in another way


class Running:
    def __init__(self, target: Target, settings: Settings) -> None:
        self.thread = LoopThread()

        async def new_hub() -> Hub:
            return Hub(target, settings)

        self.hub = self.thread.call(new_hub, None)
        self._routes = self.hub.asking.routes
        self.process = os.getpid()
        _open.add(self)

    def acquire(self, pending: Pending, lease_of: Callable[[LeaseState], L]) -> Optional[L]:
        """A lease from the first moment: if the caller is interrupted, nobody has it, and it is given back."""
        hub, wanted = self.hub, pending.wanted
        hub.requests.add(pending)
        try:
            hub.check_open()
            came = self._acquire_directly(pending)
            if came is not True:
                return lease_of(hub.granted(pending, came)) if came else None
        except BaseException:
            hub.call(hub.give_up, pending)
            raise
        finally:
            hub.requests.discard(pending)

        async def granted() -> Optional[L]:
            state = await hub.acquire(pending)
            return None if state is None else lease_of(state)

        limit = None if math.isinf(wanted.wait) else max(wanted.wait, hub.limits.within)
        return self.thread.call(granted, limit)

    def _acquire_directly(self, pending: Pending) -> _Came:
        hub, wanted = self.hub, pending.wanted
        server = self._routes.known(wanted.claim.key)
        # The loop tells of events, too.
        is_special = wanted.claim.grace is not None or wanted.copies is not None or hub.settings.on_event is not None
        if server is None or is_special:
            return True
        may_wait = wanted.wait > 0 and server.has_module and hub.settings.queue
        waits = may_wait and hub.take_room()
        deadline = pending.begun + (wanted.wait or hub.limits.within)
        try:
            # Where no more may wait on connections, none is opened for a try.
            channel = server.pool.take_idle()
            if channel is None and (waits or not may_wait):
                channel = server.pool.take(min(hub.limits.response, deadline - now()))
            came = channel is None or self._ask_for_it(server, channel, pending, deadline, waits)
        except (RedisError, OSError):
            return True
        finally:
            if waits:
                hub.leave_room()
        if not isinstance(came, Granted) or is_fresh(came.asked, came.ttl):
            return came
        # It has waited for a good part of its lease, which begins anew when it is asked for once more.
        channel = server.pool.take_idle()
        came = channel is None or self._ask_for_it(server, channel, pending, deadline, False)
        return came if not isinstance(came, Granted) or is_fresh(came.asked, came.ttl) else True

    def _ask_for_it(self, server: Server, channel: Channel, pending: Pending, deadline: float, waits: bool) -> _Came:
        hub, wanted, asked = self.hub, pending.wanted, now()
        left = deadline - asked
        limit: Optional[float] = min(hub.asking.each(wanted.ttl), left)
        if not waits:
            question = _questions.acquire(wanted.claim, wanted.ttl)
        else:
            patience = None if math.isinf(left) else max(left, 0.001)
            question = _questions.wait(wanted.claim, wanted.ttl, patience)
            limit = None if patience is None else patience + LATE
            if hub.settings.tickets and not server.tickets.is_closed:
                # Then a ticket takes over the place: a connection may be stuck, and others want to wait.
                limit = min(hub.limits.slice, math.inf if limit is None else limit)
        packed = server.known_words(question)
        if packed is None:
            server.pool.give_back(channel)
            return True
        pending.may_hold = True
        pending.unanswered.add(channel)
        try:
            if waits:
                hub.blocked.add(channel)
            # Whoever closes the client ends the waits that began before.
            hub.check_open()
            reply = channel.ask(packed, limit)
        except (RedisError, OSError):
            hub.check_open()
            return True
        finally:
            hub.blocked.discard(channel)
            if waits and hub.is_closed:
                channel.close()
        pending.unanswered.discard(channel)
        server.pool.give_back(channel)
        fence = None if isinstance(reply, RedisError) else number(reply)
        if fence is not None:
            return Granted(fence, asked, wanted.ttl)
        pending.may_hold = bool(pending.unanswered)
        if isinstance(reply, RedisError):
            server.learn(reply)
            return True
        return wanted.wait > 0 and now() < deadline

    def release(self, state: LeaseState) -> Released:
        hub, begun = self.hub, now()
        under_way = state.releasing
        if under_way is not None and under_way.acquire(timeout=hub.limits.within):
            under_way.release()
        known = hub.known_release(state)
        if known is not None:
            return known
        server = self._routes.known(state.claim.key)
        if server is not None and hub.may_release_at_once(state):
            packed = server.known_words(_questions.release(state.claim, state.fence))
            state.releasing = threading.Lock()
            with state.releasing:
                if packed is not None and state.lose(Loss.RELEASED):
                    released = self._release_directly(server, state, packed)
                    if released is not None:
                        return released
        left = hub.limits.within - (now() - begun)
        return self.thread.call(lambda: hub.release(state, max(0.0, left)), left)

    def _release_directly(self, server: Server, state: LeaseState, packed: bytes) -> Optional[Released]:
        """None: the loop asks for it again."""
        hub, end, was_asked = self.hub, state.end, False
        hub.requests.add(state)
        try:
            hub.leases.discard(state)
            channel = server.pool.take(hub.limits.within / 2)
            was_asked = now() < end
            reply = server.pool.ask(channel, packed, min(hub.limits.response, hub.limits.within / 2))
            if not isinstance(reply, RedisError):
                state.released = released_by(state.claim, reply)
                return state.released
            was_asked = False
            server.learn(reply)
        except (RedisError, OSError):
            pass
        finally:
            if state.released is None:
                # Whatever happens to the caller, it is released.
                hub.call(hub.begin_release, state, Loss.RELEASED, was_asked)
            hub.requests.discard(state)
        return None

    def ask(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        return self.thread.call(work, self.hub.limits.within)

    def guard(self, state: LeaseState, command: tuple[Word, ...]) -> Reply:
        hub = self.hub
        hub.check_open()
        state.check()
        question = _questions.guarded(state.claim, state.fence, command)
        server = self._routes.known(state.claim.key)
        if server is not None and server.has_module:
            packed = server.known_words(question) or b""
            channel = self._quiet(server)
            if channel is not None:
                try:
                    reply = server.pool.ask(channel, packed, hub.asking.each(state.ttl))
                except (RedisError, OSError) as error:
                    raise Unanswered(f"nobody answered, and the command may have been run: {error}") from error
                if not isinstance(reply, RedisError):
                    return reply
                if verdict(reply) is Verdict.REFUSED and not str(reply).startswith("NOTHOLDER"):
                    raise public(reply)
        return self.ask(lambda: hub.guard(state, command))

    def _quiet(self, server: Server) -> Optional[Channel]:
        while True:
            try:
                channel = server.pool.take(self.hub.limits.response)
            except (RedisError, OSError):
                return None
            if channel.is_quiet:
                return channel
            channel.close()

    def close(self, limit: float) -> list[Name]:
        _open.discard(self)
        try:
            return self.thread.call(lambda: self.hub.close(limit), limit)
        finally:
            self.thread.stop(limit)

    def drop(self) -> None:
        _open.discard(self)
        self.hub.drop_all(self.thread.loop.stop)
