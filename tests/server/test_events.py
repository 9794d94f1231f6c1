"""Whoever listens to a server hears each batch once, whenever they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from sqlstream.server.events import Events, Places
from sqlstream.session.session import Session
from sqlstream.warehouse.paths import Warehouse


async def batches(heard: AsyncIterator[bytes], last: int) -> list[int]:
    """Return the versions of the batches that are heard, up to one."""
    found: list[int] = []
    async for text in heard:
        if text.startswith(b"event: batch"):
            found.append(json.loads(text.decode().partition("data: ")[2])["version"])
            if found[-1] >= last:
                break
    return found


def test_a_listener_who_comes_before_others_have_heard_of_a_batch_hears_it_once(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()

    async def run(session: Session) -> tuple[list[int], list[int]]:
        events = Events(Warehouse(f"{tmp_path}/warehouse"), Places(2))
        first, second = events.listen(None), events.listen(None)
        await anext(first)
        # Nobody has looked since.
        session.sql("INSERT INTO given VALUES (2)")
        await anext(second)
        early = asyncio.create_task(batches(first, 2))
        late = asyncio.create_task(batches(second, 1))
        so_far = await late
        session.sql("INSERT INTO given VALUES (3)")
        try:
            return await early, [*so_far, *await batches(second, 2)]
        finally:
            events.close()

    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE given (a INT); INSERT INTO given VALUES (1)")
        early, late = asyncio.run(run(session))
    assert early == [0, 1, 2]
    assert late in ([0, 1, 2], [1, 2])
