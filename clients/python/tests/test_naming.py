"""Functions that are called under a lock, whose name their arguments make up."""

from __future__ import annotations

import asyncio
import inspect
from typing import AsyncIterator, Iterator, Optional

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.asyncio
from leasehold import LockLost, SettingError
from leasehold._naming import naming
from servers import Server


def work(report: object, part: str = "all", *rest: object, to: str = "file") -> None: ...


@pytest.mark.parametrize(
    ("template", "args", "kwargs", "expected"),
    [
        ("report", (7,), {}, "report"),
        ("report:{0}", (7,), {}, "report:7"),
        ("report:{0}:{1}", (7,), {}, "report:7:all"),
        ("report:{report}:{to}", (), {"report": 7, "to": "disk"}, "report:7:disk"),
        ("report:{0}:{1}", ("a:b", "c"), {}, "report:a%3Ab:c"),
        ("report:{0}:{1}", ("a", "b:c"), {}, "report:a:b%3Ac"),
        ("{{0}}:{0:03d}", (7,), {}, "{0}:007"),
        ("{0}", ("é%/",), {}, "%C3%A9%25%2F"),
    ],
)
def test_a_name_is_made_of_arguments(
    template: str, args: tuple[object, ...], kwargs: dict[str, object], expected: str
) -> None:
    assert naming(template, work)(args, kwargs) == expected


def test_a_field_without_a_name_is_refused_at_once() -> None:
    with pytest.raises(SettingError, match="numbers or names"):
        naming("report:{}", work)


@pytest.mark.parametrize(
    ("template", "mistake"), [("{4}", "no argument 4"), ("{nobody}", "no argument nobody"), ("{report.id[0]}", None)]
)
def test_a_field_that_is_no_argument_is_refused_at_once(template: str, mistake: Optional[str]) -> None:
    if mistake is None:
        naming(template, work)
        return
    with pytest.raises(SettingError, match=mistake):
        naming(template, work)


def test_what_has_no_text_is_no_part_of_a_name() -> None:
    with pytest.raises(SettingError, match="the object itself"):
        naming("{0}", work)((object(),), {})


def test_work_that_begins_after_the_call_is_refused(server: Server) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    locks = leasehold.Leasehold(redis.Redis.from_url(server.url))
    tasks = leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url))
    for late in (coroutine, generator, both):
        with pytest.raises(SettingError, match="locked"):
            locks.locked("x")(late)
    for other in (generator, both, work):
        with pytest.raises(SettingError, match="locked"):
            tasks.locked("x")(other)  # type: ignore[arg-type]
    locks.close()


def test_a_function_runs_under_its_lock(server: Server) -> None:
    with leasehold.Leasehold(redis.Redis.from_url(server.url)) as locks:

        @locks.locked("report:{number}", ttl=5)
        def write(number: int, others: int = 0) -> list[bool]:
            """Writes it."""
            return [server.holder(f"report:{each}") is not None for each in (number, others)]

        assert (write(7), write(others=7, number=8)) == ([True, False], [True, False])
        assert (write.__name__, write.__doc__) == ("write", "Writes it.")
        assert server.holder("report:7") is None

        @locks.locked("failing")
        def fail() -> None:
            raise ValueError(server.holder("failing"))

        with pytest.raises(ValueError, match=":"):
            fail()
        assert server.holder("failing") is None


def test_a_coroutine_function_is_stopped_when_its_lock_is_lost(server: Server) -> None:
    async def program() -> None:
        async with leasehold.asyncio.Leasehold(redis.asyncio.Redis.from_url(server.url)) as locks:

            @locks.locked("report:{0}", ttl=0.3)
            async def write(number: int) -> bool:
                if number == 7:
                    with server.client() as client:
                        client.delete("report:7")
                    await asyncio.sleep(60)
                return server.holder(f"report:{number}") is not None

            assert inspect.iscoroutinefunction(write)
            assert await write(8)
            with pytest.raises(LockLost):
                await write(7)

    asyncio.run(program())
