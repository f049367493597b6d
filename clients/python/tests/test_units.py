"""The logic without a server: deadlines, decisions, and how answers read."""

from __future__ import annotations

import asyncio
import pickle
import random
import time
from typing import Optional

import pytest
import redis
from redis import exceptions as redis_errors

import leasehold
from leasehold import Loss, Settings, _lines, _plain, _questions, _resp, _time
from leasehold._pending import Granted, LeaseState, Pending
from leasehold._questions import Claim
from leasehold._routes import slots_in
from leasehold._target import Alone, Clustered, Watched, target_of
from leasehold._time import Backoff, within
from leasehold._verdict import Verdict, public, redirection_in, verdict
from leasehold._wanted import Wanted, candidate_of


def test_a_lease_is_counted_from_the_asking_less_the_drift() -> None:
    assert _time.valid_until(100, 1) == pytest.approx(100.988)
    assert _time.valid_until(100, 0.001) == 100


def lease(ttl: float = 10, ago: float = 0, granted: Optional[float] = None) -> LeaseState:
    pending = Pending(Wanted(Settings(), "x", ttl=ttl).wanted(is_try=False))
    return LeaseState(pending, Granted(7, _time.now() - ago, ttl if granted is None else granted))


def test_a_lease_is_renewed_when_a_third_is_gone_or_at_once_if_little_is_left() -> None:
    for state, rest in [(lease(3), 1), (lease(3, ago=1), 0.66), (lease(30, granted=15), 5), (lease(3, ago=2), 0)]:
        assert state.next_look - _time.now() == pytest.approx(rest, abs=0.1)


def test_a_lease_that_is_over_is_over_for_good() -> None:
    state = lease(ttl=1, ago=2)
    told = []
    state.when_lost(lambda: told.append(1))
    assert state.valid_for() == 0
    assert state.loss is Loss.EXPIRED
    assert told == [1]
    assert not state.extended(_time.now(), 60)
    assert state.valid_for() == 0
    assert not state.lose(Loss.TAKEN)
    assert state.loss is Loss.EXPIRED


def test_an_extension_counts_from_its_asking() -> None:
    state = lease()
    assert state.extended(_time.now() - 5, 10)
    assert 4 < state.valid_for() < 5


def test_a_shorter_extension_counts_before_it_is_answered() -> None:
    state = lease(ttl=60)
    state.about_to_extend(_time.now(), 1)
    assert state.valid_for() < 1


def test_a_longer_extension_counts_for_no_more_than_a_shorter_one_that_may_still_arrive() -> None:
    state = lease(ttl=60)
    state.not_extended(5)
    assert state.extended(_time.now(), 60)
    assert state.valid_for() < 5


