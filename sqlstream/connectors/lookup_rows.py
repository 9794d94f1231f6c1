"""What lookups share: the rows that match some keys, with the types that a table declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation, Select, all_of, quote_name, typed
from sqlstream.errors import DataError

# The relation of the keys to look up.
KEYS = "_sqlstream_keys"


def lookup_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns of a lookup's result: the physical ones, without the column of operations of a changelog."""
    return tuple(c for c in table.physical if c is not table.operation)


def chosen(table: Table, rows: Relation, keys: pa.Table) -> Select:
    """Return the rows that match the keys, with the columns of `lookup_columns` and their declared types.

    `keys` has the table's key columns; it must be registered as KEYS.
    """
    items = ", ".join(
        f"CAST(_own.{quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in lookup_columns(table)
    )
    types = {c.name: c.type for c in table.physical}
    key_items = ", ".join(f"CAST({quote_name(n)} AS {types[n]}) AS {quote_name(n)}" for n in keys.column_names)
    same = all_of(f"_row.{quote_name(n)} = _key.{quote_name(n)}" for n in keys.column_names)
    joined = f"(SELECT {items} FROM {rows} AS _own) _row SEMI JOIN (SELECT {key_items} FROM {KEYS}) _key"
    return Select(f"SELECT * FROM {joined} ON {same}")


def typed_rows(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows, each a mapping by column, with the columns of `lookup_columns` and their declared types.

    A missing value is NULL. Raises DataError for a value that its column cannot hold.
    """
    columns = lookup_columns(table)
    with databases.passing() as con:
        con.register("_given", pa.table({c.name: untyped([row.get(c.name) for row in rows]) for c in columns}))
        items = typed(columns)
        try:
            return con.sql(f"SELECT {items} FROM _given").to_arrow_table()
        except duckdb.Error as error:
            raise DataError(
                f'a row of table "{table.name}" does not have the declared types', detail=str(error)
            ) from error


def untyped(values: list[Any]) -> pa.Array:
    """Return values as an array of Arrow; as texts, if Arrow has no one type for them."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if v is None else str(v) for v in values])
