"""A job goes on with another number of tasks."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.jobs import parallelism, redistribution
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Layout
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.retention import GRACE, sweep
from sqlstream.testing import Stream
from sqlstream.units import SECOND, ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.jobs.savepoint_jobs import FIRST, SCRIPT, open_session, planned, put, wait_until_done
from tests.processes import SECONDS

COUNTS = """
CREATE TABLE seen (user STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE TABLE totals (user STRING, n BIGINT, total BIGINT);
INSERT INTO totals
WITH by_user AS (SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM seen GROUP BY user) SELECT * FROM by_user;
CREATE TABLE windows (user STRING, ends TIMESTAMP(3), total BIGINT);
INSERT INTO windows
WITH by_minute AS (
    SELECT user, window_end, SUM(amount) AS total FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
    GROUP BY user, window_start, window_end
)
SELECT user, window_end, total FROM by_minute;
"""


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(COUNTS, options={"sqlstream.unbounded-state": "allow"}, parallelism=2) as stream:
        yield stream


def feed(stream: Stream, batch: int, rows: int = 300) -> list[tuple[str, int, str]]:
    """Give a batch of rows of a minute of their own; return them."""
    made = random.Random(batch)
    given = [
        (f"user {made.randrange(80)}", made.randrange(1000), f"2026-01-01 10:{batch:02}:{made.randrange(50):02}")
        for _ in range(rows)
    ]
    stream.batch("seen", given)
    return given


def totals(rows: list[tuple[str, int, str]]) -> set[tuple[str, int, int]]:
    users = {user for user, _, _ in rows}
    own = {user: [amount for u, amount, _ in rows if u == user] for user in users}
    return {(user, len(amounts), sum(amounts)) for user, amounts in own.items()}


@pytest.mark.slow
def test_a_job_that_is_spread_anew_gives_the_results_of_one_that_is_not_and_older_versions_stay_readable(
    stream: Stream,
) -> None:
    rows: list[tuple[str, int, str]] = []
    seen = {}
    for batch, tasks in enumerate((2, 8, 3, 1, 5)):
        stream.restart(tasks)
        rows += feed(stream, batch)
        expected = seen[entry_of(stream).version] = totals(rows)
        assert set(stream.query("FROM totals")) == expected
    for version, expected in seen.items():
        assert (
            set(stream.query(f"SELECT user, n, total FROM state.totals.by_user AT (VERSION => {version})")) == expected
        )
    stream.finish()
    minutes = {(user, f"10:{int(ts[14:16]) + 1:02}") for user, _, ts in rows}
    ended = stream.query("SELECT user, strftime(ends, '%H:%M'), total FROM windows")
    assert {(user, ends) for user, ends, _ in ended} == minutes
    assert len(ended) == len(minutes)
    assert sum(total for _, _, total in ended) == sum(amount for _, amount, _ in rows)


class ManyTasks(LocalEngine):
    """The engine that is this process, with as many buckets as others have."""

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, tuple(range(partitions)))


def test_lines_say_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallelism, "TELL_SECONDS", 0.0)
    put(tmp_path, "a", FIRST)
    notices: list[str] = []
    with open_session(tmp_path, notices) as s:
        for tasks in (2, 9):
            script = f"SET 'parallelism.default' = '{tasks}'; {SCRIPT}"
            job = s._jobs.start(planned(s, script), {}, engine=ManyTasks())
            wait_until_done(s, job, FIRST)
            job.stop()
            assert job.wait(SECONDS)
    told = [found for notice in notices if (found := re.search("([0-9,]+) of ([0-9,]+) stored rows spread", notice))]
    assert len(told) > 1
    assert told[-1][1] == told[-1][2] != "0"


def test_each_bucket_has_the_keys_whose_hash_says_so(stream: Stream) -> None:
    feed(stream, 0)
    stream.restart(7)
    counted = {b: m.state_rows for b, m in entry_of(stream).operators["by_user"].buckets.items()}
    assert set(counted) == set(range(7))
    assert sum(counted.values()) == len(stream.query("FROM totals"))
    # Rows that come find those of their keys, and leave none behind.
    feed(stream, 1)
    assert len(stream.query("FROM state.totals.by_user")) == len(stream.query("SELECT DISTINCT user FROM totals"))


def test_a_process_that_is_killed_meanwhile_changes_nothing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = feed(stream, 0)
    before, spread = entry_of(stream), redistribution.DistributedState.over
    calls = []

    def killed(*arguments: object) -> object:
        # All new files are there, and the log does not name them.
        calls.append(spread(*arguments))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(redistribution.DistributedState, "over", killed)
    with pytest.raises(KeyboardInterrupt):
        stream.restart(6)
    assert calls
    assert entry_of(stream) == before
    assert set(stream.query("SELECT user, n, total FROM state.totals.by_user")) == totals(rows)
    monkeypatch.undo()
    stream.restart(4)
    rows += feed(stream, 1)
    assert set(stream.query("FROM totals")) == totals(rows)


def test_a_damaged_segment_is_named_and_nothing_is_spread(stream: Stream) -> None:
    feed(stream, 0)
    before = entry_of(stream)
    warehouse = Warehouse(stream.warehouse)
    paths = warehouse.job("totals").operator("by_user")
    segment = next(name for name in warehouse.fs.list(paths.data(0)) if name.endswith(".parquet"))
    with open(f"{paths.data(0)}/{segment}", "r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(Exception, match=segment):
        stream.restart(3)
    assert entry_of(stream) == before


@pytest.mark.slow
def test_buckets_that_the_job_has_left_are_deleted_when_nobody_can_read_them(stream: Stream) -> None:
    rows = feed(stream, 0)
    stream.restart(6)
    rows += feed(stream, 1)
    stream.restart(2)
    warehouse = Warehouse(stream.warehouse)
    job = warehouse.job("totals")
    left = job.operator("by_user").manifests(5)
    later = ProcessingTime(stream.now + 3600 * SECOND)
    sweep(warehouse.fs, job, 0, 1, ProcessingTime(later + GRACE))
    assert warehouse.fs.list(left)
    newest = 0
    for batch in range(2, 6):
        rows += feed(stream, batch)
        newest = last_committed(warehouse.fs, job) or 0
        sweep(warehouse.fs, job, 0, newest, stream.now)
    assert warehouse.fs.list(left)
    sweep(warehouse.fs, job, 0, newest, later)
    assert not warehouse.fs.list(left)
    assert not warehouse.fs.list(job.operator("by_user").data(5))
    assert set(stream.query("FROM totals")) == totals(rows)


@pytest.mark.slow
def test_buckets_stay_that_no_version_has_been_committed_with(stream: Stream) -> None:
    rows = feed(stream, 0)
    rows += feed(stream, 1)
    stream.restart(6)
    warehouse = Warehouse(stream.warehouse)
    job = warehouse.job("totals")
    # The job that runs keeps house before its first batch is done.
    newest = last_committed(warehouse.fs, job)
    assert newest is not None
    sweep(warehouse.fs, job, 0, newest - 1, ProcessingTime(stream.now + 3600 * SECOND))
    rows += feed(stream, 2)
    assert set(stream.query("FROM totals")) == totals(rows)
    assert set(stream.query("SELECT user, n, total FROM state.totals.by_user")) == totals(rows)


def entry_of(stream: Stream) -> LogEntry:
    """Return the log's entry of the last version of the job `totals`."""
    warehouse = Warehouse(stream.warehouse)
    entry = parallelism.newest_entry(warehouse, "totals")
    assert entry is not None
    assert entry == JobLog(warehouse.fs, warehouse.job("totals").log).entry(entry.version)
    return entry