def test_the_clock_goes_on_in_a_suspend_where_there_is_one_that_does() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(_time.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


def test_rests_double_up_to_the_limit() -> None:
    backoff = Backoff(0.01, 0.1)
    random.seed(1)
    for tries, ceiling in [(0, 0.01), (1, 0.02), (2, 0.04), (3, 0.08), (4, 0.1), (400, 0.1)]:
        assert ceiling * 0.9 < max(backoff.rest(tries) for _ in range(200)) <= ceiling


def test_questions_are_the_commands_of_the_module() -> None:
    claim, readers, three = Claim(b"k", b"o"), Claim(b"k", b"o", 0), Claim(b"k", b"o", 3)
    assert _questions.acquire(claim, 5).words == [b"LOCK.ACQUIRE", b"k", b"o", 5000]
    assert _questions.acquire(readers, 5).words[4:] == [b"SHARE", 0]
    assert _questions.wait(claim, 5, None).words[4:] == [b"BLOCK", 0]
    assert _questions.wait(three, 5, 0.0001).words[4:] == [b"SHARE", 3, b"BLOCK", 1]
    assert _questions.ticket(claim, 5, 15, b"c").words[4:] == [b"TICKET", 15000, b"NOTIFY", b"c"]
    assert _questions.extend(claim, 5, 7).words == [b"LOCK.EXTEND", b"k", b"o", 5000, 7]
    assert _questions.release(claim, 7).words == [b"LOCK.RELEASE", b"k", b"o", 7]
    assert _questions.release(claim, None).words == [b"LOCK.RELEASE", b"k", b"o"]
    assert _questions.look(b"k").words == [b"LOCK.INFO", b"k"]


def test_the_last_fence_is_kept_in_the_slot_of_the_lock() -> None:
    assert _plain.beside(b"printer") == b"{printer}:fence"
    assert _plain.beside(b"{order}.lock") == b"{order}.lock:fence"
    assert _plain.beside(b"a}b") == b"a}b:fence"


def test_the_fence_of_an_owner_is_in_what_the_key_holds() -> None:
    assert _plain.parse(_plain.value(b"alice", 7)) == (7, b"alice")
    assert _plain.parse(b"7:alice") == (0, b"7:alice")
    assert _plain.value(b"alice", 0) == b"alice"


def test_a_message_names_the_owner_and_the_lock_whatever_is_in_their_names() -> None:
    assert _lines.parse(b"1795 5 alice printer") == (1795, (b"alice", b"printer"))
    assert _lines.parse(b"1795 5 a  li the printer") == (1795, (b"a  li", b"the printer"))
    assert _lines.parse(b"1795 2 \xc3\xa9 \xff\r\n") == (1795, (b"\xc3\xa9", b"\xff\r\n"))
    for mistake in (b"", b"1795", b"1795 5", b"1795 9 alice", b"1795 x alice printer", b"x 5 alice printer"):
        assert _lines.parse(mistake) is None


WRAPPING = "Error running script (call to f_1): @user_script:1: @user_script: 1: "


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis_errors.ConnectionError("gone"), Verdict.BROKEN),
        (redis_errors.TimeoutError("late"), Verdict.BROKEN),
        (redis_errors.ResponseError("READONLY You can't write"), Verdict.ELSEWHERE),
        (redis_errors.ResponseError(f"{WRAPPING}-READONLY You can't write"), Verdict.ELSEWHERE),
        (redis_errors.ResponseError("UNBLOCKED this server became a replica"), Verdict.ELSEWHERE),
        (redis_errors.ResponseError("MOVED 1 127.0.0.1:7000"), Verdict.MOVED),
        (redis_errors.ResponseError("ASK 1 127.0.0.1:7000"), Verdict.ASK),
        (redis_errors.ResponseError("TRYAGAIN Multiple keys"), Verdict.AGAIN),
        (redis_errors.BusyLoadingError("is loading"), Verdict.AGAIN),
        (redis_errors.ConnectionError("max number of clients reached"), Verdict.AGAIN),
        (redis_errors.ResponseError("QUEUEFULL too many waiters"), Verdict.AGAIN),
        (redis_errors.ResponseError("REPLACED a newer request"), Verdict.REPLACED),
        (redis_errors.ResponseError("unknown command 'LOCK.ACQUIRE'"), Verdict.UNKNOWN_COMMAND),
        (redis_errors.ResponseError("WRONGTYPE Operation against"), Verdict.REFUSED),
        (redis_errors.AuthenticationError("invalid username-password pair"), Verdict.REFUSED),
        (redis_errors.NoPermissionError("this user has no permissions"), Verdict.REFUSED),
        (redis_errors.ResponseError("OOM command not allowed"), Verdict.REFUSED),
    ],
)
def test_errors_are_told_apart(error: Exception, expected: Verdict) -> None:
    assert verdict(error) is expected


def test_where_a_slot_is_can_be_read() -> None:
    where = ("MOVED", 12182, ("127.0.0.1", 7000))
    assert redirection_in(redis_errors.ResponseError("MOVED 12182 127.0.0.1:7000")) == where
    assert redirection_in(redis_errors.ResponseError("ASK 1 ::1:7000")) == ("ASK", 1, ("::1", 7000))
    assert redirection_in(redis_errors.ResponseError("ERR no")) is None


def test_errors_are_typed_for_the_caller() -> None:
    assert isinstance(public(redis_errors.ResponseError("OOM command not allowed")), leasehold.OutOfMemory)
    assert isinstance(public(redis_errors.AuthenticationError("Authentication required.")), leasehold.WrongPassword)
    assert isinstance(public(redis_errors.BusyLoadingError("is loading")), leasehold.Unreachable)
    assert isinstance(public(redis_errors.ResponseError("QUEUEFULL x")), leasehold.QueueFull)


