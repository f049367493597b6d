"""The lock of redis-py by the commands of the module, judged by redis-py's own tests, too."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, Optional

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError

from leasehold.drop_in import redis_py
from servers import Server, eventually, raw

HERE = Path(__file__).resolve().parent

BY_DESIGN = {
    # The key holds the fence before the token.
    "test_lock_token",
    "test_lock_token_thread_local_false",
}

# They measure some tens of milliseconds, which a busy machine takes for itself. On a quiet one they pass.
OF_MILLISECONDS = "blocking_timeout or not_raise_on_release"

# Before any test is imported.
PLUGIN = """
import redis.asyncio.lock, redis.lock
from leasehold.drop_in import redis_py
redis.lock.Lock, redis.asyncio.lock.Lock = redis_py.Lock, redis_py.AsyncLock
"""


def test_the_tests_of_redis_py_pass_but_for_those_that_look_at_the_value(server: Server, tmp_path: Path) -> None:
    fetch = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    wanted = [f"redis=={redis.__version__}", "--dest", str(tmp_path)]
    subprocess.run([sys.executable, "-m", *fetch, *wanted], check=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, members=[member for member in archive.getmembers() if "/tests/" in member.name])
    folder = next(tmp_path.glob("redis-*/"))
    (folder / "by_leasehold.py").write_text(PLUGIN)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers =\n  onlynoncluster\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(HERE.parent / "src")])}
    words = ["-q", "-rA", "-p", "by_leasehold", f"--redis-url={server.url}/9", "-k", f"not ({OF_MILLISECONDS})"]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "tests/test_lock.py", "tests/test_asyncio/test_lock.py"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    ).stdout  # fmt: skip
    came = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", told, re.MULTILINE)
    failed = {re.split(r"::|\[", test)[2] for outcome, test in came if outcome != "PASSED"}
    assert (failed, len(came) > 75) == (BY_DESIGN, True), told
    passed = sum(outcome == "PASSED" for outcome, _ in came)
    names = ", ".join(f"`{name}`" for name in sorted(BY_DESIGN))
    is_in_the_table(f"{len(came)} | {passed} | {names}: the key holds the fence before the token |")


def is_in_the_table(cells: str) -> None:
    """With LEASEHOLD_WRITE, it is written there."""
    page = HERE.parent.parent.parent / "docs" / "migrating.md"
    if not page.exists():
        return  # The sdist has no pages.
    text = page.read_text()
    (was,) = re.findall(r"^\| redis-py [0-9.]+, .*", text, re.MULTILINE)
    row = " | ".join([f"| redis-py {redis.__version__}, threads and asyncio", was.split(" | ")[1], cells])
    if os.environ.get("LEASEHOLD_WRITE"):
        page.write_text(text.replace(was, row))
    else:
        assert was == row


class Style:
    """Both classes, used alike."""

    def __init__(self, server: Server, is_async: bool, user: str = "") -> None:
        self.is_async = is_async
        self._loop = asyncio.new_event_loop() if is_async else None
        kind = redis.asyncio.Redis if is_async else redis.Redis
        self.client: Any = kind.from_url(server.url.replace("//", f"//{user}"))
        self._kind = redis_py.AsyncLock if is_async else redis_py.Lock

    def lock(self, name: str, **options: Any) -> Any:
        return self.client.lock(name, lock_class=self._kind, thread_local=False, **options)

    def run(self, work: Any) -> Any:
        return work if self._loop is None else self._loop.run_until_complete(work)

    def end(self) -> None:
        if self._loop is None:
            self.client.close()
            return
        self._loop.run_until_complete(self.client.aclose())
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def style(server: Server, request: pytest.FixtureRequest) -> Any:
    its = Style(server, request.param)
    yield its
    its.end()


def held(server: Server, name: str) -> Optional[bytes]:
    with server.client() as client:
        value: Optional[bytes] = client.get(name)
        return value


def test_each_grant_has_a_greater_fence_and_is_released_by_it(style: Style, server: Server, name: str) -> None:
    lock = style.lock(name, timeout=10)
    assert style.run(lock.acquire(token="alice"))
    first = lock.fence
    assert held(server, name) == lock.local.token
    assert lock.local.token.startswith(b"%d:alice/" % first)
    assert not style.run(style.lock(name).acquire(blocking=False, token="alice"))
    style.run(lock.release())
    assert held(server, name) is None
    assert style.run(lock.acquire(token="alice"))
    assert lock.fence > first
    owner = lock.local.token.partition(b":")[2]
    with server.client() as client:
        # It is the lock of the same owner, by a later grant.
        client.delete(name)
        client.execute_command("LOCK.ACQUIRE", name, owner, 60000)
    with pytest.raises(LockNotOwnedError):
        style.run(lock.extend(10))
    with pytest.raises(LockNotOwnedError):
        style.run(lock.release())
    assert held(server, name) is not None


def test_who_waits_gets_it_when_it_is_released_and_is_not_overtaken(style: Style, server: Server, name: str) -> None:
    with server.client() as client:
        client.execute_command("LOCK.ACQUIRE", name, "first", 60000)
        lock = style.lock(name, timeout=10, sleep=60)
        came: list[Any] = []

        def waits() -> None:
            came.append(style.run(lock.acquire(blocking_timeout=30)))
            came.append(time.monotonic())

        thread = threading.Thread(target=waits)
        thread.start()
        eventually(lambda: client.execute_command("LOCK.WAITERS", name), "it waits")
        assert client.execute_command("LOCK.ACQUIRE", name, "later", 60000) is None
        released = time.monotonic()
        client.execute_command("LOCK.RELEASE", name, "first")
        thread.join(30)
        assert came[0] is True
        assert came[1] - released < 1, "it was told, and did not look again"
        assert held(server, name) == lock.local.token
        assert 8 < client.ttl(name) <= 10
        style.run(lock.release())


def test_those_who_wait_with_one_token_are_several(style: Style, server: Server, name: str) -> None:
    first, second, third = (style.lock(name, timeout=10) for _ in range(3))
    assert style.run(first.acquire(token="worker"))
    if style.is_async:

        async def wait() -> None:
            both = [asyncio.ensure_future(each.acquire(token="worker")) for each in (second, third)]
            with server.client() as client:
                both_wait = lambda: len(client.execute_command("LOCK.WAITERS", name)) == 2  # noqa: E731
                await asyncio.get_running_loop().run_in_executor(None, eventually, both_wait, "both wait")
            await first.release()
            await both[0]
            await second.release()
            await both[1]

        style.run(wait())
    else:
        threads = [threading.Thread(target=each.acquire, kwargs={"token": "worker"}) for each in (second, third)]
        with server.client() as client:
            for number, thread in enumerate(threads, 1):
                thread.start()
                eventually(lambda n=number: len(client.execute_command("LOCK.WAITERS", name)) == n, "it waits")  # type: ignore[misc]
        for before, thread in zip((first, second), threads):
            before.release()
            thread.join(20)
    assert third.fence > second.fence
    style.run(third.release())


def test_a_lock_without_a_timeout_lasts_until_it_is_released(style: Style, server: Server, name: str) -> None:
    lock = style.lock(name)
    assert style.run(lock.acquire())
    with server.client() as client:
        assert client.ttl(name) == -1
    with pytest.raises(LockError):
        style.run(lock.extend(1))
    style.run(lock.release())
    assert held(server, name) is None


def test_what_is_left_of_a_lease_is_not_asked_of_a_replica(
    style: Style, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Clients of clusters ask a replica for it if they are told to read there.
    monkeypatch.setattr(style.client, "pttl", None)
    lock = style.lock(name, timeout=10)
    assert style.run(lock.acquire())
    assert style.run(lock.extend(20))
    monkeypatch.undo()
    assert 25_000 < style.run(style.client.pttl(name)) <= 30_000


def test_the_script_of_celery_redbeat_extends_it(style: Style, server: Server, name: str) -> None:
    lock = style.lock(name, timeout=100)
    lock.lua_extend = style.client.register_script(
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('pexpire', KEYS[1], ARGV[2]) return 1"
    )
    assert style.run(lock.acquire())
    assert style.run(lock.extend(20))
    with server.client() as client:
        assert 18 < client.ttl(name) <= 20
    style.run(lock.release())


def test_one_that_is_dropped_stays_held(style: Style, server: Server, name: str) -> None:
    assert style.run(style.lock(name, timeout=60).acquire())
    assert held(server, name) is not None


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_without_the_module_it_is_the_lock_of_redis_py(plain_server: Server, name: str, is_async: bool) -> None:
    style = Style(plain_server, is_async)
    lock, other = style.lock(name, timeout=10), style.lock(name, timeout=10)
    assert style.run(lock.acquire(token="alice"))
    assert (held(plain_server, name), lock.fence) == (b"alice", 0)
    assert not style.run(other.acquire(blocking_timeout=0.2))
    assert style.run(lock.extend(10))
    assert style.run(lock.reacquire())
    style.run(lock.release())
    assert held(plain_server, name) is None
    style.end()


@pytest.mark.usefixtures("installed")
def test_install_makes_it_the_class_of_all_locks(server: Server, name: str) -> None:
    with server.client() as client, client.lock(name, timeout=5) as lock:
        assert isinstance(lock, redis_py.Lock)
        assert lock.fence > 0


def test_a_lock_that_lasts_longer_than_leases_do(style: Style, server: Server, name: str) -> None:
    lock = style.lock(name, timeout=10 * 86_400)
    assert style.run(lock.acquire())
    with server.client() as client:
        assert client.ttl(name) > 9 * 86_400
        assert style.run(lock.extend(86_400))
        assert client.ttl(name) > 10 * 86_400
        style.run(lock.release())
        # The module has heard of it.
        assert client.execute_command("LOCK.ACQUIRE", name, "next", 1000)


def test_what_was_taken_by_others_meanwhile_is_not_touched(
    style: Style, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, execute = style.lock(name), style.client.execute_command

    def taken(*words: Any, **options: Any) -> Any:
        if words[0] == "LOCK.GUARD":
            with server.client() as client:
                client.set(name, "another", px=60000)
        return execute(*words, **options)

    monkeypatch.setattr(style.client, "execute_command", taken)
    with pytest.raises(redis.ResponseError, match="NOTHOLDER"):
        style.run(lock.acquire())
    with server.client() as client:
        assert (client.get(name), client.ttl(name) > 0) == (b"another", True)


@pytest.mark.parametrize("token", ["42:worker", "1795826714507709:worker", b"\xff", "x" * 300])
def test_tokens_of_any_kind(style: Style, plain_server: Server, server: Server, name: str, token: Any) -> None:
    plain = Style(plain_server, style.is_async)
    for its, where in ((plain, plain_server), (style, server)):
        lock = its.lock(name, timeout=10)
        assert its.run(lock.acquire(token=token))
        assert its.run(lock.owned())
        assert its.run(lock.extend(10))
        its.run(lock.release())
        assert held(where, name) is None
    plain.end()


def test_the_token_is_handed_on_as_text(style: Style, server: Server, name: str) -> None:
    lock, other = style.lock(name, timeout=10), style.lock(name, timeout=10)
    assert style.run(lock.acquire())
    other.local.token = lock.local.token.decode()
    assert other.fence == lock.fence
    assert style.run(other.reacquire())
    style.run(other.release())
    assert held(server, name) is None


def test_a_server_that_comes_back_without_the_module(style: Style, own_server: Server, name: str) -> None:
    own_server.kill()
    own_server._command = [word for word in own_server._command if not word.endswith(".so")]
    own_server._command.remove("--loadmodule")
    own_server.start()
    its = Style(own_server, style.is_async)
    lock = its.lock(name, timeout=60)
    # As the module has written it, and the server has read it from its file.
    lock.local.token = b"1795826714507709:alice"
    with own_server.client() as client:
        client.set(name, lock.local.token, px=60000)
    assert its.run(lock.extend(10))
    assert its.run(lock.reacquire())
    its.run(lock.release())
    assert its.run(its.lock(name, timeout=5).acquire())
    its.end()


class Tunnel(redis.Connection):
    """A class of connections that this package does not know how to open by itself."""


def test_a_client_whose_connections_are_not_known_polls(server: Server, name: str) -> None:
    Tunnel.__module__ = "somewhere"
    pool = redis.ConnectionPool(connection_class=Tunnel, host="127.0.0.1", port=server.port)
    strange = type("Strange", (), {"__module__": "somewhere", "__init__": lambda *_, **__: None})
    client = redis.Redis(connection_pool=pool)
    lock, other = (client.lock(name, timeout=5, lock_class=redis_py.Lock, thread_local=False) for _ in range(2))
    assert lock.acquire()
    pool.connection_class, its_class = strange, pool.connection_class
    assert not other.acquire(blocking_timeout=0.3, sleep=0.1)
    pool.connection_class = its_class
    threading.Timer(0.2, lock.release).start()
    assert other.acquire(blocking_timeout=20)
    other.release()


def test_a_key_of_another_type_is_held(style: Style, server: Server, name: str) -> None:
    with server.client() as client:
        client.rpush(name, "x")
    assert not style.run(style.lock(name).acquire(blocking=False))


def test_connections_of_those_who_wait_are_ended_by_close(server: Server, name: str) -> None:
    with server.client() as observer:
        before = observer.info("clients")["connected_clients"]
        client = redis.Redis.from_url(server.url)
        lock, other = (client.lock(name, timeout=5, lock_class=redis_py.Lock) for _ in range(2))
        assert lock.acquire()
        assert not other.acquire(blocking_timeout=0.1)
        lock.release()
        redis_py.close(client)
        client.close()
        eventually(lambda: observer.info("clients")["connected_clients"] == before, "they are ended")
        redis_py.close(client)


def test_a_release_without_an_answer_is_not_called_a_loss(
    style: Style, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, execute = style.lock(name, timeout=60), style.client.execute_command
    assert style.run(lock.acquire())

    def unanswered(*words: Any, **options: Any) -> Any:
        if words[0] != "LOCK.RELEASE":
            return execute(*words, **options)
        raw(server, *words)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(style.client, "execute_command", unanswered)
    with pytest.raises(redis.TimeoutError):
        style.run(lock.release())
    assert held(server, name) is None


def test_without_the_right_to_guarded_commands_it_is_the_lock_of_redis_py(server: Server, name: str) -> None:
    raw(server, "ACL", "SETUSER", "restricted", "on", ">p", "~*", "&*", "+@all", "-lock.guard")
    try:
        for is_async in (False, True):
            style = Style(server, is_async, "restricted:p@")
            lock = style.lock(name)
            assert style.run(lock.acquire(token="alice"))
            assert (held(server, name), lock.fence) == (b"alice", 0)
            style.run(lock.release())
            style.end()
    finally:
        raw(server, "ACL", "DELUSER", "restricted")
