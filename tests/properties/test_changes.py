"""Queries whose result changes, of any depth: what was emitted adds up to DuckDB's answer over all rows, after every batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import bag, batch_tables, connection, emitted, limits
from tests.properties.strategies import RESTART, Batch, Restart, Row, Step

pytestmark = pytest.mark.slow

NULLS = ("", " NULLS FIRST", " NULLS LAST")

# So few values that rows meet: in groups, in order, and as copies of each other.
KEYS, VALUES, TEXTS = (st.sampled_from([None, *some]) for some in ((1, 2), (-1, 0, 1, 2, 3), ("a", "b")))
# Every query has the columns k BIGINT, x BIGINT and s VARCHAR, so that each can stand in any other.
# In the last one, rows of b take rows of a away.
DELETING = "(SELECT k, x, s FROM a EXCEPT ALL SELECT k, x, s FROM b)"
TABLES = st.sampled_from(["SELECT k, x, s FROM a", "SELECT k, x, s FROM b", DELETING])
CONDITIONS = st.sampled_from(["x > 0", "k IS NOT NULL", "s <> 'a'", "k = 1 OR x IS NULL"])
# Over the columns of a group; those that merge, those that keep values.
MEASURES = st.sampled_from(
    [
        *(
            "CAST(SUM(x) AS BIGINT)",
            "COUNT(*)",
            "COUNT(x)",
            "MIN(x)",
            "MAX(x)",
            "CAST(SUM(x) FILTER (WHERE s = 'a') AS BIGINT)",
            "COUNT(s) FILTER (WHERE x > 0)",
            "CAST(round(AVG(x) * 6) AS BIGINT)",
            "CAST(SUM(CAST(x AS DECIMAL(5, 1)) / 1) AS BIGINT)",
        ),
        *("COUNT(DISTINCT x)", "CAST(SUM(DISTINCT x) AS BIGINT)", "quantile_disc(x, 0.5)", "len(list(x))"),
    ]
)
LABELS = st.sampled_from(
    [
        "MAX(s)",
        "MIN(s)",
        "string_agg(s, ',' ORDER BY s)",
        "string_agg(DISTINCT s, '-' ORDER BY s)",
        "CAST(list(x ORDER BY x) AS VARCHAR)",
    ]
)

SETS = st.sampled_from(
    ["GROUPING SETS ((k, s), (k))", "ROLLUP (k, s)", "GROUPING SETS ((k), (), (s), ())", "k, ROLLUP (s)"]
)
FEWER = st.sampled_from(["", "", " GROUP BY ()", " HAVING COUNT(*) > 0", " HAVING COUNT(*) = 0 OR MAX(x) > 1"])

# What is made of a row's own values.
MADE = st.sampled_from(
    [
        "CROSS JOIN UNNEST([q.x, q.k, NULL]) AS made(x)",
        "CROSS JOIN UNNEST([q.k, q.x]) WITH ORDINALITY AS made(e, x) WHERE made.e > 0",
        "LEFT JOIN UNNEST(CASE WHEN q.x > 0 THEN [q.x, q.x] END) AS made(x) ON TRUE",
        "LEFT JOIN LATERAL (SELECT e + q.k AS x FROM UNNEST([q.x, q.k]) AS u(e) WHERE e > q.x) AS made ON TRUE",
        "CROSS JOIN LATERAL (SELECT CAST(SUM(e) AS BIGINT) AS x FROM UNNEST([q.x, q.k]) AS u(e) WHERE e > 0) AS made",
        "CROSS JOIN LATERAL (SELECT e AS x FROM UNNEST([q.x, q.k]) AS u(e) GROUP BY e HAVING COUNT(*) > 1) AS made",
    ]
)


# What a subquery over another query makes of the rows that equal a row's values: its first rows, or what all of them have.
LATERALS = st.sampled_from(
    [
        ", LATERAL (SELECT x FROM ({}) AS u WHERE k = q.k ORDER BY x DESC, s LIMIT 2) AS made",
        "CROSS JOIN LATERAL (SELECT u.x FROM ({}) AS u WHERE u.k = q.k AND q.s = u.s AND u.x > 0) AS made",
        "LEFT JOIN LATERAL (SELECT x FROM ({}) AS u WHERE k = q.k AND q.x > 0 ORDER BY x, s LIMIT 1 OFFSET 1) AS made ON TRUE",
        "LEFT JOIN LATERAL (SELECT k, x FROM ({}) AS u WHERE u.x = q.k + 1 ORDER BY k, s LIMIT 1) AS made (z, x) ON TRUE",
        "CROSS JOIN LATERAL (SELECT COUNT(*) AS x FROM ({}) AS u WHERE u.k = q.k AND q.x > 0) AS made",
        "LEFT JOIN LATERAL (SELECT COUNT(x) FROM ({}) AS u WHERE u.k = q.k) AS made (x) ON TRUE WHERE made.x < 2",
        "CROSS JOIN LATERAL (SELECT MAX(x) AS x FROM ({}) AS u WHERE u.s = q.s AND u.k IS NOT NULL) AS made",
        "CROSS JOIN LATERAL (SELECT DISTINCT x FROM ({}) AS u WHERE u.k = q.k) AS made",
        "CROSS JOIN LATERAL (SELECT COUNT(*) AS x FROM ({}) AS u WHERE u.k = q.k GROUP BY s) AS made",
        "CROSS JOIN LATERAL (SELECT DENSE_RANK() OVER (ORDER BY x) AS x FROM ({}) AS u WHERE u.k = q.k) AS made",
    ]
)


@dataclass(frozen=True)
class Ranked:
    """Which rows of a partition to keep."""

    function: str
    partition: str
    order: str
    condition: str
    shown: str

    def over(self, query: str) -> str:
        # Rows that are equal in the order are numbered in that of all columns, by sqlstream; DuckDB is told to.
        order = f"{self.order}, k, x, s" if self.function == "ROW_NUMBER" else self.order
        call = f"{self.function}() OVER ({self.partition} ORDER BY {order})"
        return f"SELECT {self.shown} FROM (SELECT *, {call} AS r FROM ({query})) WHERE {self.condition}"


@st.composite
def orders(draw: st.DrawFn) -> str:
    columns = draw(st.lists(st.sampled_from(["k", "x", "s"]), min_size=1, max_size=2, unique=True))
    return ", ".join(f"{c}{draw(st.sampled_from(['', ' DESC']))}{draw(st.sampled_from(NULLS))}" for c in columns)


ranks = st.builds(
    Ranked,
    st.sampled_from(["ROW_NUMBER", "RANK", "DENSE_RANK"]),
    st.sampled_from(["", "PARTITION BY k", "PARTITION BY s"]),
    orders(),
    st.sampled_from(["r = 1", "r <= 2", "r < 2", "r BETWEEN 2 AND 3", "r <= 3 AND x > 0", "r > 1"]),
    st.sampled_from(["k, x, s", "k, r AS x, s"]),
)


def made_of(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return queries with rows that are made of a row's own values."""
    return st.builds("SELECT q.k, made.x, q.s FROM ({}) AS q {}".format, queries, MADE)


