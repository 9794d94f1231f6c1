"""A rule of the optimizer may write an expression as an equal one: a changed query goes on with the state all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.changes import (
    AdaptedOperator,
    Comparison,
    DroppedOperator,
    KeptOperator,
    UnadaptableOperator,
)
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.jobs.upgrades.forms import columns_form, key_forms, steps_form
from sqlstream.logical.plan.state_settings import JoinState
from sqlstream.warehouse.jobs import JobRecord, OperatorShape, RowPath, ShapeItem
from tests.jobs.upgrades.driver import Driven
from tests.kinds import last_job
from tests.rewriting import rewritten

TABLES = """
CREATE TABLE t (k STRING, v BIGINT, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE u (k STRING, x BIGINT, us TIMESTAMP(3), WATERMARK FOR us AS us)
WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json');
CREATE TABLE r (k STRING, x BIGINT, us TIMESTAMP(3), WATERMARK FOR us AS us, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'rates', 'format' = 'json');
CREATE TABLE results (k STRING, v BIGINT, PRIMARY KEY (k) NOT ENFORCED);
"""
ROWS = "(SELECT upper(k) AS k, v + 1 AS v, w, ts FROM t WHERE v > 0 AND w <> 3)"
WINDOWS = f"TUMBLE(TABLE {ROWS}, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
OVER = "OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
WITHIN = "us BETWEEN ts - INTERVAL '9' SECOND AND ts"
RANKED = f"(SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM {ROWS})"
# Queries, each with how it is changed, and with a change that makes its state another one.
QUERIES: dict[str, tuple[str, str, str]] = {
    "aggregate": (
        f"SELECT k, sum(v) FILTER (WHERE w > 1) AS s FROM {ROWS} GROUP BY k",
        "AS s FROM => AS s, count(*) AS n FROM",
        "(WHERE w > 1) => (WHERE w > 2)",
    ),
    "aggregate of changes": (
        f"SELECT s, sum(w) AS n FROM (SELECT k, sum(v) AS s, max(w) AS w FROM {ROWS} GROUP BY k) WHERE s > 5 GROUP BY s",
        "AS n FROM => AS n, avg(w) AS m FROM",
        "s > 5 => s > 6",
    ),
    "windows": (
        f"SELECT avg(v + w) AS a FROM {WINDOWS} GROUP BY k, window_start, window_end",
        "AS a FROM => AS a, sum(w) AS s FROM",
        "GROUP BY k => GROUP BY lower(k)",
    ),
    "rank": (f"SELECT k, v FROM {RANKED} WHERE r <= 3", "r <= 3 => r <= 2", "PARTITION BY k => PARTITION BY lower(k)"),
    "over": (
        f"SELECT k, v, sum(v) {OVER} AS s FROM {ROWS}",
        f"AS s FROM => AS s, max(w) {OVER} AS m FROM",
        "PARTITION BY k => PARTITION BY lower(k)",
    ),
    "join": (
        f"SELECT a.k, v, x FROM {ROWS} a LEFT JOIN u ON a.k = lower(u.k) AND v < x",
        "SELECT a.k, v, x => SELECT a.k, v, x, w",
        "v < x => v <= x",
    ),
    "interval join": (
        f"SELECT a.k, v, x FROM {ROWS} a LEFT JOIN u ON a.k = lower(u.k) AND v < x AND {WITHIN}",
        "SELECT a.k, v, x => SELECT a.k, v, x, w",
        "v < x => v <= x",
    ),
    "temporal join": (
        f"SELECT a.k, v, x FROM {ROWS} a JOIN r FOR SYSTEM_TIME AS OF a.ts ON a.k = r.k",
        "SELECT a.k, v, x => SELECT a.k, v, x, w",
        "ON a.k = r.k => ON lower(a.k) = r.k",
    ),
}


def changed(query: str, change: str) -> str:
    before, after = change.split(" => ")
    assert before in query
    return query.replace(before, after)


def record(job: PlannedJob, folder: Path) -> JobRecord:
    return job_record(job, job_spec(job, str(folder), (0, 1), name="j", project=str(folder)), 2)


def compared(folder: Path, before: str, after: str) -> Comparison:
    """Return what becomes of a job when its query changes, and a rule is new that writes it otherwise."""
    old = record(last_job(TABLES + before), folder)
    with rewritten():
        job = last_job(TABLES + after)
    new = record(job, folder)
    assert new.plan_text != old.plan_text
    return compare(old, new, job.physical.stages)


def shown(comparison: Comparison) -> Sequence[object]:
    """Return what people should know, but for the tables."""
    return comparison.operators, comparison.refusals


@pytest.mark.parametrize("kind", QUERIES)
def test_what_only_a_rule_has_changed_is_kept(tmp_path: Path, kind: str) -> None:
    query = QUERIES[kind][0]
    found = compared(tmp_path, query, query)
    assert found.operators == tuple(
        KeptOperator(one.operator, one.was) for one in found.operators if isinstance(one, KeptOperator)
    )
    assert not found.refused
    assert not any(notes for notes in (*(s.notes for s in found.sources), *(s.notes for s in found.sinks)))


@pytest.mark.parametrize("kind", QUERIES)
def test_a_changed_query_goes_on_as_without_the_rule(tmp_path: Path, kind: str) -> None:
    query, change, _ = QUERIES[kind]
    after = changed(query, change)
    found = compared(tmp_path, query, after)
    assert isinstance(found.operators[-1], AdaptedOperator)
    job = last_job(TABLES + after)
    plain = compare(record(last_job(TABLES + query), tmp_path), record(job, tmp_path), job.physical.stages)
    assert shown(found) == shown(plain)


@pytest.mark.parametrize("kind", QUERIES)
def test_a_real_change_is_still_found(tmp_path: Path, kind: str) -> None:
    query, _, change = QUERIES[kind]
    [*_, last] = compared(tmp_path, query, changed(query, change)).operators
    if kind == "aggregate":
        assert isinstance(last, AdaptedOperator)
        assert last.notes == ('"s": {since}; rows before are not in it', '"s": no longer kept')
    else:
        # With other keys it is another operator.
        assert isinstance(last, UnadaptableOperator | DroppedOperator)


def test_rows_of_a_table_without_a_key_are_made_as_before(tmp_path: Path) -> None:
    script = "CREATE TABLE log (k STRING, s BIGINT); INSERT INTO log SELECT k, sum(v) + 1 AS s FROM {} GROUP BY k;"
    script = script.replace("s BIGINT", "s DECIMAL(38, 0)")
    found = compared(tmp_path, script.format(ROWS), script.format(ROWS))
    assert not found.refused
    other = compared(tmp_path, script.format(ROWS), script.format(ROWS).replace("+ 1 AS s", "+ 2 AS s"))
    assert any("no column can be added or made otherwise" in reason for reason in other.refused)


def test_state_is_carried(tmp_path: Path) -> None:
    query = f"SELECT k, sum(v) AS s FROM {ROWS} GROUP BY k"
    old = Driven(TABLES + query, tmp_path / "old")
    old.step(t=[{"k": "a", "v": 1, "w": 1, "ts": "1970-01-01"}, {"k": "b", "v": 5, "w": 1, "ts": "1970-01-01"}])
    with rewritten():
        new, change = old.upgraded(TABLES + changed(query, "AS s => AS s, min(v) AS low"), tmp_path / "new")
    assert change.notes == ('"low": {since}; rows before are not in it',)
    new.step(t=[{"k": "a", "v": 10, "w": 1, "ts": "1970-01-01"}])
    assert new.shown("k, s, low") == [("A", 13, 11), ("B", 6, None)]


def test_the_sides_of_a_join_are_told_apart() -> None:
    def keys(condition: str) -> object:
        key = ShapeItem("k", condition, "VARCHAR", "key")
        return key_forms(OperatorShape("Join", (key,), settings=JoinState(join="inner")))

    assert keys('lower("a") = "b"') == keys('(LOWER("a")) = ("b")')
    assert keys('"a" = "b"') != keys('"b" = "a"')


def test_ways_of_rows_have_forms() -> None:
    lookup = "LookupJoin left rates (postgres) by rates.k = {}, rates.c = 1 where {}"
    steps = [
        'WHERE ("a" > 1)',
        'WHERE "b"',
        'Lateral outer unnest(("c"))',
        lookup.format('lower("k")', '"v" > 1'),
        "LateRows",
    ]
    same = [
        'WHERE "b" AND 1 < "a"',
        'Lateral outer unnest("c")',
        lookup.format('(LOWER("k"))', '1 < ("v")'),
        "LateRows",
    ]
    assert steps_form(steps) == steps_form(same)
    for place, other in enumerate(
        ('WHERE "b" AND "a" > 2', 'Lateral unnest("c")', lookup.format('"k"', '"v" > 1'), 'LateRows "x"')
    ):
        assert steps_form([*same[:place], other, *same[place + 1 :]]) != steps_form(same)
    one, another = (RowPath("t", columns={"s": text}) for text in ('sum(("v"))  + 1', '(sum("v") + 1)'))
    assert columns_form(one, ["s", "x"]) == columns_form(another, ["s", "x"])
