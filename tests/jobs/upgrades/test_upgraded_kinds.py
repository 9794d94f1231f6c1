"""Operators of each kind in jobs that are upgraded: their results are DuckDB's over all rows, as far as the upgrade says so.

Each job reads some rows, goes on with another query, and reads some more. In DuckDB `s` is the second of a row, and `since`
whether it came after the upgrade. The watermark is at 14 s when the query changes, and at 70 s at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.upgrades.changes import AdaptedOperator, KeptOperator
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Layout
from sqlstream.warehouse.jobs import read_record
from tests.jobs.savepoint_jobs import open_session, rows_of
from tests.jobs.upgrades.test_adapted_functions import Spent, SpentLater
from tests.processes import SECONDS

Rows = Sequence[tuple[object, ...]]
TIMED = """
CREATE TABLE {name} ({columns}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts{key})
WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json');
"""
A = TIMED.format(name="a", columns="k STRING, x INT, y INT", key="")
B = TIMED.format(name="b", columns="k STRING, z INT, w INT", key="")
VERSIONS = TIMED.format(name="b", columns="k STRING, z INT, w INT", key=", PRIMARY KEY (k) NOT ENFORCED")
CHANGES = """
CREATE TABLE c (op STRING, id INT, p INT, x INT{more}, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');
"""
COLUMNS = {"a": ("k", "x", "y", "s"), "b": ("k", "z", "w", "s"), "c": ("op", "id", "p", "x", "y")}
TYPES = {"k": "VARCHAR", "op": "VARCHAR"}

BEFORE: Mapping[str, Rows] = {
    "a": [("u", 1, 5, 1), ("v", 2, 6, 2), ("u", 3, 7, 12), ("w", 4, 8, 14)],
    "b": [("u", 10, 3, 1), ("v", 20, 4, 3), ("w", 30, 5, 14)],
    "c": [("I", 1, 0, 5, None), ("I", 2, 0, 6, None), ("I", 3, 1, 7, None), ("D", 2, 0, 6, None), ("I", 5, 2, 1, None)],
}
SINCE: Mapping[str, Rows] = {
    "a": [("u", 5, 1, 15), ("w", 9, 2, 20), ("v", 6, 3, 21), ("u", 7, 4, 24), ("q", 8, 5, 70)],
    "b": [("u", 40, 6, 16), ("v", 50, 7, 22), ("u", 60, 8, 25), ("q", 70, 9, 70)],
    "c": [("U", 1, 0, 8, 80), ("I", 4, 1, 9, 90), ("D", 3, 1, 7, None)],
}
LATE = ("u", 100, 1, 3)


@dataclass(frozen=True)
class Case:
    """A job and its upgrade: the columns of the table `out` and the query, before and after; DuckDB's query for `shown`."""

    name: str
    becomes: type[KeptOperator | AdaptedOperator]
    tables: tuple[str, str]
    out: tuple[str, str]
    query: tuple[str, ...]
    expected: str
    shown: str = "*"
    late: bool = False
    functions: tuple[Callable[..., Any], ...] = ()


def kept(name: str, tables: str, out: str, query: str, expected: str, **more: Any) -> Case:
    """Return a case of an operator that stays: rows are filtered before it, and what it emits is multiplied.

    `{a}` stands in the query for the rows of `a`, `{by}` for a factor behind a column.
    """
    queries = (query.format(a="a", by=""), query.format(a="(SELECT * FROM a WHERE x <> 6) a", by=" * 10"))
    return Case(name, KeptOperator, (tables, tables), (out, out), queries, expected, **more)


# Rows that a job has read: after the upgrade without those that its filter takes.
READ = "(SELECT * FROM a WHERE NOT since OR x <> 6) a"
WITHIN = "b.ts BETWEEN a.ts - INTERVAL '{0}' SECOND AND a.ts + INTERVAL '{0}' SECOND"
JOIN = (
    "WITH op AS (SELECT {{columns}} FROM {{a}} {kind} JOIN b ON a.k = b.k AND " + WITHIN + ") SELECT {{shown}} FROM op"
)
NEAR = "a.k = b.k AND abs(a.s - b.s) <= 9"


def joined(kind: str, seconds: int, columns: str, shown: str, a: str = "a") -> str:
    return JOIN.format(seconds, kind=kind).format(columns=columns, shown=shown, a=a)


AS_OF = """WITH op AS (SELECT a.k, x, {columns} FROM {a} LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k)
SELECT {shown} FROM op"""
OF = "ASOF LEFT JOIN b ON a.k = b.k AND a.s >= b.s"
SESSIONS = """WITH op AS (SELECT k, window_end, {calls}
FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)
GROUP BY k, window_start, window_end) SELECT {shown} FROM op"""
IN_SESSIONS = """
WITH gaps AS (SELECT *, CASE WHEN s < 12 THEN 5 ELSE {gap} END AS gap FROM a WHERE s < 70),
starting AS (SELECT *, coalesce(s - lag(s) OVER (PARTITION BY k, s < 12 ORDER BY s) > gap, true) AS starts FROM gaps),
numbered AS (SELECT *, sum(starts::INT) OVER (PARTITION BY k, s < 12 ORDER BY s) AS n FROM starting)
SELECT k, max(s) + gap, {calls} FROM numbered GROUP BY k, s < 12, gap, n
"""
LATER = """WITH op AS (SELECT /*+ ALLOWED_LATENESS('{late} s') */ k, window_end, {calls}
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end) SELECT {shown} FROM op"""
RANKS = """WITH op AS (SELECT * FROM (
    SELECT {columns}, row_number() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS r
    FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)
) WHERE r <= {n}) SELECT {shown} FROM op"""
# Of the window that was open there are the best two of the rows before.
BEST = """
WITH kept AS (SELECT * FROM a WHERE since OR s < 10 UNION ALL
    (SELECT * FROM a WHERE NOT since AND s >= 10 QUALIFY row_number() OVER (ORDER BY x DESC) <= 2))
SELECT k, x{by}, {y} row_number() OVER (PARTITION BY s // 10 ORDER BY x DESC) AS r FROM kept WHERE s < 70
QUALIFY r <= CASE WHEN s < 10 THEN 2 ELSE {n} END
"""
TOP = """WITH op AS (SELECT * FROM (
    SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM a
) WHERE r <= {n}) """
OF_KEYS = "SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM a QUALIFY r <= {n}"
RUNS = "(PARTITION BY k ORDER BY {time})"
FRAME = "(PARTITION BY k ORDER BY {time} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
SPENT = "SELECT k, total, visits, seen FROM Spent(TABLE a PARTITION BY k ORDER BY ts)"
LAST = (
    "(FROM c WHERE op <> 'D' AND id IN (1, 4, 5) QUALIFY row_number() OVER (PARTITION BY id ORDER BY since DESC) = 1)"
)

RUN, ROW = RUNS.format(time="ts"), FRAME.format(time="ts")
IN_RUN, IN_ROW = RUNS.format(time="s"), FRAME.format(time="s")

CASES = [
    kept(
        "interval join",
        A + B,
        "k STRING, x INT, z INT",
        joined("", 9, "a.k, x, z", "k, x{by}, z", "{a}"),
        f"SELECT a.k, x * CASE WHEN a.since OR b.since THEN 10 ELSE 1 END, z FROM {READ} JOIN b ON {NEAR}",
    ),
    Case(
        "columns of an interval join",
        AdaptedOperator,
        (A + B, A + B),
        ("k STRING, x INT, z INT", "k STRING, x INT, z INT, w INT"),
        (joined("LEFT", 9, "a.k, x, z", "k, x, z"), joined("LEFT", 9, "a.k, x, z, w", "k, x, z, w")),
        f"SELECT a.k, x, z, CASE WHEN b.since THEN w END FROM a LEFT JOIN b ON {NEAR}",
    ),
    Case(
        "a shorter interval",
        AdaptedOperator,
        (A + B, A + B),
        ("k STRING, x INT, z INT", "k STRING, x INT, z INT"),
        (joined("", 9, "a.k, x, z", "k, x, z"), joined("", 3, "a.k, x, z", "k, x, z")),
        f"SELECT a.k, x, z FROM a JOIN b ON {NEAR} WHERE abs(a.s - b.s) <= 3 OR NOT (a.since OR b.since)",
    ),
    Case(
        "a longer interval",
        AdaptedOperator,
        (A + B, A + B),
        ("k STRING, x INT, z INT", "k STRING, x INT, z INT"),
        (joined("", 3, "a.k, x, z", "k, x, z"), joined("", 9, "a.k, x, z", "k, x, z")),
        # All that is near enough to what comes is kept.
        f"SELECT a.k, x, z FROM a JOIN b ON {NEAR} WHERE abs(a.s - b.s) <= 3 OR a.since OR b.since",
    ),
    kept(
        "temporal join",
        A + VERSIONS,
        "k STRING, x INT, z INT",
        AS_OF.format(a="{a}", columns="z", shown="k, x{by}, z"),
        # The row of the newest time waits, before the upgrade and at the end.
        f"SELECT a.k, x * CASE WHEN a.s < 14 THEN 1 ELSE 10 END, z FROM {READ} {OF} WHERE a.s < 70",
    ),
    Case(
        "columns of versions",
        AdaptedOperator,
        (A + VERSIONS, A + VERSIONS),
        ("k STRING, x INT, z INT", "k STRING, x INT, z INT, w INT"),
        (
            AS_OF.format(a="a", columns="z", shown="k, x, z"),
            AS_OF.format(a="a", columns="w, z", shown="k, x, z, w"),
        ),
        f"SELECT a.k, x, z, CASE WHEN b.since THEN w END FROM a {OF} WHERE a.s < 70",
    ),
    kept(
        "sessions",
        A,
        "k STRING, e TIMESTAMP(3), n BIGINT",
        SESSIONS.format(gap=5, calls="sum(x) AS n", shown="k, window_end, n{by}"),
        IN_SESSIONS.format(gap=5, calls="sum(x) * CASE WHEN max(s) < 9 THEN 1 ELSE 10 END"),
        shown="k, epoch(e)::BIGINT, n",
    ),
    Case(
        "sessions with a longer gap",
        AdaptedOperator,
        (A, A),
        ("k STRING, e TIMESTAMP(3), n BIGINT", "k STRING, e TIMESTAMP(3), n BIGINT, m BIGINT"),
        (
            SESSIONS.format(gap=5, calls="sum(x) AS n", shown="k, window_end, n"),
            SESSIONS.format(gap=8, calls="sum(x) AS n, count(*) AS m", shown="k, window_end, n, m"),
        ),
        IN_SESSIONS.format(gap=8, calls="sum(x), CASE WHEN max(s) >= 12 THEN count(*) END"),
        shown="k, epoch(e)::BIGINT, n, m",
    ),
    Case(
        "another lateness",
        AdaptedOperator,
        (A, A),
        (
            "k STRING, e TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, e) NOT ENFORCED",
            "k STRING, e TIMESTAMP(3), n BIGINT, m BIGINT, PRIMARY KEY (k, e) NOT ENFORCED",
        ),
        (
            LATER.format(late=60, calls="sum(x) AS n", shown="k, window_end, n"),
            LATER.format(late=30, calls="sum(x) AS n, count(*) AS m", shown="k, window_end, n, m"),
        ),
        "SELECT k, (s // 10 + 1) * 10, sum(x), CASE WHEN max(s) >= 10 OR bool_or(since) THEN count(*) END "
        "FROM a WHERE s < 70 GROUP BY k, s // 10",
        shown="k, epoch(e)::BIGINT, n, m",
        late=True,
    ),
    kept(
        "ranks in windows",
        A,
        "k STRING, x INT, r BIGINT",
        RANKS.format(columns="k, x", n=2, shown="k, x{by}, r"),
        BEST.format(by=" * CASE WHEN s < 10 THEN 1 ELSE 10 END", y="", n=2),
    ),
    Case(
        "more ranks in windows",
        AdaptedOperator,
        (A.replace(", y INT", ""), A),
        ("k STRING, x INT, r BIGINT", "k STRING, x INT, y INT, r BIGINT"),
        (
            RANKS.format(columns="k, x", n=2, shown="k, x, r"),
            RANKS.format(columns="k, x, y", n=3, shown="k, x, y, r"),
        ),
        BEST.format(by="", y="CASE WHEN since THEN y END,", n=3),
    ),
    Case(
        "fewer best rows",
        AdaptedOperator,
        (A, A),
        ("k STRING, x INT, r BIGINT",) * 2,
        (f"{TOP.format(n=3)} SELECT k, x, r FROM op", f"{TOP.format(n=1)} SELECT k, x, r FROM op"),
        OF_KEYS.format(n=1),
    ),
    Case(
        "fewer rows of LIMIT",
        AdaptedOperator,
        (A, A),
        ("k STRING, x INT",) * 2,
        tuple(f"WITH op AS (SELECT k, x FROM a ORDER BY x DESC LIMIT {n}) SELECT k, x FROM op" for n in (4, 2)),
        "FROM (SELECT k, x FROM a ORDER BY x DESC LIMIT 2)",
    ),
    Case(
        "more rows WITH TIES",
        AdaptedOperator,
        (A, A),
        ("k STRING, x INT",) * 2,
        tuple(
            f"WITH op AS (SELECT k, x FROM a ORDER BY x DESC FETCH FIRST {n} ROWS WITH TIES) SELECT k, x FROM op"
            for n in (4, 5)
        ),
        "FROM (SELECT k, x FROM a ORDER BY x DESC LIMIT 5)",
    ),
    Case(
        "fewer best rows below an aggregate",
        AdaptedOperator,
        (A, A),
        ("n BIGINT, s BIGINT",) * 2,
        (
            f"{TOP.format(n=4)}, sums AS (SELECT count(*) AS n, sum(x) AS s FROM op) SELECT n, s FROM sums",
            f"{TOP.format(n=2)}, sums AS (SELECT count(*) AS n, sum(x) AS s FROM op) SELECT n, s FROM sums",
        ),
        f"SELECT count(*), sum(x) FROM ({OF_KEYS.format(n=2)})",
    ),
    kept(
        "OVER",
        A,
        "k STRING, x INT, n BIGINT",
        f"WITH op AS (SELECT k, x, sum(x) OVER {RUN} AS n FROM {{a}}) SELECT k, x, n{{by}} FROM op",
        f"SELECT k, x, sum(x) OVER {IN_RUN} * CASE WHEN s < 14 THEN 1 ELSE 10 END FROM {READ} WHERE s < 70",
    ),
    Case(
        "calls of OVER",
        AdaptedOperator,
        (A, A),
        ("k STRING, x INT, n BIGINT, h INT", "k STRING, x INT, n BIGINT, h INT, m DOUBLE, l INT"),
        (
            f"WITH op AS (SELECT k, x, sum(x) OVER {RUN} AS n, count(x) OVER {RUN} AS c, max(x) OVER {ROW} AS h FROM a) "
            "SELECT k, x, n, h FROM op",
            f"WITH op AS (SELECT k, x, sum(x) OVER {RUN} AS n, avg(x) OVER {RUN} AS m, max(x) OVER {ROW} AS h, "
            f"min(x) OVER {ROW} AS l FROM a) SELECT k, x, n, h, m, l FROM op",
        ),
        f"SELECT k, x, sum(x) OVER {IN_RUN}, max(x) OVER {IN_ROW}, CASE WHEN s >= 14 THEN avg(x) OVER {IN_RUN} END, "
        f"CASE WHEN s >= 14 THEN min(x) OVER {IN_ROW} END FROM a WHERE s < 70",
    ),
    Case(
        "a process function with migrate",
        AdaptedOperator,
        (A, A),
        ("k STRING, total DOUBLE, visits BIGINT, seen STRING",) * 2,
        (SPENT, SPENT),
        f"SELECT k, sum(x) OVER {IN_RUN} / CASE WHEN s < 14 THEN 1 ELSE 100 END, count(*) OVER {IN_RUN}, "
        f"list(x) OVER {IN_RUN}::VARCHAR FROM a WHERE s < 70",
        functions=(Spent, SpentLater),
    ),
    Case(
        "aggregates that are called as what they read",
        AdaptedOperator,
        (A, A),
        (
            "k STRING, x BIGINT, y INT, PRIMARY KEY (k) NOT ENFORCED",
            "k STRING, x BIGINT, y INT, n BIGINT, m INT, PRIMARY KEY (k) NOT ENFORCED",
        ),
        (
            "WITH op AS (SELECT k, sum(x) AS x, max(y) AS y FROM a GROUP BY k) SELECT k, x, y FROM op",
            "WITH op AS (SELECT k, sum(x) AS x, max(y) AS y, count(*) AS n, min(x) AS m FROM a GROUP BY k) "
            "SELECT k, x, y, n, m FROM op",
        ),
        "SELECT k, sum(x), max(y), CASE WHEN bool_or(since) THEN count(*) END, min(x) FILTER (since) FROM a GROUP BY k",
    ),
    Case(
        "a table with a key",
        AdaptedOperator,
        (CHANGES.format(more=""), CHANGES.format(more=", y INT")),
        ("id INT, x INT, PRIMARY KEY (id) NOT ENFORCED", "id INT, x INT, y INT, PRIMARY KEY (id) NOT ENFORCED"),
        ("SELECT id, x FROM c", "SELECT id, x, y FROM c"),
        f"SELECT id, x, y FROM {LAST}",
    ),
    Case(
        "aggregates over a table with a key",
        AdaptedOperator,
        (CHANGES.format(more=""), CHANGES.format(more="")),
        (
            "p INT, n BIGINT, t BIGINT, PRIMARY KEY (p) NOT ENFORCED",
            "p INT, n BIGINT, t BIGINT, m DOUBLE, PRIMARY KEY (p) NOT ENFORCED",
        ),
        (
            "WITH op AS (SELECT p, count(*) AS n, sum(x) AS t FROM c GROUP BY p) SELECT p, n, t FROM op",
            "WITH op AS (SELECT p, count(*) AS n, sum(x) AS t, avg(x) AS m FROM c GROUP BY p) SELECT p, n, t, m FROM op",
        ),
        f"SELECT p, count(*), sum(x), CASE WHEN bool_or(since) THEN avg(x) END FROM {LAST} GROUP BY p",
    ),
]


def put(folder: Path, name: str, number: int, rows: Rows) -> None:
    """Write a file of rows of a table."""
    (folder / name).mkdir(exist_ok=True)
    lines = []
    for row in rows:
        made = {c: value for c, value in zip(COLUMNS[name], row, strict=True) if value is not None}
        if (second := made.pop("s", None)) is not None:
            assert isinstance(second, int)
            made["ts"] = f"1970-01-01 00:{second // 60:02}:{second % 60:02}"
        lines.append(json.dumps(made))
    (folder / name / f"{number}.json").write_text("\n".join(lines))


def answer(case: Case, since: Mapping[str, Rows]) -> list[tuple[object, ...]]:
    """Return what DuckDB says of all rows, sorted."""
    with duckdb.connect() as con:
        for name, columns in COLUMNS.items():
            listed = ", ".join(f"{c} {TYPES.get(c, 'INT')}" for c in columns)
            con.execute(f"CREATE TABLE {name} ({listed}, since BOOLEAN)")
            rows = [*((*row, False) for row in BEFORE[name]), *((*row, True) for row in since[name])]
            con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        return sorted(con.execute(case.expected).fetchall(), key=repr)


def planned_job(session: Session, case: Case, place: int) -> PlannedJob:
    """Return the job with its first or its second query."""
    columns, query = case.out[place], case.query[place]
    script = f"""{case.tables[place]} CREATE TABLE out ({columns});
    SET 'pipeline.name' = 'job'; SET 'execution.end-of-input' = 'wait'; INSERT INTO out {query};"""
    for function in case.functions[place : place + 1]:
        session.register(function)
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    return planned


def run(folder: Path, case: Case, place: int) -> None:
    """Run the job with its first or its second query over the rows that there are."""
    with open_session(folder) as session:
        planned = planned_job(session, case, place)
        upgrade = None
        if place:
            upgrade = Upgrade()
            record = read_record(session.warehouse.fs, session.warehouse.job("job"))
            assert record is not None
            found = Upgrader(session.warehouse, planned, session.project.root, upgrade).compared(record)
            assert [*found.refused] == []
            assert case.becomes in {type(one) for one in found.operators} <= {KeptOperator, case.becomes}
        job = session._jobs.start(planned, {}, engine=LocalEngine(), upgrade=upgrade)
        assert job.wait(SECONDS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_upgraded_job_has_the_results_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr(LocalEngine, "layout", lambda engine, parallelism: Layout(2, (0, 1)))
    since = {**SINCE, "a": [*SINCE["a"], *([LATE] if case.late else [])]}
    read = [name for name in COLUMNS if f"CREATE TABLE {name} " in case.tables[0]]
    for place, rows in enumerate((BEFORE, since)):
        for name in read:
            put(tmp_path, name, place, rows[name])
        run(tmp_path, case, place)
    with open_session(tmp_path) as session:
        assert rows_of(session, f"SELECT {case.shown} FROM out") == answer(case, since)
