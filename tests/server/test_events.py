"""Whoever listens to a server hears each batch once, whenever they come."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sqlstream.errors import OutageError
from sqlstream.server.events import Events, ListenerLimit, Watcher
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
        events = Events(Warehouse(f"{tmp_path}/warehouse"), ListenerLimit(2))
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


def events_in(heard: list[bytes]) -> list[tuple[str, str]]:
    """Return the kinds of events and the jobs that they are of."""
    parts = [text.decode().partition("\ndata: ") for text in heard if text.startswith(b"event: ")]
    return [(kind.removeprefix("event: "), json.loads(data)["job"]) for kind, _, data in parts]


def test_who_comes_later_hears_nothing_of_a_job_that_was_dropped(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()

    async def run(session: Session) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        events = Events(Warehouse(f"{tmp_path}/warehouse"), ListenerLimit(2))
        first, second = events.listen(None), events.listen(None)
        await anext(first)
        session.drop("GIVEN_values")
        before: list[bytes] = []
        try:
            while b"event: dropped" not in (before[-1] if before else b""):
                before.append(await anext(first))
            return events_in(before), events_in([await anext(second) for _ in range(3)])
        finally:
            events.close()

    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE Given (a INT); CREATE TABLE other (a INT)")
        session.sql("INSERT INTO Given VALUES (1)")
        session.sql("INSERT INTO other VALUES (1)")
        first, second = asyncio.run(run(session))
    names = {job for _, job in first}
    assert names == {"Given_values", "other_values"}
    assert first[-1] == ("dropped", "Given_values")
    assert second == [("job", "other_values"), ("batch", "other_values")]


def test_a_job_that_was_made_anew_between_two_looks_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    watcher = Watcher(Warehouse(f"{tmp_path}/warehouse"))
    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE given (a INT); INSERT INTO given VALUES (1)")
        watcher.look()
        session.drop("given_values")
        session.sql("INSERT INTO given VALUES (2)")
    assert [(event.kind, event.data.get("version")) for event in watcher.look()] == [
        ("dropped", None),
        ("job", None),
        ("batch", 0),
        ("watermark", 0),
    ]


def test_all_batches_of_a_job_that_began_between_two_looks_are_heard(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    watcher = Watcher(Warehouse(f"{tmp_path}/warehouse"))
    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE old (a INT); CREATE TABLE given (a INT)")
        for number in range(3):
            session.sql(f"INSERT INTO old VALUES ({number})")
        first = watcher.look()
        for number in range(3):
            session.sql(f"INSERT INTO given VALUES ({number})")
    assert [event.data["version"] for event in first if event.kind == "batch"] == [2]
    assert [event.data["version"] for event in watcher.look() if event.kind == "batch"] == [0, 1, 2]


def test_who_listens_to_a_job_hears_it_however_many_others_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "catalog").mkdir()
    monkeypatch.setattr("sqlstream.server.events._WAITING", 1)

    async def run() -> list[tuple[str, str]]:
        events = Events(Warehouse(f"{tmp_path}/warehouse"), ListenerLimit(1))
        listening = events.listen("Z_VALUES")
        try:
            return events_in([await anext(listening) for _ in range(3)])
        finally:
            events.close()

    with Session(str(tmp_path)) as session:
        for name in ("a", "z"):
            session.sql(f"CREATE TABLE {name} (a INT)")
            session.sql(f"INSERT INTO {name} VALUES (1)")
        assert asyncio.run(run()) == [("job", "z_values"), ("batch", "z_values")]


def test_a_store_that_is_away_for_a_moment_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "catalog").mkdir()
    failed, jobs = threading.Event(), Warehouse.jobs

    def away_once(warehouse: Warehouse) -> list[str]:
        if not failed.is_set():
            failed.set()
            raise OutageError("the store does not answer")
        return jobs(warehouse)

    async def run(session: Session) -> list[int]:
        events = Events(Warehouse(f"{tmp_path}/warehouse"), ListenerLimit(1))
        listening = events.listen(None)
        await anext(listening)
        monkeypatch.setattr(Warehouse, "jobs", away_once)
        await asyncio.to_thread(failed.wait)
        session.sql("INSERT INTO given VALUES (2)")
        try:
            return await asyncio.wait_for(batches(listening, 1), 60)
        finally:
            events.close()

    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE given (a INT); INSERT INTO given VALUES (1)")
        assert asyncio.run(run(session)) == [0, 1]
