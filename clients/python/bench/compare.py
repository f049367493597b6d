"""This package, what one would use instead, and the same commands sent by hand over redis-py: side by side.

    pip install python-redis-lock
    python bench/compare.py redis://127.0.0.1:6379 [ROUNDS [SECONDS]]        a server with the module
    python bench/compare.py … --beside         eight workers with redis-py's Lock beside eight with this package
    python bench/compare.py … --hosts          programs that lock by redis-py, before the drop-in is installed and after
    python bench/compare.py … --check          fails where a ratio is a fifth below what it was when GOALS was written

Two tables: sixteen workers want one lock all the time, and one worker takes and releases a lock that nobody else wants.
The contenders take turns, round by round, and the median of the rounds is shown. All have the settings that their
makers chose. The processor time is that of this program. Ratios are to redis-py's Lock of the same kind.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import random
import statistics
import sys
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any, Callable, Iterator, NamedTuple

import redis
import redis.asyncio
import redis.lock

import leasehold
import leasehold.asyncio
from leasehold.drop_in import redis_py

try:
    import redis_lock
except ImportError:
    redis_lock = None

WORKERS = 16
TTL = 10
GOALS = {WORKERS: {"leasehold": 1.0, "leasehold.asyncio": 1.3}, 1: {"leasehold": 1.2, "leasehold.asyncio": 1.4}}
Once = Callable[[], Any]
"""Something to enter: the lock is held inside."""


class Came(NamedTuple):
    grants: float
    longest: float
    cpu: float
    commands: float


class Raw:
    """Two commands by hand, each on a connection of the pool: the thread waits in the server's queue."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._client, self._name, self._owner = client, name, str(uuid.uuid4())

    def __enter__(self) -> None:
        self._client.execute_command("LOCK.ACQUIRE", self._name, self._owner, TTL * 1000, "BLOCK", 60000)

    def __exit__(self, *_: object) -> None:
        self._client.execute_command("LOCK.RELEASE", self._name, self._owner)


class RawCoroutine:
    def __init__(self, client: redis.asyncio.Redis, name: str) -> None:
        self._client, self._name, self._owner = client, name, str(uuid.uuid4())

    async def __aenter__(self) -> None:
        await self._client.execute_command("LOCK.ACQUIRE", self._name, self._owner, TTL * 1000, "BLOCK", 60000)

    async def __aexit__(self, *_: object) -> None:
        await self._client.execute_command("LOCK.RELEASE", self._name, self._owner)


def commands(client: redis.Redis) -> int:
    """How many commands the server has run, without those that look."""
    stats: dict[str, dict[str, int]] = client.info("commandstats")
    looks = ("cmdstat_info", "cmdstat_client", "cmdstat_hello", "cmdstat_incr")
    return sum(stat["calls"] for name, stat in stats.items() if not name.startswith(looks))


class Round:
    def __init__(self, client: redis.Redis, lasts: float) -> None:
        self._client, self._lasts = client, lasts
        self._before, self._cpu, self._began = commands(client), time.process_time(), time.monotonic()
        self.end = self._began + lasts
        self.waits: list[float] = []
        self._is_held = False

    def enter(self, asked: float) -> None:
        assert not self._is_held, "two at a time"
        self._is_held = True
        self.waits.append(time.monotonic() - asked)

    def leave(self) -> None:
        self._is_held = False

    def came(self) -> Came:
        grants, cpu = len(self.waits), time.process_time() - self._cpu
        each = (commands(self._client) - self._before) / grants
        return Came(grants / self._lasts, max(self.waits), cpu / grants, each)


def by_threads(client: redis.Redis, once: Once, workers: int, lasts: float) -> Round:
    its_round = Round(client, lasts)

    def work() -> None:
        while time.monotonic() < its_round.end:
            asked = time.monotonic()
            with once():
                its_round.enter(asked)
                if workers > 1:
                    client.incr("done")
                its_round.leave()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return its_round


async def by_tasks(client: redis.Redis, inside: redis.asyncio.Redis, once: Once, workers: int, lasts: float) -> Round:
    its_round = Round(client, lasts)

    async def work() -> None:
        while time.monotonic() < its_round.end:
            asked = time.monotonic()
            async with once():
                its_round.enter(asked)
                if workers > 1:
                    await inside.incr("done")
                its_round.leave()

    await asyncio.gather(*(work() for _ in range(workers)))
    return its_round


