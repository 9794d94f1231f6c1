"""Statements that machines write: long conditions, and CTEs that name the one before several times."""

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import ParseError, SourceText
from sqlstream.session.explaining import explained
from sqlstream.testing import Stream

pytestmark = pytest.mark.slow

TABLE = "CREATE TABLE t (a BIGINT, b BIGINT, l ARRAY<BIGINT>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);"
TWICE = {
    "join": "SELECT x.a, x.b FROM {0} AS x JOIN {0} AS y ON x.a = y.a AND x.b = y.b",
    "in": "SELECT a, b FROM {0} WHERE a IN (SELECT a FROM {0})",
    "distinct": "SELECT a, b FROM {0} UNION SELECT a, b FROM {0}",
    "group": "SELECT a, MAX(b) AS b FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {0}) GROUP BY a",
    "filters": "SELECT a, b FROM {0} WHERE a > 2 UNION ALL SELECT a, b FROM {0} WHERE a <= 2",
}


def planned(sql: str) -> PlannedJob:
    compiler = Compiler()
    try:
        [job] = compiler.jobs([SourceText("sql", TABLE + sql)])
    finally:
        compiler.close()
    return job


def chain(body: str, length: int) -> str:
    ctes = [f"c{i} AS ({body.format(f'c{i - 1}')})" for i in range(1, length + 1)]
    return f"WITH c0 AS (SELECT a, b FROM t), {', '.join(ctes)} SELECT a, b FROM c{length}"


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_condition_of_thousands_of_parts(word: str) -> None:
    condition = f" {word} ".join(f"a <> {i}" for i in range(2000))
    job = planned(f"SELECT a FROM t WHERE b > 1 AND ({condition})")
    assert job.plan_text.count("<>") == 2000


@pytest.mark.parametrize(
    "expression",
    ["(" * 3000 + "a" + ")" * 3000, " + ".join(["a"] * 3000), "a" + "::BIGINT" * 900, "l" + "[1:2]" * 900],
    ids=["parentheses", "sum", "casts", "slices"],
)
def test_what_is_nested_too_deeply_is_an_error_of_ours(expression: str) -> None:
    with pytest.raises(ParseError, match=r"nested too deeply|depth limit"):
        planned(f"SELECT {expression} FROM t")


def test_a_long_chain_of_ctes_is_planned_or_refused() -> None:
    ctes = ", ".join(f"c{i} AS (SELECT a FROM {f'c{i - 1}' if i else 't'})" for i in range(900))
    with pytest.raises(ParseError, match="nested too deeply"):
        planned(f"WITH {ctes} SELECT * FROM c899")


@pytest.mark.parametrize("kind", TWICE)
def test_a_cte_that_is_named_twice_is_planned_once(kind: str) -> None:
    short, long = planned(chain(TWICE[kind], 10)), planned(chain(TWICE[kind], 40))
    # Numbers are compared: what pytest shows of a plan that fails is every way through it.
    stages, scans = len(short.physical.stages), len(long.physical.scans)
    assert stages <= 20
    longest = len(long.physical.stages)
    assert longest <= 4 * (stages + 1)
    assert scans == 1
    lengths = len(short.plan_text), len(long.plan_text)
    assert lengths[1] < 10 * lengths[0]
    steps = len(explained(short, "plan")), len(explained(long, "plan"))
    assert steps[1] < 10 * steps[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", TWICE)
def test_a_cte_that_is_named_twice_runs_once(kind: str) -> None:
    rows = [(i % 3, i, None, "2026-01-01 10:00:00") for i in range(6)]
    with Stream(
        TABLE + "CREATE TABLE out (a BIGINT, b BIGINT); INSERT INTO out " + chain(TWICE[kind], 12), parallelism=1
    ) as stream:
        stream.batch("t", rows[:4])
        stream.batch("t", rows[4:])
        found = sorted(stream.rows("out"))
    wanted = {(a, max(r[1] for r in rows if r[0] == a)) for a, *_ in rows} if kind == "group" else {r[:2] for r in rows}
    assert found == sorted(wanted)


def test_views_that_are_named_twice_are_bound_once_in_all_inserts_of_a_set() -> None:
    views = "".join(
        f"CREATE VIEW v{i} AS {TWICE['join'].format(f'v{i - 1}' if i else '(SELECT a, b FROM t)')};" for i in range(15)
    )
    job = planned(
        f"{views} CREATE TABLE o (a BIGINT, b BIGINT); CREATE TABLE p (a BIGINT, b BIGINT);"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT * FROM v14; INSERT INTO p SELECT * FROM v14; END;"
    )
    assert len(job.physical.stages) == 15
