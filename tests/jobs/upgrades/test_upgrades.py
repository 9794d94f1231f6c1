"""Jobs that go on with changed queries: what becomes of them, compared with rows of the old query and then of the new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from sqlstream import SqlStreamError
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.local.engine import LocalEngine
from sqlstream.warehouse.jobs import read_record, write_record
from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, THIRD, open_session, put
from tests.jobs.upgrades.upgrade_jobs import go_on, rows_of, run_in
from tests.local.test_engine import wait_for_rows
from tests.processes import wait_until

COUNTED = """
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n FROM t {where} GROUP BY k) SELECT k, n{times} FROM by_key;
"""


def counted(where: str = "", times: str = "") -> str:
    return INPUT + COUNTED.format(where=where, times=times)


def counts(rows: object) -> list[tuple[object, ...]]:
    return sorted(Counter(k for k, _ in rows).items())  # type: ignore[attr-defined]


def test_an_operator_goes_on_under_another_filter_and_another_projection(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    put(tmp_path, "b", SECOND)
    notices: list[str] = []
    changed = counted("WHERE k < 3", " * 10")
    go_on(tmp_path, changed, [*FIRST, *SECOND], upgrade=True, notices=notices)
    # What is counted before stays, what comes is filtered.
    expected = counts([*FIRST, *((k, s) for k, s in SECOND if k < 3)])
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == expected
    touched = {k for k, _ in SECOND if k < 3}
    assert rows_of(tmp_path, "FROM totals") == [(k, n * 10 if k in touched else n) for k, n in expected]  # type: ignore[operator]
    assert any("keeps job" in notice for notice in notices)


TWO = """
CREATE TABLE windows (k BIGINT, n BIGINT);
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE best (k BIGINT, top TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED);
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows WITH by_window AS (
    SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
) SELECT k, n FROM by_window;
{second}
END;
"""
TOTALS = "INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT * FROM by_key;"
BEST = "INSERT INTO best WITH latest AS (SELECT k, max(ts) AS top FROM t GROUP BY k) SELECT * FROM latest;"


def windows_of(rows: Sequence[tuple[int, int]]) -> list[tuple[object, ...]]:
    closed = max(s for _, s in rows) // 10
    return sorted((k, n) for (k, w), n in Counter((k, s // 10) for k, s in rows).items() if w < closed)


def test_operators_that_are_new_begin_without_state_and_others_go(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, INPUT + TWO.format(second=TOTALS), FIRST)
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    notices: list[str] = []
    go_on(tmp_path, INPUT + TWO.format(second=BEST), every, upgrade=True, notices=notices)
    # Windows that were open have the rows of both queries.
    assert rows_of(tmp_path, "FROM windows") == windows_of(every)
    newest: dict[int, int] = {}
    for k, s in SECOND:
        newest[k] = max(s, newest.get(k, 0))
    assert rows_of(tmp_path, "SELECT k, epoch(top)::BIGINT FROM best") == sorted(newest.items())
    assert rows_of(tmp_path, "SELECT operator FROM sqlstream.operators") == [("by_window",), ("latest",)]
    # The job goes back with the query that it had, to what it had before.
    [kept] = [n.split('"')[1] for n in notices if "keeps job" in n]
    put(tmp_path, "c", THIRD)
    go_on(tmp_path, INPUT + TWO.format(second=TOTALS), [*every, *THIRD], savepoint=kept)
    assert rows_of(tmp_path, "FROM totals") == counts([*every, *THIRD])
    assert rows_of(tmp_path, "FROM windows") == windows_of([*every, *THIRD])


def files_below(folder: Path) -> dict[str, bytes]:
    held = ("lock", "sessions")
    found = ((str(p.relative_to(folder)), p) for p in folder.rglob("*") if p.is_file())
    return {name: p.read_bytes() for name, p in found if not any(part.startswith(held) for part in Path(name).parts)}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            counted().replace("GROUP BY k)", "GROUP BY k % 2)").replace("SELECT k, count", "SELECT k % 2 AS k, count"),
            "key",
        ),
        (counted().replace("n BIGINT, PRIMARY", "n INT, PRIMARY"), "column n was BIGINT, and would be INTEGER"),
        (counted().replace("FROM by_key", "FROM by_key WHERE n > 1"), "could not be taken back"),
    ],
)
def test_what_cannot_go_on_is_refused_and_changes_nothing(tmp_path: Path, changed: str, reason: str) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    before = files_below(tmp_path)
    with pytest.raises(SqlStreamError) as error:
        go_on(tmp_path, changed, FIRST, upgrade=True)
    assert reason in (error.value.detail or "")
    assert "Nothing was changed." in (error.value.detail or "")
    assert files_below(tmp_path) == before
    with pytest.raises(SqlStreamError, match="exists with another query"):
        go_on(tmp_path, changed, FIRST)


def test_a_job_whose_operators_were_not_recorded_is_run_once_before_it_is_upgraded(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    changed = counted("WHERE k < 3")
    with open_session(tmp_path) as session:
        fs, paths = session.warehouse.fs, session.warehouse.job("totals")
        record = read_record(fs, paths)
        assert record is not None
        # So it was written until shapes were recorded.
        write_record(fs, paths, replace(record, operators=tuple(replace(o, shape=None) for o in record.operators)))
    with pytest.raises(SqlStreamError) as error:
        go_on(tmp_path, changed, FIRST, upgrade=True)
    assert "run it once with the query that it has" in (error.value.detail or "")
    go_on(tmp_path, counted(), FIRST)
    put(tmp_path, "b", SECOND)
    go_on(tmp_path, changed, [*FIRST, *SECOND], upgrade=True)
    expected = counts([*FIRST, *((k, s) for k, s in SECOND if k < 3)])
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == expected


BOTH_TABLES = """
CREATE TABLE u (k BIGINT, ts TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = 'more', 'format' = 'parquet',
 'source.monitor-interval' = '10 ms');
