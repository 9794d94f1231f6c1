"""Ranks: which rows the first item of an order rules out."""

from __future__ import annotations

import pytest

from sqlstream.catalog import Column
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation
from sqlstream.operators.windows.window_rows import Ranking

ROWS = Relation("""(SELECT CASE WHEN i % 11 < 9 THEN i % 3 END AS k, CASE WHEN i % 7 > 0 THEN hash(i) % 50 END AS x,
i AS "x DESC" FROM range(400) r(i) UNION ALL SELECT 7, NULL, 1 UNION ALL SELECT 8, 1, 1)""")
COLUMNS = (Column("k", "BIGINT"), Column("x", "BIGINT"), Column("x DESC", "BIGINT"))
ORDERS = [
    '"x"',
    '"x" DESC',
    '"x" DESC NULLS LAST',
    '"x" DESC NULLS FIRST',
    '"x" NULLS FIRST',
    '"x" ASC NULLS LAST',
    '"x DESC"',
    '"x DESC" DESC',
    '-"x" % 10',
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", ["row_number", "rank", "dense_rank"])
@pytest.mark.parametrize("partition", [["k"], ["k", '"x DESC" % 2']], ids=["one", "two"])
def test_what_is_ruled_out_has_no_rank_that_counts(order: str, function: str, partition: list[str]) -> None:
    ranking = Ranking("place", function, (order, '"x DESC"'), 5)
    candidates = ranking.candidates(ROWS, partition)
    ranked = f"SELECT * FROM {{}} QUALIFY {ranking.call(', '.join(partition), COLUMNS)} <= 5"
    with databases.passing() as con:
        expected = con.sql(ranked.format(ROWS)).fetchall()
        assert sorted(con.sql(ranked.format(candidates)).fetchall(), key=str) == sorted(expected, key=str)
        [(left,)] = con.sql(f"SELECT count(*) FROM {candidates}").fetchall()
    # Distinct ranks cannot be told by counting rows.
    assert (left == 402) if function == "dense_rank" else (left < 300)


def test_a_rank_without_a_limit_or_with_a_large_one_rules_nothing_out() -> None:
    for limit in (None, 0, 1_000_000):
        assert Ranking("place", "rank", ('"x"',), limit).candidates(ROWS, ["k"]) == ROWS


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [1, 3])
def test_rows_that_arrive_need_no_order_behind_their_places(order: str, limit: int) -> None:
    place = Column("_arrived", "BIGINT")
    rows = f"(SELECT *, row_number() OVER () AS {place.name} FROM {ROWS})"
    ranking = Ranking("r", "row_number", (order, f"{place.name} DESC"), limit, is_total=True, has_key=True)
    calls = (ranking.call("k", (*COLUMNS, place)), ranking.call_of_new("k", (*COLUMNS, place)))
    assert calls[0] != calls[1]
    with databases.passing() as con:
        both = [con.sql(f"FROM {rows} QUALIFY {call} <= {limit} ORDER BY ALL").fetchall() for call in calls]
    assert both[0] == both[1]
    assert len(both[0]) >= 5
    # Without places that differ it is the order by columns.
    other = Ranking("r", "row_number", (order,), limit)
    assert other.call_of_new("k", COLUMNS) == other.call("k", COLUMNS)


# Types with the values that a sort may get wrong.
KEYED = {
    "BIGINT": ["-1", "0", "9223372036854775807"],
    "DECIMAL(38,0)": ["-1", "0", "10"],
    "DOUBLE": ["'nan'", "'-inf'", "-0.0", "0.0", "'inf'"],
    "VARCHAR": ["''", "'a'", "'A'", "'aa'", "'é'"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'", "'f0000000-0000-0000-0000-000000000001'"],
    "TIMESTAMP": ["'-infinity'", "'1969-12-31'", "'2026-01-01'", "'infinity'"],
    "TIMESTAMP WITH TIME ZONE": ["'-infinity'", "'2026-01-01'", "'infinity'"],
    "TIME": ["'00:00'", "'10:00'"],
    "DATE": ["'1969-12-31'", "'2026-01-01'"],
    "BOOLEAN": ["true", "false"],
}


@pytest.mark.parametrize("direction", ["", " DESC", " NULLS FIRST", " DESC NULLS FIRST", " DESC NULLS LAST"])
@pytest.mark.parametrize("type", KEYED)
def test_a_key_orders_as_order_by_does(type: str, direction: str) -> None:
    values = ", ".join(
        f"({n}, CAST({value} AS {type}))" for n, value in enumerate([*KEYED[type], *KEYED[type], "NULL"])
    )
    # Each value among some of the others, and all of them together.
    rows = f"(SELECT n, x, unnest([n % 3, 9]) AS k FROM (VALUES {values}) AS t (n, x))"
    order = (f'"x"{direction}', '"n"')
    columns = (Column("n", "BIGINT"), Column("x", type))
    sorts, keyed = (Ranking("r", "row_number", order, 1, is_total=True, has_key=key) for key in (False, True))
    with databases.passing() as con:
        both = [
            con.sql(f"SELECT n, k FROM {rows} QUALIFY {ranking.call_of_new('k', columns)} = 1 ORDER BY ALL").fetchall()
            for ranking in (sorts, keyed)
        ]
    assert both[0] == both[1]
    assert len(both[0]) == 4
