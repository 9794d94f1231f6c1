"""A job in which columns decide ties goes on by them; an upgrade lets the order of arrival decide where the state allows it.

`tests/formats/test_ties.py` has jobs of the version that wrote them; here today's code plans a job by columns.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from sqlstream.errors import UsageError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.adaptations.positions import ArrivalPositions
from sqlstream.jobs.upgrades.changes import UnadaptableOperator
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.session.explaining import as_it_goes_on, explained
from sqlstream.session.upgrades import compared_with
from sqlstream.session.verifying import existing_record
from sqlstream.warehouse.jobs import JobRecord
from tests.jobs.savepoint_jobs import Rows, open_session, planned, put, wait_until_done
from tests.jobs.upgrades.driver import Driven
from tests.jobs.upgrades.test_adaptations import TABLE, row
from tests.processes import SECONDS

# The latest row of a key by its minute, of which several may be the latest.
SCRIPT = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE latest (k BIGINT, millis BIGINT);
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO latest WITH ranked AS (
    SELECT k, ts FROM (
        SELECT k, ts, ROW_NUMBER() OVER (PARTITION BY k % 2 ORDER BY date_trunc('minute', ts) DESC) AS n FROM t
    ) WHERE n = 1
) SELECT k, epoch_ms(ts) AS millis FROM ranked{where};
"""
# The first value of a key, whose state is a value without a place.
FIRST_VALUE = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE firsts (k BIGINT, f BIGINT, l BIGINT, m BIGINT, a BIGINT, PRIMARY KEY (k) NOT ENFORCED);
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO firsts WITH first_values AS (
    SELECT k % 2 AS k, FIRST(second(ts)) AS f, LAST(second(ts)) AS l, {more} AS m, ARG_MAX(second(ts), 1) AS a
    FROM t GROUP BY k % 2
) SELECT * FROM first_values;
"""
# Keys and seconds; all in one minute.
FIRST: Rows = [(3, 7), (1, 5), (4, 8), (2, 9)]
SECOND: Rows = [(1, 12), (5, 11), (2, 12), (2, 12)]


# Rows of a minute in their order; they wait until a later one comes.
NUMBERS = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), minute AS date_trunc('minute', ts), WATERMARK FOR minute AS minute)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE numbers (k BIGINT, second BIGINT, n BIGINT);
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO numbers WITH numbered AS (
    SELECT k, ts, COUNT(*) OVER (PARTITION BY k % 2 ORDER BY minute ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW) AS n FROM t
) SELECT k, second(ts), n FROM numbered;
"""


def latest(where: str = "") -> str:
    return SCRIPT.format(where=where)


def firsts(more: str = "MAX(second(ts))") -> str:
    return FIRST_VALUE.format(more=more)


def start_by_columns(folder: Path, script: str, rows: Rows, *, mark: int | None = None) -> None:
    """Run the job of a script as an earlier version did, until it has read some rows."""
    with open_session(folder) as session:
        job = session._jobs.start(planned(session, script).decided_by("columns"), {}, engine=LocalEngine())
        wait_until_done(session, job, rows, mark=mark)
        job.stop()
        assert job.wait(SECONDS)


def go_on(
    folder: Path,
    script: str,
    rows: Rows,
    *,
    restore: Restore | None = None,
    upgrade: bool = False,
    fresh: bool = False,
    notices: list[str] | None = None,
    mark: int | None = None,
) -> JobRecord:
    with open_session(folder, notices) as session:
        plan, request = planned(session, script), Upgrade() if upgrade else None
        job = session._jobs.start(plan, {}, engine=LocalEngine(), restore=restore, upgrade=request, fresh=fresh)
        wait_until_done(session, job, rows, mark=mark)
        job.stop()
        assert job.wait(SECONDS)
        return existing_record(session.warehouse, plan.name)


def millis(folder: Path) -> list[tuple[object, ...]]:
    with open_session(folder) as session:
        return sorted(session.query("SELECT k, millis // 1000 FROM latest").fetchall())


def compared(session: Session, script: str, job: str) -> str:
    return compared_with(session, [planned(session, script)], job)


def test_a_job_goes_on_by_columns_and_verify_agrees(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, latest(), FIRST)
    put(tmp_path, "b", SECOND)
    assert go_on(tmp_path, latest(), [*FIRST, *SECOND]).ties == "columns"
    # The least key, and the least time of it.
    assert millis(tmp_path) == [(1, 5), (2, 9)]
    with open_session(tmp_path) as session:
        assert session.verify("latest", compiled=[planned(session, latest())])
        assert session.query("SELECT ties FROM sqlstream.jobs").fetchall() == [("columns",)]


