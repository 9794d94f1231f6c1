"""Queries over state: one version of each job, older ones on request, and the tables about the jobs."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.errors import DamageError, QueryError
from sqlstream.queries.query import Sandbox, list_relations, open_query, translate
from sqlstream.storage.joblog import JobLog
from sqlstream.storage.retention import sweep
from sqlstream.units import END_OF_INPUT, NO_TIME, SECOND, ProcessingTime
from sqlstream.warehouse.commits import write_commit
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.locks import JobLock, SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import Status, write_status
from tests.properties.examples import examples
from tests.queries.small_job import EPOCH, SmallJob

DEPARTURES = "SELECT k, epoch(window_end)::INT AS e, n FROM state.hourly.departures"


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    """Three versions: windows at 10, 20 and 30 s; the first one is emitted and forgotten in version 2."""
    job = SmallJob(tmp_path / "warehouse")
    job.batch([("a", 1, 10), ("b", 2, 10)])
    job.batch([("a", 1, 10), ("b", 5, 20)], watermark=5)
    job.batch([("c", 1, 30)], [("a", 2), ("b", 2)], watermark=10)
    return job


def ask(job: SmallJob | Warehouse, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    warehouse = job.warehouse if isinstance(job, SmallJob) else job
    return open_query(warehouse, sql, **options).fetchall()


def test_a_query_in_a_sandbox_finds_nothing_of_the_query_before(job: SmallJob) -> None:
    sandbox = Sandbox(job.warehouse)
    older = f"{DEPARTURES} AT (VERSION => 0)"
    declared = {"planes": "(SELECT 747 AS model)"}
    for sql, tables in ((DEPARTURES, {}), ("FROM counts", {}), ("FROM planes", declared), (older, {})):
        assert sorted(sandbox.query(sql, catalog_tables=tables).fetchall()) == sorted(
            ask(job, sql, catalog_tables=tables)
        )
    with pytest.raises(QueryError, match='table "planes" does not exist'):
        sandbox.query("FROM planes")
    assert [name for name, _ in sandbox.query("SHOW TABLES").fetchall()] == [
        name for name, _ in ask(job, "SHOW TABLES")
    ]
    job.batch([("z", 9, 90)], [("z", 9)])
    assert sandbox.query("FROM counts").fetchall() == ask(job, "FROM counts")
    sandbox.close()


def test_a_view_shows_the_newest_committed_version(job: SmallJob) -> None:
    assert ask(job, f"{DEPARTURES} ORDER BY ALL") == [("b", 20, 5), ("c", 30, 1)]
    assert ask(job, "FROM counts ORDER BY ALL") == [("a", 2), ("b", 2)]


def test_a_batch_is_not_seen_before_its_commit(job: SmallJob) -> None:
    before = (
        ask(job, f"{DEPARTURES} ORDER BY ALL"),
        ask(job, "FROM counts ORDER BY ALL"),
        ask(job, "FROM sqlstream.jobs"),
    )
    job.attempt([("z", 7, 40)], [("z", 7)], watermark=20)
    assert (
        ask(job, f"{DEPARTURES} ORDER BY ALL"),
        ask(job, "FROM counts ORDER BY ALL"),
        ask(job, "FROM sqlstream.jobs"),
    ) == before
    job.commit()
    assert ask(job, f"{DEPARTURES} ORDER BY ALL") == [("c", 30, 1), ("z", 40, 7)]


def test_of_two_attempts_of_a_batch_the_last_one_counts(job: SmallJob) -> None:
    for _ in range(2):
        job.attempt([("z", 7, 40)], [("z", 7)], watermark=10)
    job.commit()
    assert ask(job, "SELECT n FROM state.hourly.departures WHERE k = 'z'") == [(7,)]
    assert ask(job, "SELECT n FROM counts WHERE k = 'z'") == [(7,)]


@pytest.mark.slow
def test_older_versions_of_state_and_tables(job: SmallJob) -> None:
    first = [("a", 10, 1), ("b", 10, 2)]
    second = [("a", 10, 2), ("b", 10, 2), ("b", 20, 5)]
    assert ask(job, f"{DEPARTURES} AT (VERSION => 0) ORDER BY ALL") == first
    assert ask(job, f"{DEPARTURES} AT (VERSION => 1) ORDER BY ALL") == second
    assert ask(job, f"{DEPARTURES} AT (VERSION => 2) ORDER BY ALL") == [("b", 20, 5), ("c", 30, 1)]
    assert ask(job, f"{DEPARTURES} AT (TIMESTAMP => TIMESTAMP '2026-01-01 00:00:01.9') ORDER BY ALL") == second
    assert ask(job, f"{DEPARTURES} AT (TIMESTAMP => '2026-01-01'::TIMESTAMPTZ) ORDER BY ALL") == first
    assert ask(job, f"{DEPARTURES} AT (TIMESTAMP => now() - INTERVAL 1 SECOND) ORDER BY e") == [
        ("b", 20, 5),
        ("c", 30, 1),
    ]
    assert ask(job, "FROM counts AT (VERSION => 1)") == []
    assert ask(job, "FROM counts AT (VERSION => 1 + 1) ORDER BY ALL") == [("a", 2), ("b", 2)]


def test_a_version_can_be_looked_up_in_the_tables_about_jobs(job: SmallJob) -> None:
    snapshots = "FROM sqlstream.snapshots WHERE job = 'hourly'"
    third = f"AT (VERSION => (SELECT max(version) - 1 {snapshots}))"
    assert ask(job, f"{DEPARTURES} {third} ORDER BY ALL") == ask(job, f"{DEPARTURES} AT (VERSION => 1) ORDER BY ALL")
    with_cte = f"AT (VERSION => (WITH v AS (SELECT min(version) AS first {snapshots}) SELECT first FROM v))"
    assert ask(job, f"{DEPARTURES} {with_cte} ORDER BY ALL") == ask(job, f"{DEPARTURES} AT (VERSION => 0) ORDER BY ALL")
    # Beside the table itself, which shows what the AT clause has seen.
    then = f"FROM state.hourly.departures AT (TIMESTAMP => (SELECT min(committed_at) {snapshots})) d, sqlstream.snapshots s"
    assert ask(job, f"SELECT count(DISTINCT d.k), count(DISTINCT s.version) {then}") == [(2, 3)]


def test_a_version_outlives_sparks_memory_of_its_commit(job: SmallJob) -> None:
    # Spark keeps the last hundred.
    for version in (0, 1):
        os.unlink(f"{job.paths.commits}/{version}")
    assert ask(job, f"{DEPARTURES} AT (VERSION => 0) ORDER BY ALL") == [("a", 10, 1), ("b", 10, 2)]
    assert ask(job, "SELECT version FROM sqlstream.snapshots ORDER BY ALL") == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    "clause",
    [
        "FROM state.hourly.departures now JOIN state.hourly.departures AT (VERSION => 0) old USING (k)",
        "FROM state.hourly.departures now JOIN state.hourly.departures AT (VERSION => 0) AS old USING (k)",
        "FROM state.hourly.departures now JOIN state.hourly.departures AS old AT (VERSION => 0) USING (k)",
        'FROM state.hourly.departures now JOIN STATE."hourly".Departures old AT(\nversion=>0\n) USING (k)',
        "FROM state.hourly.departures AT (VERSION => 2) now, state.hourly.departures /* AT ( */ AT -- (\n"
        "(VERSION => 0) old WHERE now.k = old.k",
    ],
)
def test_now_and_then_in_one_query(job: SmallJob, clause: str) -> None:
    assert ask(job, f"SELECT now.k, now.n, old.n {clause}") == [("b", 5, 2)]


def test_a_relation_at_a_version_keeps_its_name(job: SmallJob) -> None:
    rows = ask(
        job, "SELECT departures.n, hourly.departures.k FROM state.hourly.departures AT (VERSION => 0) ORDER BY 1"
    )
    assert rows == [(1, "a"), (2, "b")]
    assert ask(job, "SELECT x FROM counts AT (VERSION => 2) t(y, x) WHERE y = 'a' AND ' AT (VERSION => 7)' <> ''") == [
        (2,)
    ]
    assert ask(
        job, "WITH c AS (FROM counts AT (VERSION => 1)) SELECT (SELECT count(*) FROM c), count(*) FROM counts"
    ) == [(0, 2)]


def test_state_and_results_are_of_one_version_while_the_job_goes_on(tmp_path: Path) -> None:
    # Every row is either in the state or, since the watermark passed it, in the results.
    job = SmallJob(tmp_path, retention=(NO_TIME, 3))
    job.batch([("a", 1, 1)])
    done = threading.Event()

    def run() -> None:
        for version in range(1, 25):
            job.batch([("a", 1, version + 1)], [("a", 1)], watermark=version)
            sweep(job.warehouse.fs, job.paths, max(0, version - 3), version, ProcessingTime(2 * EPOCH))
        done.set()

    writer = threading.Thread(target=run)
    writer.start()
    sql = "SELECT version, (SELECT sum(n) FROM state.hourly.departures), (SELECT count(*) FROM counts) FROM sqlstream.jobs"
    seen: list[tuple[Any, ...]] = []
    while not done.is_set() or not seen:
        try:
            seen += ask(job, sql)
        except (duckdb.Error, QueryError) as error:
            # This sweep has no minute of grace: it may come between opening and reading, or four times while opening.
            message = translate(error, sql).message if isinstance(error, duckdb.Error) else error.message
            assert message in ("the state changed while it was read", "the state changed faster than it could be read")
    writer.join()
    assert {(held, emitted - version) for version, held, emitted in seen} == {(1, 0)}
    assert [v for v, _, _ in seen] == sorted(v for v, _, _ in seen)


def contents(job: SmallJob, version: int | None = None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    at = "" if version is None else f" AT (VERSION => {version})"
    return sorted(ask(job, DEPARTURES + at)), sorted(ask(job, "FROM counts" + at))


class OvertakenFilesystem(LocalFilesystem):
    """Lets the job commit a batch and sweep at once, just before the first manifest is read."""

    def __init__(self, job: SmallJob):
        self.job = job
        self.overtaken = 0

    def read_text(self, path: str) -> str:
        if "/manifests/" in path and not self.overtaken:
            self.overtaken = 1
            for _ in range(2):
                self.job.batch([("d", 4, 40)], watermark=20)
            sweep(self.job.warehouse.fs, self.job.paths, 0, self.job.version, ProcessingTime(2 * EPOCH))
        return super().read_text(path)


def test_a_reader_that_is_overtaken_looks_again(job: SmallJob) -> None:
    warehouse = Warehouse(job.warehouse.root)
    warehouse.fs = filesystem = OvertakenFilesystem(job)
    assert ask(warehouse, f"{DEPARTURES} ORDER BY ALL") == [("c", 30, 1), ("d", 40, 8)]
    assert filesystem.overtaken


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.integers(1, 12)), max_size=4),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@examples(6)
@given(plan=batches)
def test_every_version_reads_as_it_did_when_it_was_the_newest(
    tmp_path_factory: pytest.TempPathFactory, plan: Sequence[tuple[list[tuple[str, int, int]], int]]
) -> None:
    job = SmallJob(tmp_path_factory.mktemp("w"))
    watermark, then = 0, {}
    for version, (rows, step) in enumerate(plan):
        watermark += step
        rows = [(k, n, end + watermark) for k, n, end in rows]
        job.batch(rows, [(k, n) for k, n, _ in rows], watermark=watermark)
        if version % 4 == 0:
            then[version] = contents(job)
    assert {version: contents(job, version) for version in then} == then


@pytest.mark.slow
def test_compaction_and_sweeping_leave_older_versions_as_they_were(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    then = {}
    for version in range(30):
        job.batch([("a", 1, 10), ("a", 1, version + 11)], [("a", version)], watermark=version)
        if version % 5 == 3:
            then[version] = contents(job)
    assert sweep(job.warehouse.fs, job.paths, 0, job.version, ProcessingTime(2 * EPOCH)) > 50
    assert len(list((tmp_path / "jobs/hourly/state/departures/data/1").iterdir())) < 15
    assert {version: contents(job, version) for version in then} == then


def test_a_manifest_that_is_gone_is_not_taken_for_no_rows(job: SmallJob) -> None:
    for path in Path(f"{job.paths.state}/departures/manifests/1").glob("0000000002-*"):
        path.unlink()
    with pytest.raises(
        DamageError, match=r'manifests/1/0000000002-\w+\.json" is missing\nIt says which files hold the state'
    ):
        ask(job, DEPARTURES)


def test_jobs_share_a_table_each_at_its_own_version(tmp_path: Path) -> None:
    job, other = SmallJob(tmp_path), SmallJob(tmp_path, "daily")
    job.batch([], [("a", 1)])
    job.batch([], [("a", 2)])
    job.batch([], [("a", 3)])
    other.attempt([], [("b", 10)])
    assert ask(job, "SELECT sum(n) FROM counts") == [(6,)]
    other.commit()
    assert ask(job, "SELECT sum(n) FROM counts") == [(16,)]
    assert ask(job, "SELECT sum(n) FROM counts AT (TIMESTAMP => TIMESTAMP '2026-01-01 00:00:01')") == [(13,)]
    with pytest.raises(QueryError, match="several jobs write this table"):
        ask(job, "FROM counts AT (VERSION => 0)")


def test_a_job_without_a_version_has_empty_relations(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    assert ask(job, "FROM state.hourly.departures") == []
    assert ask(job, "DESCRIBE state.hourly.departures")[1][:2] == ("window_end", "TIMESTAMP")
    assert ask(job, "FROM counts") == []
    assert ask(job, "SELECT job, version, rows_in FROM sqlstream.jobs") == [("hourly", None, 0)]
    assert ask(job, "FROM sqlstream.snapshots") == []
    with pytest.raises(QueryError, match='job "hourly" has no version yet'):
        ask(job, "FROM counts AT (VERSION => 0)")


def test_system_tables(job: SmallJob) -> None:
    at, mark = datetime(2026, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 10)
    next_end = datetime(1970, 1, 1, 0, 0, 20)
    assert ask(job, "FROM sqlstream.jobs") == [
        (
            "hourly",
            "STOPPED",
            2,
            mark,
            5,
            2,
            at,
            at + timedelta(seconds=5),
            os.getpid(),
            None,
            job.record.sql,
            0,
            "columns",
            "duckdb",
            # Its status is one of a version that did not write the engine.
            None,
        )
    ]
    assert ask(job, "FROM sqlstream.operators") == [
        (
            "hourly",
            "departures",
            "window aggregate",
            ["k"],
            3,
            99,
            2,
            1,
            "watermark",
            4,
            2,
            next_end,
            0,
            0,
            0,
            {},
            0,
            mark,
            None,
        )
    ]
    assert ask(job, "FROM sqlstream.snapshots ORDER BY version")[::2] == [
        ("hourly", 0, at, None),
        ("hourly", 2, at + timedelta(seconds=2), mark),
    ]
    assert ask(job, "FROM sqlstream.watermarks") == [
        ("hourly", "bid", mark, mark, True, None, 1, at, 0, None, 0, 5, None, ["departures"])
    ]
    write_status(job.warehouse.fs, job.paths, Status("RUNNING", 1, "here", EPOCH, EPOCH))
    assert ask(job, "SELECT status FROM sqlstream.jobs") == [("LOST",)]


def test_a_source_of_a_running_job_is_idle_by_now(job: SmallJob) -> None:
    asked = "SELECT idle_since, holds_minimum FROM sqlstream.watermarks"
    assert ask(job, asked) == [(None, True)], "as of the last batch"
    with SessionLock.open(job.warehouse) as session:
        JobLock.acquire(job.warehouse.fs, job.paths, session)
        for started, idle in ((EPOCH, 62_000), (ProcessingTime(EPOCH + 5 * SECOND), 65_000)):
            status = Status("RUNNING", os.getpid(), socket.gethostname(), started, started)
            write_status(job.warehouse.fs, job.paths, status)
            since = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=idle)
            assert ask(job, asked) == [(since, True)]


def test_the_end_of_input_is_infinity(job: SmallJob) -> None:
    job.batch([], [("c", 1)], watermark=None)
    log = JobLog(job.warehouse.fs, job.paths.log)
    entry = log.entry(3)
    assert entry is not None
    log.append(type(entry)(3, ProcessingTime(EPOCH + 3 * SECOND), END_OF_INPUT))
    assert ask(job, "SELECT watermark = 'infinity' FROM sqlstream.jobs") == [(True,)]
    assert ask(job, "FROM state.hourly.departures") == []


def test_show_tables_lists_names_as_they_are_written(job: SmallJob) -> None:
    names = [name for name, _ in ask(job, "SHOW ALL TABLES")]
    assert names[:3] == ["state.hourly.departures", "counts", "sqlstream.checks"]
    assert names == list(map(".".join, list_relations(job.warehouse)))
    assert ask(job, "show tables;")[0] == ("state.hourly.departures", "k, window_end, n")
    for name in names:
        assert ask(job, f"DESCRIBE {name}")


def test_names_that_need_quotes_or_look_like_patterns(tmp_path: Path) -> None:
    job = SmallJob(tmp_path / "my [ware]house?", 'hot "items"/2', "Top 10")
    job.batch([("a", 1, 10)], [("a", 1)])
    assert ask(job, 'SELECT n FROM state."hot ""items""/2".departures') == [(1,)]
    assert ask(job, 'SELECT n FROM state."HOT ""items""/2".departures AT (VERSION => 0)') == [(1,)]
    assert ask(job, 'FROM "top 10" AT (VERSION => 0)') == [("a", 1)]
    assert ask(job, "SHOW TABLES")[:2] == [
        ('state.hot "items"/2.departures', "k, window_end, n"),
        ("Top 10", "k, n"),
    ]


def test_declared_tables_and_functions(job: SmallJob, tmp_path: Path) -> None:
    outside = tmp_path / "planes"
    outside.mkdir()
    (outside / "1.csv").write_text("k,model\nb,747\n")

    def register(connection: duckdb.DuckDBPyConnection) -> None:
        connection.create_function("twice", lambda n: 2 * n, ["BIGINT"], "BIGINT")

    options = {
        "functions": [register],
        "catalog_tables": {"planes": f"read_csv('{outside}/*.csv')"},
        "allowed_paths": [f"{outside}/*.csv"],
    }
    sql = "SELECT model, twice(n) FROM state.hourly.departures JOIN Planes USING (k)"
    assert ask(job, sql, **options) == [(747, 10)]
    assert [name for name, _ in ask(job, "SHOW TABLES", **options)][1:3] == ["counts", "planes"]


def test_a_result_outlives_the_names_that_made_it(job: SmallJob) -> None:
    def opened(functions: Sequence[Callable[[duckdb.DuckDBPyConnection], None]] = ()) -> duckdb.DuckDBPyRelation:
        return open_query(job.warehouse, "SELECT n FROM counts").filter("n > 1")

    relation = opened()
    gc.collect()
    assert relation.limit(1).fetchall() == [(2,)]
    assert relation.to_arrow_reader(1000).read_all().num_rows == 2


def test_times_are_utc_and_the_callers_variables_are_out_of_sight(job: SmallJob) -> None:
    assert ask(job, "SELECT current_setting('TimeZone'), TIMESTAMPTZ '2026-01-01 12:00:00'::VARCHAR") == [
        ("UTC", "2026-01-01 12:00:00+00")
    ]
    hidden = pa.table({"x": [1]})
    with pytest.raises(QueryError, match='table "hidden" does not exist'):
        ask(job, "FROM hidden")
    assert hidden.num_rows == 1


def test_only_named_jobs_are_looked_at(job: SmallJob) -> None:
    SmallJob(Path(job.warehouse.root), "broken", "other")
    Path(f"{job.warehouse.job('broken').log}/x.json").parent.mkdir()
    Path(f"{job.warehouse.job('broken').log}/x.json").write_text("not a log")
    write_commit(job.warehouse.fs, job.warehouse.job("broken"), 0)
    assert ask(job, DEPARTURES)
    with pytest.raises(DamageError, match=r"jobs/broken/log/0000000000\.json\" is missing"):
        ask(job, "FROM state.broken.departures")
