"""Sixteen threads of one program want one lock all the time, by this package and by what one would use instead.

    pip install python-redis-lock
    python bench/compare.py redis://127.0.0.1:6379 redis://127.0.0.1:6380    with the module, and without it

The contenders take turns, round by round, and the median of the rounds is shown. All of them have the settings that
their makers chose.
"""

import statistics
import sys
import threading
import time
from typing import Any, Callable, ContextManager, Dict, List, Tuple

import redis
import redis_lock

import leasehold

WORKERS = 16
ROUNDS = 5
SECONDS = 4.0
TTL = 10
Once = Callable[[], ContextManager[Any]]


def contenders(
    first: redis.Redis, locks: leasehold.Leasehold, second: redis.Redis, plain: leasehold.Leasehold
) -> List[Tuple[str, redis.Redis, Once]]:
    return [
        ("leasehold, with the module", first, lambda: locks.lock("compared")),
        ("leasehold, without it", second, lambda: plain.lock("compared")),
        ("redis-py's Lock", second, lambda: second.lock("compared-2", timeout=TTL)),
        ("python-redis-lock", second, lambda: redis_lock.Lock(second, "compared-3", expire=TTL, auto_renewal=True)),
    ]


def commands(client: redis.Redis) -> int:
    """How many commands the server has run, without those that look."""
    stats: Dict[str, Dict[str, int]] = client.info("commandstats")
    looks = ("cmdstat_info", "cmdstat_client", "cmdstat_hello")
    return sum(stat["calls"] for name, stat in stats.items() if not name.startswith(looks))


def one_round(client: redis.Redis, once: Once) -> Tuple[float, float, float]:
    before, end = commands(client), time.monotonic() + SECONDS
    waits: List[float] = []
    inside = threading.Lock()

    def work() -> None:
        while time.monotonic() < end:
            asked = time.monotonic()
            with once():
                assert inside.acquire(blocking=False), "two at a time"
                waits.append(time.monotonic() - asked)
                client.incr("done")
                inside.release()

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The command of the work itself is not the lock's.
    each = (commands(client) - before - len(waits)) / len(waits)
    return len(waits) / SECONDS, max(waits), each


def main() -> None:
    first, second = (redis.Redis.from_url(url) for url in sys.argv[1:3])
    with leasehold.Leasehold(first, ttl=TTL) as locks, leasehold.Leasehold(second, ttl=TTL) as plain:
        compare(contenders(first, locks, second, plain))


def compare(compared: List[Tuple[str, redis.Redis, Once]]) -> None:
    rounds: Dict[str, List[Tuple[float, float, float]]] = {name: [] for name, _, _ in compared}
    for _ in range(ROUNDS):
        for name, client, once in compared:
            rounds[name].append(one_round(client, once))
    print("| 16 threads, one lock | sections a second | longest wait | commands for each |")
    print("|---|---|---|---|")
    for name, came in rounds.items():
        throughput, longest, each = (statistics.median(column) for column in zip(*came))
        print(f"| {name} | {throughput:.0f} | {longest * 1000:.0f} ms | {each:.1f} |")


main()