CREATE TABLE totals (k BIGINT, n BIGINT, first TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals WITH both_ AS (SELECT k, ts FROM u UNION ALL SELECT k, ts FROM t),
by_key AS (SELECT k, count(*) AS n FROM both_ GROUP BY k) SELECT k, n, NULL::TIMESTAMP AS first FROM by_key;
"""


def test_tables_come_and_go_and_columns_are_added(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    (tmp_path / "elsewhere").mkdir()
    put(tmp_path / "elsewhere", "x", [(1, 50), (9, 51)])
    (tmp_path / "elsewhere" / "in").rename(tmp_path / "more")
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND, (1, 50), (9, 51)]
    changed = INPUT.replace("k BIGINT,", "k BIGINT, extra INT,") + BOTH_TABLES
    for folder in ("in", "more"):
        for file in (tmp_path / folder).glob("b.parquet"):
            table = pq.read_table(file)
            pq.write_table(table.append_column("extra", pa.array([1] * len(table), pa.int32())), file)
    with open_session(tmp_path) as session:
        run_in(session, changed, every, upgrade=True, mark=max(s for _, s in SECOND))
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == counts(every)
    assert rows_of(tmp_path, "SELECT k, n FROM totals") == counts(every)
    assert rows_of(tmp_path, "SELECT count(first) FROM totals") == [(0,)]
    # And back to one table: what was read of the other stays counted.
    put(tmp_path, "c", THIRD)
    put(tmp_path / "elsewhere", "y", [(7, 60)])
    with open_session(tmp_path) as session:
        run_in(session, counted(), [*every, *THIRD], upgrade=True, mark=max(s for _, s in THIRD))
    assert rows_of(tmp_path, "FROM totals") == counts([*every, *THIRD])


def test_a_fork_has_a_changed_query_and_the_first_job_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, counted(), FIRST)
    with open_session(tmp_path) as session:
        take_savepoint(session.warehouse, "totals", "base")
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    fork = counted("WHERE k < 3").replace("totals", "totals_b")
    with pytest.raises(SqlStreamError, match="is of a job with another query"):
        go_on(tmp_path, fork, every, savepoint="base", name="totals_b")
    go_on(tmp_path, fork, every, savepoint="base", name="totals_b", upgrade=True)
    go_on(tmp_path, counted(), every)
    assert rows_of(tmp_path, "FROM totals_b") == counts([*FIRST, *((k, s) for k, s in SECOND if k < 3)])
    assert rows_of(tmp_path, "FROM totals") == counts(every)


READER = """
CREATE TABLE windows (k BIGINT, n BIGINT) WITH ('source.monitor-interval' = '10 ms');
CREATE TABLE copied (k BIGINT, n BIGINT);
INSERT INTO copied SELECT k, n FROM windows;
"""


def read_on(folder: Path, rows: int) -> None:
    with open_session(folder) as session:
        [planned] = [j for j in session.compile(SourceText("reader", READER)) if isinstance(j, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        wait_for_rows(job, rows)
        wait_until(
            lambda: (
                sorted(session.query("FROM copied").fetchall())
                == sorted(session.query("SELECT k, n FROM windows").fetchall())
            )
        )


def test_a_job_that_reads_the_table_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    old, new = INPUT + TWO.format(second=TOTALS), INPUT + TWO.format(second=BEST)
    go_on(tmp_path, old, FIRST)
    read_on(tmp_path, len(windows_of(FIRST)))
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    wider = new.replace("windows (k BIGINT, n BIGINT)", "windows (k BIGINT, n BIGINT, more BIGINT)").replace(
        "SELECT k, n FROM by_window", "SELECT k, n, n AS more FROM by_window"
    )
    go_on(tmp_path, wider, every, upgrade=True)
    read_on(tmp_path, len(windows_of(every)))
    assert rows_of(tmp_path, "FROM copied") == windows_of(every)
    added = len(windows_of(every)) - len(windows_of(FIRST))
    assert rows_of(tmp_path, "SELECT count(*), count(more) FROM windows") == [(len(windows_of(every)), added)]
