"""A service that books the seats of a theatre: ``POST /seats/12A`` books a seat, and no seat is booked twice.

REDIS_URL=redis://127.0.0.1:6379 BOOK=/tmp/seats.db PORT=8080 python3 booking.py
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Callable

import redis.asyncio
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from leasehold import LeaseholdError
from leasehold.asyncio import Leasehold
from pydantic import BaseModel

from book import Book, Overtaken

BANK = float(os.environ.get("BANK", "0.2"))
"""How long a bank takes."""

GRACE = int(os.environ.get("GRACE", "10"))
"""How long requests may take to end when the service is to stop."""

log = logging.getLogger("uvicorn.error")


class Guest(BaseModel):
    guest: str


class Seat(BaseModel):
    seat: str
    guest: str


async def authorize(_guest: str) -> None:
    """Asks the bank for the price of the seat."""
    await asyncio.sleep(BANK)


def theatre(
    url: str, book: Book, authorize: Callable[[str], Awaitable[None]] = authorize, wait: float = 2.0
) -> FastAPI:
    """Several of these may share one server of locks and one book. A guest waits for so many seconds while others book
    the same seat."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        locks = app.state.locks = Leasehold(redis.asyncio.Redis.from_url(url), prefix="seat:", ttl=10)
        yield
        # All requests have ended.
        left = await locks.close()
        if left:
            log.error("not released: %s", left)

    app = FastAPI(lifespan=lifespan)

    @app.post("/seats/{seat}", status_code=201)
    async def book_seat(seat: str, body: Guest, request: Request) -> Seat:
        locks: Leasehold = request.app.state.locks
        # What is under the lock is cancelled when the lock is lost.
        async with locks.lock(seat, wait=wait) as lease:
            if await book.guest_of(seat, lease.fence) is not None:
                raise HTTPException(409, f"{seat} is taken")
            await authorize(body.guest)
            await book.enter(seat, body.guest, lease.fence)
        return Seat(seat=seat, guest=body.guest)

    @app.exception_handler(Overtaken)
    async def overtaken(_request: Request, _error: Overtaken) -> JSONResponse:
        return JSONResponse({"detail": "the seat is being booked by somebody else"}, 409)

    @app.exception_handler(LeaseholdError)
    async def unavailable(_request: Request, error: LeaseholdError) -> JSONResponse:
        # Others had the lock for too long, it was lost, no server answered, or this process ends.
        log.warning("%s", error)
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    return app


if __name__ == "__main__":
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
    app = theatre(url, Book(Path(os.environ.get("BOOK", "/tmp/seats.db"))))
    # On SIGTERM requests end as they would. Those that take longer are cancelled, and their locks are released.
    uvicorn.run(app, port=int(os.environ.get("PORT", "8080")), timeout_graceful_shutdown=GRACE)