def test_an_unchanged_query_takes_the_order_of_arrival_with_an_upgrade(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, latest(), FIRST)
    put(tmp_path, "b", SECOND)
    with open_session(tmp_path) as session:
        text = compared(session, latest(), "latest")
    assert re.search(
        r"^ties +by arrival from batch \d on, and were by columns\n"
        r" +rows that are kept come before all others, and among each other in the order of their columns\Z",
        text,
        re.MULTILINE,
    )
    record = go_on(tmp_path, latest(), [*FIRST, *SECOND], upgrade=True)
    assert record.ties == "arrival"
    assert record.upgraded_from
    # By a truncated time, which is no time attribute: of equal rows the first one.
    assert millis(tmp_path) == [(1, 5), (2, 9)]
    with open_session(tmp_path) as session, pytest.raises(CannotVerify) as refused:
        session.verify("latest", compiled=[planned(session, latest())])
    assert "Columns decided ties before, and the order of arrival does now" in str(refused.value.detail)
    with open_session(tmp_path) as session:
        assert "ties" not in compared(session, latest(), "latest")
    # There is nothing more to upgrade.
    again = go_on(tmp_path, latest(), [*FIRST, *SECOND], upgrade=True)
    assert (again.ties, again.upgraded_from) == ("arrival", record.upgraded_from)


def test_rows_that_wait_stay_in_the_order_of_their_columns(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, NUMBERS, FIRST, mark=0)
    put(tmp_path, "b", SECOND)
    late: Rows = [(1, 71), (2, 71)]
    put(tmp_path, "c", late)
    assert go_on(tmp_path, NUMBERS, [*FIRST, *SECOND, *late], upgrade=True, mark=60).ties == "arrival"
    with open_session(tmp_path) as session:
        found = session.query("SELECT k, second, n FROM numbers ORDER BY k % 2, n").fetchall()
    # The first four came while columns decided ties.
    assert found == [(2, 9, 1), (4, 8, 2), (2, 12, 3), (2, 12, 4), (1, 5, 1), (3, 7, 2), (1, 12, 3), (5, 11, 4)]


def test_a_changed_query_takes_the_order_of_arrival_with_an_upgrade_only(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, firsts(), FIRST)
    with pytest.raises(UsageError, match="exists with another query") as refused:
        go_on(tmp_path, firsts("MIN(second(ts))"), FIRST)
    assert "sqlstream_" not in str(refused.value.detail)
    put(tmp_path, "b", SECOND)
    assert go_on(tmp_path, firsts("MIN(second(ts))"), [*FIRST, *SECOND], upgrade=True).ties == "arrival"
    with open_session(tmp_path) as session:
        found = sorted(session.query("SELECT k, f, l, a FROM firsts").fetchall())
    # Of odd keys the least so far was 5 and the greatest 7, of even keys 8 and 9: these count as the first and last so far.
    assert found == [(0, 8, 12, 9), (1, 5, 11, 7)]