def compare(url: str, rounds: int, lasts: float) -> list[str]:
    """The ratios that have fallen."""
    client, loop = redis.Redis.from_url(url), asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    inside = redis.asyncio.Redis.from_url(url)
    locks, tasks = leasehold.Leasehold(client, ttl=TTL), leasehold.asyncio.Leasehold(inside, ttl=TTL)
    name = map("compared-{}".format, itertools.count())
    ours, dropped, by_hand, theirs, redis_locks = (next(name) for _ in range(5))
    threads: list[tuple[str, Once]] = [
        ("leasehold", lambda: locks.lock(ours)),
        ("the drop-in for redis-py", lambda: client.lock(dropped, timeout=TTL, lock_class=redis_py.Lock)),
        ("two commands by hand", lambda: Raw(client, by_hand)),
        ("redis-py's Lock", lambda: client.lock(theirs, timeout=TTL)),
    ]
    if redis_lock is not None:
        lock = redis_lock.Lock
        threads.append(("python-redis-lock", lambda: lock(client, redis_locks, expire=TTL, auto_renewal=True)))
    ours_too, dropped_too, by_hand_too, theirs_too = (next(name) for _ in range(4))
    coroutines: list[tuple[str, Once]] = [
        ("leasehold.asyncio", lambda: tasks.lock(ours_too)),
        ("the drop-in, asyncio", lambda: inside.lock(dropped_too, timeout=TTL, lock_class=redis_py.AsyncLock)),
        ("two commands by hand, asyncio", lambda: RawCoroutine(inside, by_hand_too)),
        ("redis.asyncio's Lock", lambda: inside.lock(theirs_too, timeout=TTL)),
    ]
    fallen = []
    for workers in (WORKERS, 1):
        came: dict[str, list[Came]] = {title: [] for title, _ in threads + coroutines}
        for _ in range(rounds):
            for title, once in threads:
                came[title].append(by_threads(client, once, workers, lasts).came())
            for title, once in coroutines:
                its_round = loop.run_until_complete(by_tasks(client, inside, once, workers, lasts))
                came[title].append(its_round.came())
        ratios = show(workers, came)
        for title, goal in GOALS[workers].items():
            if ratios[title] < 0.8 * goal:
                fallen.append(f"{title} with {workers}: {ratios[title]:.2f}, and it was {goal}")
    loop.run_until_complete(tasks.close())
    loop.run_until_complete(inside.aclose() if hasattr(inside, "aclose") else inside.close())
    locks.close()
    return fallen


def show(workers: int, came: dict[str, list[Came]]) -> dict[str, float]:
    """The ratios that it shows."""
    medians = {title: Came(*(statistics.median(column) for column in zip(*each))) for title, each in came.items()}
    print(f"\n| {workers} workers | grants a second | ratio | longest wait | processor time | commands |")
    print("|---|---:|---:|---:|---:|---:|")
    ratios = {}
    for title, median in medians.items():
        peer = medians["redis.asyncio's Lock" if "asyncio" in title else "redis-py's Lock"]
        ratios[title] = median.grants / peer.grants
        print(
            f"| {title} | {median.grants:,.0f} | {ratios[title]:.2f} | {median.longest * 1000:,.0f} ms "
            f"| {median.cpu * 1e6:,.0f} µs | {median.commands:.1f} |"
        )
    return ratios


