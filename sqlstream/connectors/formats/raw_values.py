"""Raw values: each is a row of one column, a text or bytes."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.read_plan import VALUE, WRONG
from sqlstream.duck.sql import Relation, quote_name


def raw_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values, each of them bytes, see `ReadValues`."""
    items, wrong = list(passthrough), "CAST(NULL AS VARCHAR)"
    for column in columns:
        if column.type == "BLOB":
            items.append(f"{VALUE} AS {quote_name(column.name)}")
        else:
            text = f"TRY(decode({VALUE}))"
            items.append(f"{text} AS {quote_name(column.name)}")
            wrong = f"CASE WHEN {text} IS NULL THEN 'The bytes are no text' END"
    return Relation(f"(SELECT {', '.join(items)}, {wrong} AS {WRONG} FROM {values})")
