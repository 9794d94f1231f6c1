"""Values of parameters, which come as a row of Arrow, as SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sqlstream.duck.sql import quote_text
from sqlstream.errors import QueryError

# What parameters of a statement may have, as Arrow.
MOST_BYTES = 16 << 20
_TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
}


def literals(row: pa.RecordBatch | pa.Table) -> list[str]:
    """Return the values of one row as SQL. Raises QueryError for more rows, and for values that are not supported."""
    if row.num_rows != 1:
        raise QueryError(f"a query takes one row of parameters, not {row.num_rows}")
    return [sql_value(row.column(i)[0]) for i in range(row.num_columns)]


def sql_value(value: Any) -> str:
    """Return a value of Arrow as SQL. A text becomes what it is compared with, as a literal does.

    >>> sql_value(pa.scalar(-7)), sql_value(pa.scalar("it's")), sql_value(pa.scalar([1, None], pa.list_(pa.int8())))
    ("CAST('-7' AS BIGINT)", "'it''s'", "[CAST('1' AS TINYINT), NULL]")
    """
    kind = value.type
    if not value.is_valid:
        return "NULL"
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        return sql_value(pa.scalar(value.as_py()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return quote_text(value.as_py())
    if isinstance(value.as_py(), bytes):
        return f"from_hex('{value.as_py().hex()}')"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"[{', '.join(map(sql_value, value.values))}]"
    if pa.types.is_interval(kind):
        months, days, nanoseconds = value.as_py()
        return f"CAST('{months} months {days} days {nanoseconds // 1000} microseconds' AS INTERVAL)"
    if pa.types.is_duration(kind):
        return f"CAST('{value.cast(pa.duration('us')).value} microseconds' AS INTERVAL)"
    if (name := _type(kind)) is None:
        raise QueryError(f"parameters of the type {kind} are not supported")
    text = repr(value.as_py()) if pa.types.is_floating(kind) else value.cast(pa.string()).as_py()
    return f"CAST({quote_text(text)} AS {name})"


def _type(kind: pa.DataType) -> str | None:
    """Return the type of DuckDB for one of Arrow whose values have a text."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP_NS" if kind.unit == "ns" else "TIMESTAMP"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPES.get(kind)
