"""How joins store rows."""

from __future__ import annotations

import duckdb

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation
from sqlstream.operators.joins.matching import JoinCondition

ORDERS = (Column("id", "BIGINT"), Column("amount", "BIGINT"))
SHIPMENTS = (Column("order_id", "BIGINT"), Column("small", "INTEGER"))


def test_a_key_that_is_a_column_is_stored_once() -> None:
    equal = JoinCondition((("BIGINT", ('"id"', '"order_id"')),), (ORDERS, SHIPMENTS))
    assert [len(equal.stored(place)) for place in (0, 1)] == [2, 2]
    cast = JoinCondition((("BIGINT", ('"id"', 'CAST("small" AS BIGINT)')),), (ORDERS, SHIPMENTS))
    assert [len(cast.stored(place)) for place in (0, 1)] == [2, 3]


def test_stored_rows_are_read_back_under_their_own_names() -> None:
    matching = JoinCondition((("BIGINT", ('"id"', '"order_id"')),), (ORDERS, SHIPMENTS))
    with duckdb.connect() as con:
        con.execute("CREATE VIEW _rows AS SELECT 7::BIGINT AS order_id, 3 AS small")
        con.execute(f"CREATE VIEW stored AS {matching.select(1)}")
        assert con.sql(f"SELECT order_id, small FROM {matching.named(1, Relation('stored'))}").fetchall() == [(7, 3)]
