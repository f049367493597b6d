"""The book of a theatre: a SQLite database that takes a write only with the newest fence of the seat."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Optional

TABLE = """
    CREATE TABLE IF NOT EXISTS seats (
        name TEXT PRIMARY KEY,
        guest TEXT,
        fence INTEGER NOT NULL -- the largest one that was seen
    )"""


class Overtaken(Exception):
    """A newer fence has been stored: somebody else has had the lock since."""


class Book:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._run(TABLE)

    async def guest_of(self, seat: str, fence: int) -> Optional[str]:
        """Who has the seat. It stores the fence and reads in one step: from then on no write with an older fence is
        taken."""
        sql = """INSERT INTO seats (name, fence) VALUES (?, ?) ON CONFLICT (name)
            DO UPDATE SET fence = excluded.fence WHERE fence <= excluded.fence RETURNING guest"""
        return await self._write(sql, seat, fence)

    async def enter(self, seat: str, guest: str, fence: int) -> None:
        sql = "UPDATE seats SET guest = ? WHERE name = ? AND fence <= ? RETURNING guest"
        await self._write(sql, guest, seat, fence)

    async def _write(self, sql: str, *values: object) -> Optional[str]:
        # A thread is not stopped when its task is cancelled. It writes all the same, if its fence is the newest.
        row = await asyncio.to_thread(self._run, sql, *values)
        if row is None:
            raise Overtaken
        guest: Optional[str] = row[0]
        return guest

    def _run(self, sql: str, *values: object) -> Optional[tuple[Optional[str]]]:
        with closing(sqlite3.connect(self._file)) as database, database:
            row: Optional[tuple[Optional[str]]] = database.execute(sql, values).fetchone()
            return row