# Rows of a rank are taken back with the place that they came with, which a job that went by columns has not kept.
DEDUPLICATED = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE lists (k BIGINT, seconds BIGINT[], PRIMARY KEY (k) NOT ENFORCED);
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO lists WITH newest AS (
    SELECT k, ts FROM (SELECT k, ts, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t) WHERE n = 1
), listed AS (SELECT k % 2 AS k, LIST(second(ts)) AS seconds FROM newest GROUP BY k % 2)
SELECT * FROM listed;
"""


def test_rows_above_a_rank_take_the_order_of_arrival_with_an_upgrade(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, DEDUPLICATED, FIRST)
    put(tmp_path, "b", SECOND)
    assert go_on(tmp_path, DEDUPLICATED, [*FIRST, *SECOND], upgrade=True).ties == "arrival"
    with open_session(tmp_path) as session:
        found = sorted(session.query("SELECT k, seconds FROM lists").fetchall())
    # The row of 3 was there, those of 1 and 2 have been replaced.
    assert found == [(0, [8, 12]), (1, [7, 12, 11])]


def test_a_job_keeps_columns_where_its_state_has_no_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, firsts(), FIRST)
    monkeypatch.setattr(ArrivalPositions, "positions", lambda self: {})
    kept = 'operator "first_values": "f" does not keep which of its rows came first'
    with open_session(tmp_path) as session:
        assert compared(session, firsts(), "firsts").endswith(f"ties      by columns, as before\n            {kept}")
    notices: list[str] = []
    put(tmp_path, "b", SECOND)
    record = go_on(tmp_path, firsts(), [*FIRST, *SECOND], upgrade=True, notices=notices)
    assert (record.ties, record.upgraded_from) == ("columns", "")
    assert [n for n in notices if kept in n]
    # A changed query goes on by columns, too.
    record = go_on(tmp_path, firsts("MIN(second(ts))"), [*FIRST, *SECOND], upgrade=True)
    assert record.ties == "columns"
    assert record.upgraded_from
    with open_session(tmp_path) as session:
        assert sorted(session.query("SELECT k, f, l FROM firsts").fetchall()) == [(0, 8, 12), (1, 5, 12)]


@pytest.mark.parametrize("is_fork", [False, True])
def test_a_savepoint_is_restored_by_columns(tmp_path: Path, is_fork: bool) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, latest(), FIRST)
    with open_session(tmp_path) as session:
        take_savepoint(session.warehouse, "latest", "kept")
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    go_on(tmp_path, latest(), every)
    script = latest()
    if is_fork:
        script = script.replace("latest", "copies").replace("SET", "SET 'pipeline.name' = 'copy';\nSET", 1)
    restore = Restore("kept", is_fork=is_fork)
    assert go_on(tmp_path, script, every, restore=restore).ties == "columns"
    assert millis(tmp_path) == [(1, 5), (2, 9)]
    # With an upgrade it takes the order of arrival.
    if not is_fork:
        assert go_on(tmp_path, script, every, restore=restore, upgrade=True).ties == "arrival"


def test_a_job_that_begins_anew_is_by_arrival(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    start_by_columns(tmp_path, latest(), FIRST)
    assert millis(tmp_path) == [(1, 5), (2, 9)]
    assert go_on(tmp_path, latest(), FIRST, fresh=True).ties == "arrival"
    assert millis(tmp_path) == [(3, 7), (4, 8)]


def test_explain_says_what_decides_ties_in_the_job_that_is_there(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as session:
        plan = planned(session, latest())
        assert "ties:      by arrival" in explained(as_it_goes_on(plan, session.warehouse), "plan")
    start_by_columns(tmp_path, latest(), FIRST)
    with open_session(tmp_path) as session:
        plan = planned(session, latest())
        assert "ties:      by columns" in explained(as_it_goes_on(plan, session.warehouse), "plan")
        # Another query would not go on with its state.
        other = planned(session, latest(" WHERE k > 0"))
        assert "ties:      by arrival" in explained(as_it_goes_on(other, session.warehouse), "plan")


# Calls, each with its answer over rows in which those that were kept have one place before all others.
CALLS = {
    "first(x)": "first(x ORDER BY place, x)",
    "last(x)": "last(x ORDER BY place, x)",
    "any_value(x)": "first(x ORDER BY place, x)",
    "first(x) FILTER (WHERE y > 1)": "first(x ORDER BY place, x) FILTER (WHERE y > 1)",
    "first(x ORDER BY y)": "first(x ORDER BY y, place, x)",
    "last(x ORDER BY y DESC)": "last(x ORDER BY y DESC, place, x)",
    "arg_min(x, y)": "first(x ORDER BY y, place, x)",
    "arg_max(x, y)": "first(x ORDER BY y DESC, place, x DESC)",
    "arg_max(x, y, 2)": "list(x ORDER BY y DESC, place, x DESC)[:2]",
    "list(x)": "list(x ORDER BY place, x)",
    "list(x ORDER BY y % 2)": "list(x ORDER BY y % 2, place, x)",
    "listagg(CAST(x AS STRING), ',')": "string_agg(CAST(x AS VARCHAR), ',' ORDER BY place, CAST(x AS VARCHAR))",
    "count(*)": "count(*)",
}
AGGREGATED = TABLE.format(name="a", columns="k STRING, x INT, y INT") + "SELECT k, {calls} FROM {a} GROUP BY k{windows}"


@pytest.mark.parametrize("windowed", [False, True])
def test_aggregates_go_on_with_what_was_first_and_last_so_far(tmp_path: Path, windowed: bool) -> None:
    calls = ", ".join(f"{call} AS c{number}" for number, call in enumerate(CALLS))
    a = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '60' SECOND)" if windowed else "a"
    script = AGGREGATED.format(calls=calls, a=a, windows=", window_start, window_end" if windowed else "")
    old = Driven(script, tmp_path / "old", ties="columns")
    before = [row("u", 3, 1, 2), row("u", 1, 1, 2), row("u", 2, 1, 5), row("v", 7, 2, 1), row("u", 9, 2, 5)]
    after = [
        row("u", 8, 3, 2),
        row("u", 4, 3, 5),
        row("v", 5, 4, 3),
        row("v", 6, 4, 3),
        row("w", 2, 5, 0),
        row("w", 1, 5, 2),
    ]
    old.step(a=before)
    new, change = old.upgraded(script, tmp_path / "new")
    assert change.notes == ("ties: by arrival {since}",)
    new.step(a=after)
    names = ["k", *(f"c{number}" for number in range(len(CALLS)))]
    found = new.picked(new.step(watermark=60), *names) if windowed else new.shown(", ".join(names))
    with duckdb.connect() as con:
        con.execute("CREATE TABLE a (k VARCHAR, x INT, y INT, place INT)")
        rows = [*((one, -1) for one in before), *((one, place) for place, one in enumerate(after))]
        con.executemany("INSERT INTO a VALUES (?, ?, ?, ?)", [[one["k"], one["x"], one["y"], at] for one, at in rows])
        answer = con.execute(f"SELECT k, {', '.join(CALLS.values())} FROM a GROUP BY k ORDER BY k").fetchall()
    assert found == answer


def test_calls_over_copies_of_rows_do_not_go_on(tmp_path: Path) -> None:
    windows = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '60' SECOND)"
    copies = f"(SELECT k, first(x) AS f FROM {windows} GROUP BY k)"
    script = TABLE.format(name="a", columns="k STRING, x INT, y INT") + f"SELECT * FROM {copies}"
    old = Driven(script, tmp_path / "old", ties="columns")
    change = old.change(Driven(script, tmp_path / "new"))
    assert isinstance(change, UnadaptableOperator)
    assert change.reason == '"f" does not keep which of its rows came first'