def beside(client: redis.Redis, queue: bool, rests: float, lasts: float) -> dict[str, list[float]]:
    """How long they waited for each grant: those with redis-py's Lock, and those who queue or do not."""
    locks = leasehold.Leasehold(client, settings=leasehold.Settings(ttl=TTL, queue=queue))
    kinds: dict[str, Once] = {
        "old": lambda: client.lock("beside", timeout=TTL),
        "new": lambda: locks.lock("beside"),
    }
    waits: dict[str, list[float]] = {kind: [] for kind in kinds}
    end = time.monotonic() + lasts

    def work(kind: str) -> None:
        while (asked := time.monotonic()) < end:
            with kinds[kind]():
                waits[kind].append(time.monotonic() - asked)
                client.incr("done")
            time.sleep(rests)

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("old", "new") * (WORKERS // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locks.close()
    return waits


def show_beside(url: str, rounds: int, lasts: float) -> None:
    client = redis.Redis.from_url(url)
    print("| new programs | rest | grants a second, old | new | share of the old | longest wait, old | new |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for rests, queue in itertools.product((0.0, 0.01), (True, False)):
        came = [beside(client, queue, rests, lasts) for _ in range(rounds)]
        old, new = ([wait for waits in came for wait in waits[kind]] for kind in ("old", "new"))
        rates = " | ".join(f"{len(waits) / rounds / lasts:,.0f}" for waits in (old, new))
        longest = " | ".join(f"{max(waits) * 1000:,.0f} ms" for waits in (old, new))
        share = len(old) / (len(old) + len(new))
        new_ones = f"{'queue' if queue else 'try'} | {rests * 1000:.0f} ms"
        print(f"| {new_ones} | {rates} | {share:.1%} | {longest} |", flush=True)


@contextlib.contextmanager
def then_rests(once: Once, rests: float) -> Iterator[None]:
    with once():
        yield
    time.sleep(rests)


@contextlib.contextmanager
def regenerates(mutex: Any) -> Iterator[None]:
    mutex.acquire()
    try:
        yield
    finally:
        mutex.release()


def hosts(url: str, rounds: int, lasts: float) -> None:
    """Each lock is that of the program itself. A beat looks for it every five times SECONDS, and ends at any time."""
    import celery
    import django.conf
    import dogpile.cache
    from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock

    django.conf.settings.configure()
    from django.core.cache import CacheHandler

    cache = CacheHandler({"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}})["default"]
    where = {"url": url, "distributed_lock": True, "thread_local_lock": False, "lock_timeout": TTL}
    region = dogpile.cache.make_region().configure("dogpile.cache.redis", arguments=where)
    app, looks = celery.Celery(broker=url, set_as_current=False), 5 * lasts
    app.conf.update(redbeat_redis_url=url, beat_max_loop_interval=looks)
    locks: dict[str, Once] = {
        "django-redis, `cache.lock`": lambda: cache.lock("compared", timeout=TTL),
        "dogpile.cache, its mutex": lambda: regenerates(region.backend.get_mutex("compared")),
    }

    def take_over(number: int) -> float:
        """How long nobody leads after a beat has ended, while a second one waits for its lock."""
        first, second = (RedBeatScheduler(app, lock_key=f"redbeat:{number}", lazy=True) for _ in range(2))
        acquire_distributed_beat_lock(SimpleNamespace(scheduler=first))
        with concurrent.futures.ThreadPoolExecutor(1) as waiting:
            leads = waiting.submit(acquire_distributed_beat_lock, SimpleNamespace(scheduler=second))
            time.sleep(random.uniform(0.1, 1.1) * looks)
            ended = time.monotonic()
            first.close()
            leads.result()
            took = time.monotonic() - ended
            waiting.submit(second.close).result()
        return took

    client = redis.Redis.from_url(url)
    beats = ("celery-redbeat, takeover", "")
    programs = {
        (its, f"{rests * 1000:.0f} ms"): functools.partial(then_rests, once, rests)
        for (its, once), rests in itertools.product(locks.items(), (0.0, 0.01))
    }
    waits: dict[Any, tuple[list[float], list[float]]] = {program: ([], []) for program in (*programs, beats)}
    for _, (when, lock) in itertools.product(range(rounds), enumerate((redis.lock.Lock, redis_py.Lock))):
        redis.client.Lock = lock
        for program, once in programs.items():
            waits[program][when].extend(by_threads(client, once, WORKERS, lasts).waits)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            waits[beats][when].extend(pool.map(take_over, range(WORKERS)))
    columns = ("median wait", "p99", "longest", "grants a second")
    print(
        f"| program | rest | {' | '.join(f'{column}, before | after' for column in columns)} |\n|---|---|{'---:|' * 8}"
    )
    for program, both in waits.items():
        percents = [[*statistics.quantiles(each, n=100, method="inclusive"), max(each)] for each in both]
        cells = [*program, *(f"{its[at] * 1000:,.1f} ms" for at in (49, 98, 99) for its in percents)]
        rates = ("" if program == beats else f"{len(each) / rounds / lasts:,.0f}" for each in both)
        print(f"| {' | '.join([*cells, *rates])} |")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    given = [kind(word) for kind, word in zip((int, float), words[1:] or ["5", "2"])]
    if "--beside" in sys.argv:
        sys.exit(show_beside(words[0], *given))
    if "--hosts" in sys.argv:
        sys.exit(hosts(words[0], *given))
    fallen = compare(words[0], *given)
    if "--check" in sys.argv:
        sys.exit("\n".join(fallen) or None)
