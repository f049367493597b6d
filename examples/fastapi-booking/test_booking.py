from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Callable, Optional

import httpx
import pytest

from book import Book
from booking import theatre
from servers import PATIENCE, Server, eventually, free_port, raw

SEAT = "/seats/12A"
LOCK = "seat:12A"

Authorize = Callable[[str], Awaitable[None]]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "seats.db")


async def at_once(_guest: str) -> None:
    pass


@asynccontextmanager
async def service(
    server: Server, book: Book, authorize: Authorize = at_once, wait: float = PATIENCE
) -> AsyncIterator[httpx.AsyncClient]:
    """With connections of its own, as another process would have."""
    app = theatre(server.url, book, authorize, wait)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        yield client


async def books(client: httpx.AsyncClient, guest: str) -> httpx.Response:
    return await client.post(SEAT, json={"guest": guest}, timeout=PATIENCE)


def test_a_free_seat_is_booked_and_one_that_is_taken_is_refused(server: Server, book: Book) -> None:
    async def evening() -> None:
        async with service(server, book) as client:
            first = await books(client, "anna")
            assert (first.status_code, first.json()) == (201, {"seat": "12A", "guest": "anna"})
            second = await books(client, "ben")
            assert (second.status_code, second.json()) == (409, {"detail": "12A is taken"})
            assert server.holder(LOCK) is None

    asyncio.run(evening())


def test_a_seat_is_given_to_one_of_many_who_ask_at_once_at_two_services(server: Server, book: Book) -> None:
    inside: list[str] = []

    async def bank(guest: str) -> None:
        inside.append(guest)
        await asyncio.sleep(0.01)
        assert inside.pop() == guest
        assert not inside

    async def evening() -> None:
        async with service(server, book, bank) as one, service(server, book, bank) as other:
            asked = [books(client, str(guest)) for guest in range(10) for client in (one, other)]
            codes = [answer.status_code for answer in await asyncio.gather(*asked)]
            assert sorted(codes) == [201] + [409] * 19

    asyncio.run(evening())


def test_a_guest_is_asked_to_come_again_if_others_take_too_long(server: Server, book: Book) -> None:
    async def evening() -> None:
        raw(server, "LOCK.ACQUIRE", LOCK, "somebody", 60_000)
        async with service(server, book, wait=0.2) as client:
            answer = await books(client, "anna")
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert "held by others" in answer.json()["detail"]
        assert server.waiters(LOCK) == 0

    asyncio.run(evening())


def test_a_guest_is_asked_to_come_again_if_no_server_answers(server: Server, book: Book) -> None:
    async def evening() -> None:
        server.kill()
        async with service(server, book, wait=0.5) as client:
            answer = await books(client, "anna")
            assert answer.status_code == 503
            assert "held by others" not in answer.json()["detail"]

    asyncio.run(evening())


def test_the_work_is_cancelled_if_the_lock_is_lost(server: Server, book: Book) -> None:
    async def evening() -> None:
        is_asked = asyncio.Event()
        cancelled = False

        async def bank(_guest: str) -> None:
            nonlocal cancelled
            is_asked.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled = True
                raise

        async with service(server, book, bank) as slow, service(server, book) as client:
            anna = asyncio.create_task(books(slow, "anna"))
            await is_asked.wait()
            raw(server, "DEL", LOCK)
            answer = await anna
            assert answer.status_code == 503
            assert "was lost" in answer.json()["detail"]
            assert cancelled
            assert (await books(client, "ben")).status_code == 201

    asyncio.run(evening())


def test_the_book_refuses_a_guest_whose_lock_was_lost_before_the_loop_was_told(server: Server, book: Book) -> None:
    async def evening() -> None:
        async def bank(_guest: str) -> None:
            """While this loop stands still, another service has the lock and books."""
            raw(server, "DEL", LOCK)
            ben = asyncio.run_coroutine_threadsafe(other_service(), another)
            assert ben.result(PATIENCE) == 201

        async def other_service() -> int:
            async with service(server, book) as client:
                return (await books(client, "ben")).status_code

        with another_loop() as another:
            async with service(server, book, bank) as client:
                late = await books(client, "anna")
        assert (late.status_code, late.json()) == (409, {"detail": "the seat is being booked by somebody else"})
        assert await book.guest_of("12A", 2**53) == "ben"

    asyncio.run(evening())


@contextmanager
def another_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def program(server: Server, tmp_path: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[Any], str]]:
    """The service as a process of its own, and its address."""
    port = free_port()
    own = {"REDIS_URL": server.url, "BOOK": str(tmp_path / "seats.db"), "PORT": str(port), **environment}
    log = (tmp_path / "log").open("w")
    command = [sys.executable, str(Path(__file__).with_name("booking.py"))]
    child = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    try:
        said = tmp_path / "log"
        eventually(lambda: "Uvicorn running" in said.read_text(), "it listens")
        yield child, f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait()
        log.close()


def answer_after_sigterm(server: Server, tmp_path: Path, **environment: str) -> Optional[int]:
    """What a guest hears whose seat is being booked when the service is to end. It ends, and the lock is free."""

    async def asking(address: str) -> Optional[int]:
        async with httpx.AsyncClient(base_url=address) as client:
            try:
                return (await books(client, "anna")).status_code
            except httpx.RemoteProtocolError:
                return None

    async def evening() -> Optional[int]:
        with program(server, tmp_path, **environment) as (child, address):
            anna = asyncio.create_task(asking(address))
            while server.holder(LOCK) is None:
                assert not anna.done()
                await asyncio.sleep(0.005)
            child.send_signal(signal.SIGTERM)
            answer = await anna
            # uvicorn ends by the signal that it was given.
            assert child.wait(PATIENCE) in (0, -signal.SIGTERM)
        said = (tmp_path / "log").read_text()
        assert "Application shutdown complete" in said
        assert not re.search("not released", said)
        assert server.holder(LOCK) is None
        return answer

    return asyncio.run(evening())


def test_it_finishes_its_requests_on_sigterm_and_ends(server: Server, tmp_path: Path) -> None:
    assert answer_after_sigterm(server, tmp_path, BANK="2") == 201


def test_it_cuts_a_request_that_takes_too_long_when_it_is_to_end(server: Server, tmp_path: Path) -> None:
    assert answer_after_sigterm(server, tmp_path, BANK="60", GRACE="1") in (None, 500)
