"""Regular joins of any kind and depth: what was emitted adds up to DuckDB's answer, after every batch."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.strategies import Step
from tests.properties.test_changes import CONDITIONS, TABLES, check, deeper, histories

pytestmark = pytest.mark.slow


KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
# Of relations l and r.
ON = st.sampled_from(
    [
        *("l.k = r.k", "l.k = r.k", "l.k = r.k AND l.s = r.s", "r.x = l.k", "l.k + 1 = r.x - 1", "l.s = r.s"),
        *("l.k = r.k AND l.x < r.x", "l.k = r.k AND (l.x > 0 OR r.s = 'a')", "l.k = r.k AND l.x + r.x > 1"),
        *("l.k = r.k AND l.s <> 'a'", "l.k = r.k AND r.x > 0", "l.k = r.k AND l.x > 0 AND r.s IS NOT NULL"),
        *("l.k = r.k AND r.x IS NULL", "l.k = r.k AND l.k IS NOT NULL", "l.x < r.x", "true", "l.k = 1", "false"),
        *("CAST(l.k AS INTEGER) = r.k", "l.k = r.x AND l.s IS NOT DISTINCT FROM r.s", "l.k = r.k AND l.k = r.x"),
    ]
)
SHOWN = st.sampled_from(
    ["l.k, r.x, l.s", "r.k, l.x, r.s", "l.k, l.x, r.s", "coalesce(l.k, r.k) AS k, l.x + r.x AS x, l.s || r.s AS s"]
)
# What a WHERE above says of rows that may have had no match.
ABOVE = st.sampled_from(
    [
        *("true", "true", "true", "r.x IS NULL", "l.x IS NULL", "l.x > 0", "r.x > 0", "l.k = 1 OR r.s IS NULL"),
        *("l.s IS NOT DISTINCT FROM r.s", "l.x <= r.x", "coalesce(r.s, 'z') <> 'a'", "l.k IS NOT NULL"),
    ]
)


def _two(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return joins of two queries."""
    using = "SELECT k, l.x, r.s FROM ({}) l {} ({}) r USING (k) WHERE {}"
    return st.one_of(
        st.builds(
            "SELECT {} FROM ({}) l {} ({}) r ON {} WHERE {}".format,
            *(SHOWN, queries, st.sampled_from(KINDS), queries, ON, ABOVE),
        ),
        st.builds("SELECT {} FROM ({}) l, ({}) r WHERE {} AND {}".format, SHOWN, queries, queries, ON, ABOVE),
        st.builds(using.format, queries, st.sampled_from(["JOIN", "LEFT JOIN"]), queries, ABOVE),
        st.builds(
            "SELECT k, x, r.s FROM ({}) l RIGHT JOIN (SELECT k, s FROM ({})) r USING (k)".format, queries, queries
        ),
        st.builds("SELECT k, x, s FROM ({}) NATURAL JOIN (SELECT x, s FROM ({}))".format, queries, queries),
    )


def _matched(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return queries for rows that have a match in another one, or have none."""
    kind = st.sampled_from(["SEMI", "ANTI"])
    test = st.sampled_from(["IN", "NOT IN"])
    some = st.sampled_from(["EXISTS", "NOT EXISTS"])
    subquery = "SELECT * FROM ({}) l WHERE {} {} (SELECT r.{} FROM ({}) r WHERE {})"
    column = st.sampled_from(["k", "x"])
    return st.one_of(
        st.builds("SELECT l.k, l.x, l.s FROM ({}) l {} JOIN ({}) r ON {}".format, queries, kind, queries, ON),
        st.builds(subquery.format, queries, st.sampled_from(["l.k", "k + 1", "1"]), test, column, queries, CONDITIONS),
        st.builds(subquery.format, queries, st.just("l.k"), test, column, queries, ON),
        st.builds(
            "SELECT * FROM ({}) WHERE x IN (SELECT k FROM ({})) AND s NOT IN (SELECT s FROM ({}))".format,
            *(queries, queries, queries),
        ),
        st.builds("SELECT * FROM ({}) l WHERE {} (SELECT 1 FROM ({}) r WHERE {})".format, queries, some, queries, ON),
        st.builds(
            "SELECT * FROM ({}) l WHERE x > 0 AND {} (SELECT max(x) FROM ({}) GROUP BY k HAVING COUNT(*) > 1)".format,
            *(queries, some, queries),
        ),
    )


@st.composite
def _three(draw: st.DrawFn, queries: st.SearchStrategy[str]) -> str:
    """Draw a join of three queries, by a key that they share, or each by one of its own."""
    first, second = draw(st.sampled_from([*KINDS, "SEMI JOIN"])), draw(st.sampled_from([*KINDS, "ANTI JOIN"]))
    if draw(st.booleans()):
        first = second = "JOIN"
    known = "l" if first == "SEMI JOIN" else draw(st.sampled_from("lr"))
    on = re.sub(r"\bl\.", f"{known}.", re.sub(r"\br\.", "m.", draw(ON)))
    hidden = [alias for alias, kind in (("r", first), ("m", second)) if kind in ("SEMI JOIN", "ANTI JOIN")]
    shown = ["l" if r in hidden else r for r in draw(st.sampled_from(["lrm", "mlr"]))]
    where = draw(st.sampled_from(["true", "{0}.x IS NULL", "{0}.x + {1}.x > 1", "{1}.s = 'a' OR {2}.s IS NULL"]))
    columns = "{}.k, {}.x, {}.s".format(*shown)
    sides = [draw(queries) for _ in range(3)]
    joined = f"({sides[0]}) l {first} ({sides[1]}) r ON {draw(ON)} {second} ({sides[2]}) m ON {on}"
    return f"SELECT {columns} FROM {joined} WHERE {where.format(*shown)}"


def joins(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(_two(queries), _matched(queries), _three(queries))


below = st.one_of(TABLES, TABLES, deeper(TABLES))
joined = joins(below)
# Joins, what changes above joins, joins above joins.
found = st.one_of(joined, joined, deeper(joined), joins(st.one_of(TABLES, joined)))


@examples(20)
@given(found, histories(), st.integers(1, 3), st.booleans())
def test_changes_of_joins_add_up_to_the_batch_answer(
    query: str, history: list[Step], parallelism: int, small: bool
) -> None:
    check(query, history, parallelism, small=small)
