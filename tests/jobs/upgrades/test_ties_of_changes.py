"""Ties of rows that a table of changes has now: a job that decided them by columns goes on by arrival, or is told why not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.session.upgrades import compared_with
from sqlstream.session.verifying import existing_record
from tests.jobs.savepoint_jobs import open_session, planned
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS

Change = tuple[str, int, str, int]
# What changes are read from: a table whose current rows are kept by their key, and one whose changes pass as they are.
KEYED = "op STRING, id BIGINT, k STRING, v BIGINT, PRIMARY KEY (id) NOT ENFORCED"
WHOLE = "op STRING, id BIGINT, k STRING, v BIGINT"
SCRIPT = """
CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet',
'changelog.op-column' = 'op', 'source.monitor-interval' = '10 ms');
CREATE TABLE out ({result});
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO out WITH named AS ({query}) SELECT * FROM named;
"""
QUERIES = {
    "best": (
        "k STRING, id BIGINT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n = 1",
    ),
    "best two": (
        "k STRING, id BIGINT, n BIGINT, PRIMARY KEY (k, n) NOT ENFORCED",
        "SELECT k, id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n <= 2",
    ),
    "lists": (
        "k STRING, f BIGINT, l BIGINT, ids BIGINT[], PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, first(id) AS f, last(id) AS l, LIST(id) AS ids FROM t GROUP BY k",
    ),
    "extremes": (
        "k STRING, least BIGINT, most BIGINT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, ARG_MIN(id, v) AS least, ARG_MAX(id, v) AS most FROM t GROUP BY k",
    ),
    "lists above a rank": (
        "k STRING, ids BIGINT[], PRIMARY KEY (k) NOT ENFORCED",
        "SELECT k, LIST(id) AS ids FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY id % 2) AS n FROM t) "
        "WHERE n = 1 GROUP BY k",
    ),
}
FIRST: list[Change] = [("I", 5, "x", 3), ("I", 2, "x", 5), ("I", 1, "x", 5), ("I", 4, "y", 7), ("I", 3, "y", 7)]
# Of the rows that were kept one is changed and one deleted. The rows 2 and 4 were there before all that come.
KEYED_SECOND: list[Change] = [
    *(("U", 1, "x", 4), ("D", 3, "y", 7), ("I", 7, "x", 5), ("U", 5, "x", 5), ("I", 9, "y", 7), ("I", 8, "y", 9)),
]
KEYED_THIRD: list[Change] = [("D", 2, "x", 5), ("D", 8, "y", 9)]
# The same without a key.
WHOLE_SECOND: list[Change] = [
    *(("D", 1, "x", 5), ("I", 1, "x", 4), ("D", 3, "y", 7), ("I", 7, "x", 5), ("D", 5, "x", 3), ("I", 5, "x", 5)),
    *(("I", 9, "y", 7), ("I", 8, "y", 9)),
]
# What the queries have after the second and the third file, by arrival; the current rows are then 2, 1, 7, 5 and 4, 9, 8.
BY_ARRIVAL = {
    "best": ([("x", 2), ("y", 8)], [("x", 7), ("y", 4)]),
    "best two": (
        [("x", 2, 1), ("x", 7, 2), ("y", 4, 2), ("y", 8, 1)],
        [("x", 5, 2), ("x", 7, 1), ("y", 4, 1), ("y", 9, 2)],
    ),
    "lists": ([("x", 2, 5, [2, 1, 7, 5]), ("y", 4, 8, [4, 9, 8])], [("x", 1, 5, [1, 7, 5]), ("y", 4, 9, [4, 9])]),
    "extremes": ([("x", 1, 2), ("y", 4, 8)], [("x", 1, 7), ("y", 4, 4)]),
    "lists above a rank": ([("x", [2, 1]), ("y", [4, 8])], [("x", [1, 7]), ("y", [4])]),
}
# By columns, of which `id` is the first that differs.
BY_COLUMNS = {
    "best": ([("x", 2), ("y", 8)], [("x", 5), ("y", 4)]),
    "best two": (
        [("x", 2, 1), ("x", 5, 2), ("y", 4, 2), ("y", 8, 1)],
        [("x", 5, 1), ("x", 7, 2), ("y", 4, 1), ("y", 9, 2)],
    ),
    "lists": ([("x", 1, 7, [1, 2, 5, 7]), ("y", 4, 9, [4, 8, 9])], [("x", 1, 7, [1, 5, 7]), ("y", 4, 9, [4, 9])]),
    # Of equal keys ARG_MAX takes the greatest value.
    "extremes": ([("x", 1, 7), ("y", 4, 8)], [("x", 1, 7), ("y", 4, 9)]),
    "lists above a rank": ([("x", [1, 2]), ("y", [4, 8])], [("x", [1, 5]), ("y", [4])]),
}


def put(folder: Path, name: str, changes: list[Change]) -> None:
    table = pa.table(dict(zip(("op", "id", "k", "v"), map(list, zip(*changes, strict=True)), strict=True)))
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / "in" / f"{name}.parquet")


def result(folder: Path) -> list[tuple[object, ...]]:
    with open_session(folder) as session:
        return session.query("FROM out ORDER BY ALL").fetchall()


def script_of(columns: str, query: str) -> str:
    declared, select = QUERIES[query]
    return SCRIPT.format(columns=columns, result=declared, query=select)


def run(folder: Path, script: str, changes: int, *, by_columns: bool = False, upgrade: bool = False) -> str:
    """Run the job until it has read so many changes, in all; return what decides its ties."""
    with open_session(folder) as session:
        plan = planned(session, script)
        plan = plan.decided_by("columns") if by_columns else plan
        job = session._jobs.start(plan, {}, engine=LocalEngine(), upgrade=Upgrade() if upgrade else None)
        wait_for_rows(job, changes)
        job.stop()
        assert job.wait(SECONDS)
        return existing_record(session.warehouse, plan.name).ties


@pytest.mark.parametrize("query", QUERIES)
def test_current_rows_of_a_table_with_a_key_take_the_order_of_arrival_with_an_upgrade(
    tmp_path: Path, query: str
) -> None:
    script = script_of(KEYED, query)
    put(tmp_path, "a", FIRST)
    assert run(tmp_path, script, len(FIRST), by_columns=True) == "columns"
    with open_session(tmp_path) as session:
        compared = compared_with(session, [planned(session, script)], "out")
    assert "by arrival from batch" in compared
    put(tmp_path, "b", KEYED_SECOND)
    count = len(FIRST) + len(KEYED_SECOND)
    assert run(tmp_path, script, count, upgrade=True) == "arrival"
    second, third = BY_ARRIVAL[query]
    assert result(tmp_path) == second
    put(tmp_path, "c", KEYED_THIRD)
    assert run(tmp_path, script, count + len(KEYED_THIRD)) == "arrival"
    assert result(tmp_path) == third


@pytest.mark.parametrize(
    ("columns", "second", "query"),
    [
        *(pytest.param(KEYED, KEYED_SECOND, query, id=f"{query} of keyed rows") for query in QUERIES),
        *(pytest.param(WHOLE, WHOLE_SECOND, query, id=f"{query} of changes without a key") for query in QUERIES),
    ],
)
def test_without_an_upgrade_and_without_a_key_columns_decide(
    tmp_path: Path, columns: str, second: list[Change], query: str
) -> None:
    script = script_of(columns, query)
    put(tmp_path, "a", FIRST)
    run(tmp_path, script, len(FIRST), by_columns=True)
    put(tmp_path, "b", second)
    count = len(FIRST) + len(second)
    run(tmp_path, script, count, upgrade=columns == WHOLE)
    assert result(tmp_path) == BY_COLUMNS[query][0]
    put(tmp_path, "c", KEYED_THIRD)
    run(tmp_path, script, count + len(KEYED_THIRD))
    assert result(tmp_path) == BY_COLUMNS[query][1]
    if query.startswith("best"):
        with open_session(tmp_path) as session:
            assert session.verify("out", compiled=[planned(session, script)])