def beside(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return queries with the rows of a subquery that equal a row's values."""

    def joined(query: str, other: str, lateral: str) -> str:
        return f"SELECT q.k, made.x, q.s FROM ({query}) AS q {lateral.format(other)}"

    return st.builds(joined, queries, queries, LATERALS)


def deeper(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(queries, queries)
    sets = ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
    return st.one_of(
        st.builds("SELECT * FROM ({}) WHERE {}".format, queries, CONDITIONS),
        st.builds("SELECT x AS k, k AS x, s FROM ({})".format, queries),
        st.builds("SELECT k, x, NULL::VARCHAR AS s FROM ({})".format, queries),
        st.builds("SELECT k, {} AS x, {} AS s FROM ({}) GROUP BY k".format, MEASURES, LABELS, queries),
        st.builds("SELECT k, {} AS x, s FROM ({}) GROUP BY k, s HAVING COUNT(*) > 1".format, MEASURES, queries),
        st.builds("SELECT k, {} AS x, s FROM ({}) GROUP BY {}".format, MEASURES, queries, SETS),
        # Of all rows there is one row, always.
        st.builds("SELECT 0::BIGINT AS k, {} AS x, {} AS s FROM ({}){}".format, MEASURES, LABELS, queries, FEWER),
        st.builds("SELECT DISTINCT * FROM ({})".format, queries),
        st.builds("SELECT DISTINCT k, 1::BIGINT AS x, s FROM ({})".format, queries),
        st.builds(lambda sides, name: f"({sides[0]}) {name} ({sides[1]})", pair, st.sampled_from(sets)),
        st.builds(lambda query, rank: rank.over(query), queries, ranks),
        made_of(queries),
        beside(queries),
        st.builds(
            "SELECT * FROM ({}) ORDER BY {}, k, x, s LIMIT {} OFFSET {}".format,
            queries,
            orders(),
            st.integers(1, 4),
            st.integers(0, 2),
        ),
    )


def queries(depth: int) -> st.SearchStrategy[str]:
    """Return queries of up to so many operators over each other."""
    found = TABLES
    for _ in range(depth):
        found = deeper(st.one_of(TABLES, found))
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    rows = st.lists(st.tuples(KEYS, VALUES, TEXTS, st.none()), max_size=8).map(tuple)
    steps = list[Step]()
    for _ in range(draw(st.integers(2, 6))):
        given_rows = draw(st.fixed_dictionaries({"a": rows, "b": rows}))
        steps.append(Batch(tuple(given_rows.items())))
        if draw(st.integers(0, 3)) == 0:
            steps.append(RESTART)
    return steps


def stream_of(query: str, parallelism: int) -> Stream:
    tables = "".join(f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING);" for t in "ab")
    script = f"{tables} CREATE TABLE out (k BIGINT, x BIGINT, s STRING); INSERT INTO out {query}"
    return Stream(script, parallelism=parallelism)


@examples(35)
@given(queries(3), histories(), st.integers(1, 3), st.booleans())
def test_changes_add_up_to_the_batch_answer(query: str, history: list[Step], parallelism: int, small: bool) -> None:
    check(query, history, parallelism, small=small)


@examples(20)
@given(made_of(queries(1)), histories(), st.integers(1, 3))
def test_what_is_made_of_rows_comes_and_goes_with_them(query: str, history: list[Step], parallelism: int) -> None:
    check(query, history, parallelism, small=False)


@examples(40)
@given(beside(queries(1)), histories(), st.integers(1, 3))
def test_rows_of_lateral_subqueries_come_and_go_with_both_sides(
    query: str, history: list[Step], parallelism: int
) -> None:
    check(query, history, parallelism, small=False)


def check(query: str, history: list[Step], parallelism: int, *, small: bool) -> None:
    so_far: dict[str, list[Row]] = {"a": [], "b": []}
    with limits(small=small), stream_of(query, parallelism) as stream:
        read = {t for t in "ab" if re.search(rf"FROM {t}\b", query)}
        for step in history:
            if isinstance(step, Restart):
                stream.restart()
                continue
            for table in read:
                so_far[table] += step.of(table)
            stream.batches({table: [row[:3] for row in step.of(table)] for table in read})
            with batch_tables(so_far):
                expected = bag(connection().execute(query).fetchall())
            assert emitted(stream) == expected
