"""Functions that tests look rows up with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

USERS: dict[int, dict[str, Any]] = {1: {"name": "ann", "city": "rome"}, 2: {"name": "bob", "city": None}}
ORDERS = {1: [{"item": "pen"}, {"item": "ink"}], 2: []}


def user(id: int) -> dict[str, Any] | None:
    return USERS.get(id)


def name_of_day(d: date) -> dict[str, Any]:
    return {"name": f"{d:%A}"}


async def user_later(id: int) -> dict[str, Any] | None:
    await asyncio.sleep(0)
    return USERS.get(id)


class Later:
    """Writes how many calls wait."""

    def __init__(self, log: str):
        self.log, self.waiting = Path(log), 0

    async def __call__(self, id: int) -> dict[str, Any]:
        self.waiting += 1
        with self.log.open("a") as file:
            file.write(f"{self.waiting}\n")
        await asyncio.sleep(0)
        return {"name": "ann"}


def orders(user: int) -> Iterator[dict[str, Any]]:
    yield from ORDERS.get(user, ())


class Users:
    """Answers from what the table's options say, and fails as long as a file is there."""

    def __init__(self, log: str, broken: str = ""):
        self.log, self.broken = Path(log), Path(broken)

    def __call__(self, id: int) -> dict[str, Any] | None:
        with self.log.open("a") as file:
            file.write(f"{id}\n")
        if self.broken.name and self.broken.exists():
            self.broken.write_text(self.broken.read_text()[1:])
            if not self.broken.read_text():
                self.broken.unlink()
            raise ConnectionError("nobody answers")
        return USERS.get(id)


def wrong(id: int) -> dict[str, Any]:
    return {"nam": "ann"}
