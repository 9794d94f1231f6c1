"""`verify` of jobs that go on with a changed query: what the earlier one wrote stays, the new one is judged by what it added."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, UsageError
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.jobs.verification import Verification
from sqlstream.local.engine import LocalEngine
from sqlstream.operators.windows.assigners import AssignedWindows
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.runtime.commits import Commits
from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, THIRD, Rows, open_session, put
from tests.jobs.upgrades.upgrade_jobs import go_on
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS

WINDOWS = INPUT + (
    "CREATE TABLE windows (k BIGINT, n BIGINT{column});"
    "INSERT INTO windows WITH w AS (SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
    " GROUP BY k, window_start, window_end) SELECT k, n{value} FROM w{where};"
)
TOTALS = INPUT + (
    "CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);"
    "INSERT INTO totals WITH w AS (SELECT k, count(*) AS n{more} FROM t{where} GROUP BY k) SELECT k, n{times} FROM w;"
)
PASSED = INPUT + "CREATE TABLE passed (k BIGINT, x BIGINT); INSERT INTO passed SELECT k, k * {} FROM t WHERE k < {};"


def verified(folder: Path, script: str, job: str, at: str | None = None) -> Verification:
    with open_session(folder) as session:
        [planned] = [one for one in session.compile(SourceText("s", script)) if isinstance(one, PlannedJob)]
        return session.verify(job, at=at, compiled=[planned])


def rows_of(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with open_session(folder) as session:
        return sorted(session.query(f"FROM {table}").fetchall(), key=repr)


def upgraded(folder: Path, script: str, before: Rows, changed: str, then: Rows) -> None:
    put(folder, "a", before)
    go_on(folder, script, before)
    put(folder, "b", then)
    go_on(folder, changed, [*before, *then], upgrade=True)


def run(folder: Path, script: str, rows: int) -> None:
    """Run a job without a watermark, with whatever query it has, until it has read some rows."""
    with open_session(folder) as session:
        [planned] = [one for one in session.compile(SourceText("s", script)) if isinstance(one, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine(), upgrade=Upgrade())
        wait_for_rows(job, rows)
        job.stop()
        assert job.wait(SECONDS)


@pytest.mark.slow
def test_windows_that_were_open_at_the_upgrade_and_a_new_column(tmp_path: Path) -> None:
    old = WINDOWS.format(column="", value="", where="")
    new = WINDOWS.format(column=", m BIGINT", value=", n * 10", where=" WHERE k < 3")
    upgraded(tmp_path, old, FIRST, new, SECOND)
    # From before: the windows until 10. The one from 10 had a row of key 1 before, and one of 2 since; key 3 is left out.
    assert rows_of(tmp_path, "windows") == [(1, 1, 10), (1, 2, None), (2, 1, 10), (2, 1, None)]
    report = verified(tmp_path, new, "windows")
    assert report, report
    assert [d.cause for table in report.tables for d in table.differences] == ["due"]
    assert "sqlstream verify windows OLD.sql --at windows-" in str(report)
    # A third file, in a job that simply goes on.
    put(tmp_path, "c", THIRD)
    go_on(tmp_path, new, [*FIRST, *SECOND, *THIRD])
    assert verified(tmp_path, new, "windows")
    with open_session(tmp_path) as session:
        [(savepoint,)] = session.query("SELECT savepoint FROM sqlstream.savepoints").fetchall()
        assert verified(tmp_path, old, "windows", savepoint).read == (("t", len(FIRST)),)
        with pytest.raises(UsageError, match='is of job "windows", not of job "other"'):
            session.verify("other", at=savepoint)
        drop_savepoint(session.warehouse, savepoint)
    with pytest.raises(CannotVerify, match="is gone, which kept what it was before"):
        verified(tmp_path, new, "windows")


def test_a_result_that_changes_is_that_of_the_new_query_for_keys_that_came_again(tmp_path: Path) -> None:
    old, new = (TOTALS.format(more="", where="", times=times) for times in ("", " * 2"))
    upgraded(tmp_path, old, FIRST, new, [(1, 14), (3, 15)])
    assert rows_of(tmp_path, "totals") == [(1, 8), (2, 1), (3, 2)]
    report = verified(tmp_path, new, "totals")
    assert report, report
    assert [table.differences for table in report.tables] == [()]


def test_a_query_without_state_is_judged_by_the_rows_since(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    run(tmp_path, PASSED.format(1, 9), len(FIRST))
    put(tmp_path, "b", SECOND)
    run(tmp_path, PASSED.format(100, 3), len(FIRST) + len(SECOND))
    assert rows_of(tmp_path, "passed") == [(1, 1), (1, 1), (1, 1), (1, 100), (2, 2), (2, 200)]
    report = verified(tmp_path, PASSED.format(100, 3), "passed")
    assert report, report


@pytest.mark.slow
def test_a_mistake_since_the_upgrade_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = WINDOWS.format(column="", value="", where="")
    new = WINDOWS.format(column="", value=" * 1", where="")
    right = AssignedWindows.arrive

    def wrong(self: AssignedWindows, rows: pa.Table, watermark: Any) -> Any:
        return right(self, rows.slice(1) if rows.num_rows > 1 else rows, watermark)

    put(tmp_path, "a", FIRST)
    go_on(tmp_path, old, FIRST)
    monkeypatch.setattr(AssignedWindows, "arrive", wrong)
    put(tmp_path, "b", SECOND)
    go_on(tmp_path, new, [*FIRST, *SECOND], upgrade=True)
    put(tmp_path, "c", THIRD)
    go_on(tmp_path, new, [*FIRST, *SECOND, *THIRD])
    report = verified(tmp_path, new, "windows")
    assert not report
    assert "NOT EXPLAINED" in str(report)


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_operator_that_begins_anew_writes_over_rows_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    old = TOTALS.format(more="", where="", times="")
    new = INPUT + (
        "CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);"
        "INSERT INTO totals WITH v AS (SELECT k % 2 AS k, count(*) + 100 AS n FROM t GROUP BY k % 2) SELECT k, n FROM v;"
    )
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, old, FIRST)
    if is_lost:
        store = Commits._store
        monkeypatch.setattr(Commits, "_store", lambda self, sink, batch, _, time: store(self, sink, batch, [], time))
    put(tmp_path, "b", [(1, 14), (3, 15)])
    go_on(tmp_path, new, [*FIRST, (1, 14), (3, 15)], upgrade=True)
    # What was counted before is not counted again.
    assert rows_of(tmp_path, "totals") == [(1, 3) if is_lost else (1, 102), (2, 1)]
    report = verified(tmp_path, new, "totals")
    assert bool(report) is not is_lost, report


def test_what_operators_make_of_both_queries_rows_is_refused_with_the_reason(tmp_path: Path) -> None:
    old = TOTALS.format(more="", where="", times="")
    new = TOTALS.format(more="", where=" WHERE k < 3", times="")
    upgraded(tmp_path, old, FIRST, new, [(1, 14), (2, 15)])
    with pytest.raises(CannotVerify, match='job "totals" goes on with a changed query after version') as refused:
        verified(tmp_path, new, "totals")
    assert 'What operator "w" made of both queries\' rows has no batch answer: it reads or filters' in str(
        refused.value.detail
    )


def test_a_query_that_reads_one_of_two_places_of_a_table_no_more(tmp_path: Path) -> None:
    both = INPUT + (
        "CREATE TABLE passed (k BIGINT, x BIGINT);"
        "INSERT INTO passed SELECT k, 1 AS x FROM t UNION ALL SELECT k, 2 AS x FROM t /*+ OPTIONS('path' = 'old') */;"
    )
    put(tmp_path, "a", FIRST)
    shutil.copytree(tmp_path / "in", tmp_path / "old")
    run(tmp_path, both, 2 * len(FIRST))
    report = verified(tmp_path, both, "passed")
    assert report, report
    assert report.read == (("t", 2 * len(FIRST)),)
    alone = f"{both.partition(' UNION ALL')[0]};"
    put(tmp_path, "b", SECOND)
    run(tmp_path, alone, 2 * len(FIRST) + len(SECOND))
    assert rows_of(tmp_path, "passed") == sorted(
        [*((k, x) for k, _ in FIRST for x in (1, 2)), *((k, 1) for k, _ in SECOND)], key=repr
    )
    with pytest.raises(CannotVerify) as refused:
        verified(tmp_path, alone, "passed")
    assert "It reads other tables than before" in str(refused.value.detail)


def test_two_places_of_a_table_that_change_places_in_the_query(tmp_path: Path) -> None:
    script = INPUT + "CREATE TABLE passed (k BIGINT, x BIGINT); INSERT INTO passed SELECT k, {} AS x FROM {} UNION ALL "
    script += "SELECT k, {} AS x FROM {};"
    there, old = "t", "t /*+ OPTIONS('path' = 'old') */"
    put(tmp_path, "a", FIRST)
    shutil.copytree(tmp_path / "in", tmp_path / "old")
    run(tmp_path, script.format(1, there, 2, old), 2 * len(FIRST))
    put(tmp_path, "b", SECOND)
    after = script.format(3, old, 4, there)
    run(tmp_path, after, 2 * len(FIRST) + len(SECOND))
    expected = [*((k, x) for k, _ in FIRST for x in (1, 2)), *((k, 4) for k, _ in SECOND)]
    assert rows_of(tmp_path, "passed") == sorted(expected, key=repr)
    report = verified(tmp_path, after, "passed")
    assert report, report
