"""Programs that lock by redis-py, as they are, with the drop-in installed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import redis

import leasehold
from servers import Server, eventually

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "src")}
"""Of programs that use this package."""


def hands_on(server: Server, key: str, first: Any, second: Any) -> None:
    """The second waits for the first, and has the lock in the moment in which it is released."""
    assert first.acquire()
    assert server.holder(key) is not None
    came: list[float] = []

    def waits() -> None:
        assert second.acquire()
        came.append(time.monotonic())

    thread = threading.Thread(target=waits)
    thread.start()
    with server.client() as client:
        eventually(lambda: client.execute_command("LOCK.WAITERS", key), "it waits in the queue")
    released = time.monotonic()
    first.release()
    thread.join(20)
    # It looks again after 0.1 s, or whatever it is told, without the drop-in.
    assert came[0] - released < 1
    assert server.holder(key) is not None


@pytest.mark.usefixtures("installed")
def test_dogpile_cache(server: Server, name: str) -> None:
    region = pytest.importorskip("dogpile.cache").make_region()
    where = {"host": "127.0.0.1", "port": server.port, "distributed_lock": True, "lock_timeout": 30, "lock_sleep": 30}
    region.configure("dogpile.cache.redis", arguments={**where, "thread_local_lock": False})
    locks = [region.backend.get_mutex(name) for _ in range(2)]
    hands_on(server, f"_lock{name}", *locks)
    locks[1].release()
    assert region.get_or_create(f"{name}.value", lambda: 17) == 17


SETTINGS = """
from leasehold.drop_in import redis_py

redis_py.install()
CACHES = {{"default": {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "{url}/0"}}}}
"""


@pytest.mark.usefixtures("installed")
def test_django_redis(server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("django_redis")
    (tmp_path / "settings_of_django.py").write_text(SETTINGS.format(url=server.url))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "settings_of_django")
    # These settings install the drop-in.
    monkeypatch.setattr(redis.client, "Lock", redis.lock.Lock)
    from django.core.cache import cache

    locks = [cache.lock(name, timeout=30, sleep=30, thread_local=False) for _ in range(2)]
    hands_on(server, f":1:{name}", *locks)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        locks[0].local.token = b"1:nobody"
        locks[0].release()
    locks[1].release()


BEAT = """
from celery import Celery
from leasehold.drop_in import redis_py

redis_py.install()
app = Celery("beat", broker={url!r})
app.conf.redbeat_redis_url = {url!r}
app.conf.redbeat_lock_timeout = 60
app.conf.beat_max_loop_interval = 30
"""


@pytest.fixture
def beats(server: Server, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "beats.py").write_text(BEAT.format(url=server.url))
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        words = ["-m", "celery", "-A", "beats", "beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", ""]
        running.append(subprocess.Popen([sys.executable, *words], cwd=tmp_path, env=ENVIRONMENT))
        return running[-1]

    yield start
    for beat in running:
        beat.kill()
        beat.wait()


def test_celery_redbeat(server: Server, beats: Any) -> None:
    pytest.importorskip("redbeat")
    lock = "redbeat::lock"
    with server.client() as client:
        first = beats()
        eventually(lambda: server.holder(lock), "the first one leads")
        held = server.holder(lock)
        beats()
        eventually(lambda: client.execute_command("LOCK.WAITERS", lock), "the second one waits")
        assert client.ttl(lock) > 30
        first.terminate()
        first.wait(20)
        ended = time.monotonic()
        eventually(lambda: server.holder(lock) not in (None, held), "the second one leads")
        # It would look again half a minute later.
        assert time.monotonic() - ended < 5


TASKS = """
import time
import redis
from celery import Celery
from leasehold import Leasehold
from leasehold.drop_in.celery import Singleton

app = Celery("tasks", broker={url!r})
client = redis.Redis.from_url({url!r})
locks = Leasehold(client)

@app.task(base=Singleton, bind=True, locks=locks, lock="report:{{report}}", busy_countdown=0.1, max_retries=0)
def write(self, report):
    client.rpush("done", f"begin {{report}}")
    while not client.exists(f"go:{{report}}"):
        time.sleep(0.01)
    client.rpush("done", f"end {{report}}", self.lease.fence)

@app.task(base=Singleton, locks=locks, lock="report:{{0}}", busy_countdown=None)
def skip(report):
    client.rpush("done", f"skip {{report}}")

@app.task
def other():
    client.rpush("done", "other")
"""


def test_a_task_of_celery_runs_under_its_lock(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    (tmp_path / "tasks.py").write_text(TASKS.format(url=server.url))
    celery = [sys.executable, "-m", "celery", "-A", "tasks"]
    worker = subprocess.Popen(
        [*celery, "worker", "--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle"],
        cwd=tmp_path,
        env=ENVIRONMENT,
    )

    def send(task: str, *args: object) -> None:
        words = ["call", f"tasks.{task}", "--args", str(list(args))]
        subprocess.run([*celery, *words], cwd=tmp_path, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)

    try:
        with server.client() as client:

            def done() -> list[bytes]:
                return client.lrange("done", 0, -1)

            send("write", 7)
            eventually(lambda: done() == [b"begin 7"], "the first one runs")
            send("write", 7)
            send("skip", 7)
            send("write", 8)
            send("other")
            eventually(lambda: len(done()) == 3, "those that may run do")
            assert sorted(done()[1:]) == [b"begin 8", b"other"]
            client.mset({"go:7": 1, "go:8": 1})
            eventually(lambda: len(done()) == 10, "all have run")
            of_7 = [each for each in done() if each.endswith(b" 7")]
            assert of_7 == [b"begin 7", b"end 7"] * 2
            assert len({each for each in done() if each.isdigit()}) == 3
    finally:
        worker.terminate()
        worker.wait(20)


def test_a_task_of_celery_that_is_called_like_a_function(server: Server) -> None:
    celery = pytest.importorskip("celery")
    from leasehold.drop_in.celery import Singleton

    app = celery.Celery("here", broker="memory://")
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:

        @app.task(base=Singleton, bind=True, locks=locks, lock="report:{0}")  # type: ignore[untyped-decorator,unused-ignore]
        def write(self: Any, number: int) -> int:
            assert server.holder(f"report:{number}") is not None
            return int(self.lease.fence)

        @app.task(base=Singleton)  # type: ignore[untyped-decorator,unused-ignore]
        def nowhere() -> None: ...

        assert write(7) < write.apply(args=(7,)).get()
        with locks.lock("report:7"), pytest.raises(leasehold.Busy):
            write(7)
        with pytest.raises(RuntimeError, match="no task"):
            _ = write.lease
        with pytest.raises(celery.exceptions.ImproperlyConfigured, match="locks="):
            nowhere()