@pytest.mark.parametrize(
    "error",
    [
        leasehold.Busy("a", 1.5),
        leasehold.LockLost(b"a", leasehold.Loss.TAKEN),
        leasehold.Closed(),
        leasehold.NotPermitted("NOPERM", "NOPERM no"),
        leasehold.Unreachable("nobody"),
        leasehold.SettingError("ttl: no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_from_one_process_to_another(error: leasehold.LeaseholdError) -> None:
    passed = pickle.loads(pickle.dumps(error))
    assert (type(passed), str(passed), vars(passed)) == (type(error), str(error), vars(error))


def test_the_slots_of_nodes_are_read_also_of_one_that_does_not_know_its_name() -> None:
    reply = [[0, 1, [b"", 7000, b"id"]], [2, 2, [b"other", 7001, b"id"], [b"replica", 7002, b"id"]], [3, 3], b"", None]
    assert slots_in(reply, ("host", 1)) == {0: ("host", 7000), 1: ("host", 7000), 2: ("other", 7001)}
    assert slots_in(None, ("host", 1)) == {}


def test_where_to_connect_is_read_off_the_client() -> None:
    import redis.asyncio
    import redis.sentinel
    from redis.asyncio import connection

    alone = target_of(redis.Redis.from_url("rediss://me:secret@example.org:7/3"))
    assert isinstance(alone, Alone)
    assert alone.endpoint.kind is connection.SSLConnection
    options = {"username": "me", "password": "secret", "host": "example.org", "port": 7, "db": 3}
    assert alone.endpoint.options == options
    assert "secret" not in repr(alone)
    unix = target_of(redis.Redis(unix_socket_path="/x"))
    assert unix.endpoint.kind is connection.UnixDomainSocketConnection
    watched = target_of(redis.sentinel.Sentinel([("a", 1), ("b", 2)], password="p").master_for("main", ssl=True))
    assert isinstance(watched, Watched)
    assert watched.endpoint.kind is connection.SSLConnection
    assert len(watched.sentinels) == 2
    with pytest.raises(leasehold.SettingError):
        target_of(redis.sentinel.Sentinel([("a", 1)]).slave_for("main"))
    clustered = target_of(redis.asyncio.RedisCluster(host="h", port=1, ssl=True))
    assert isinstance(clustered, Clustered)
    assert clustered.seeds == [("h", 1)]
    assert clustered.endpoint.kind is connection.SSLConnection


def test_a_candidate_is_known_by_its_name() -> None:
    assert candidate_of(Wanted(Settings(), "x", candidate="höst/1".encode()).wanted(True).claim.owner) == "höst/1"
    assert candidate_of(b"uuid") == "uuid"
    with pytest.raises(leasehold.SettingError):
        Wanted(Settings(), "x", candidate=b"x" * 219)


def test_who_waits_no_longer_than_so_long_does_not_wait_for_the_end_of_what_it_cancelled() -> None:
    async def program() -> None:
        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.sleep(0.05)
                    return
                except asyncio.CancelledError:
                    continue

        with pytest.raises(redis.TimeoutError):
            await within(0.001, stubborn())

    asyncio.run(program())


def test_replies_are_read_however_they_are_cut() -> None:
    said = b"+OK\r\n:-7\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n$3\r\na\r\n\r\n"
    said += b"*2\r\n*2\r\n:1\r\n$2\r\nab\r\n*1\r\n-NO such\r\n:8\r\n"
    expected = [b"OK", -7, None, None, [], b"", b"a\r\n", [[1, b"ab"], ["NO such"]], 8]

    def read(*pieces: bytes) -> list:
        parser = _resp.Parser()
        replies = [reply for piece in pieces for reply in parser.feed(piece)]
        assert not parser.is_amid
        return [plain(reply) for reply in replies]

    def plain(reply: object) -> object:
        if isinstance(reply, list):
            return [plain(each) for each in reply]
        return str(reply) if isinstance(reply, redis_errors.ResponseError) else reply

    assert read(said) == expected
    assert read(*(said[at : at + 1] for at in range(len(said)))) == expected
    for cut in range(len(said)):
        assert read(said[:cut], said[cut:]) == expected
    with pytest.raises(redis_errors.ConnectionError):
        read(b"HTTP/1.1 400 Bad Request\r\n")


def test_requests_are_packed_as_the_server_reads_them() -> None:
    assert _resp.pack([b"SET", "zürich", 7, 1.5, bytearray(b"x")]) == (
        b"*5\r\n$3\r\nSET\r\n$7\r\nz\xc3\xbcrich\r\n$1\r\n7\r\n$3\r\n1.5\r\n$1\r\nx\r\n"
    )


def test_a_line_looks_only_after_what_is_overdue_and_only_once() -> None:
    class Sink:
        def __init__(self) -> None:
            self.errors = 0

        def done(self) -> bool:
            return False  # as places do, which are asked for again and again

        def set_result(self, _: object) -> None: ...

        def set_exception(self, _: BaseException) -> None:
            self.errors += 1

    async def program() -> None:
        silent = await asyncio.start_server(lambda _reader, _writer: asyncio.sleep(5), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*silent.sockets[0].getsockname())
        line, first, waits = _lines.Line(writer, 0.1), Sink(), Sink()
        line.send(b"PING\r\n", [first], 0.1)
        line.heard(b"PONG")
        line.send(b"waits\r\n", [waits], 60)
        time.sleep(0.3)  # the loop is late
        await asyncio.sleep(0.1)
        assert line.is_usable
        line.send(b"PING\r\n", [first], 0.1)
        await asyncio.sleep(0.4)
        assert not line.is_usable
        # Once because it was overdue, and once because the line was retired.
        assert (first.errors, waits.errors) == (2, 1)
        line.close()
        silent.close()

    asyncio.run(program())
