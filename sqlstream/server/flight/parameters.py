"""Converts the values of parameters from a row of Arrow to SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sqlstream.duck.sql import quote_text
from sqlstream.duck.time_texts import arrow_time_text
from sqlstream.errors import QueryError
from sqlstream.server.flight.messages import NoMessage

# The limits of a statement's parameters: bytes as Arrow, and values, as some take no bytes there but do in SQL.
MOST_BYTES = 16 << 20
_MOST_VALUES = 100_000
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
_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def literals(row: pa.RecordBatch | pa.Table) -> list[str]:
    """Return the values of one row as SQL. Raises QueryError for another number of rows, or for unsupported values."""
    if row.num_rows != 1:
        raise QueryError(f"a query takes one row of parameters, not {row.num_rows}")
    values = [row.column(i)[0] for i in range(row.num_columns)]
    if sum(map(_count, values)) > _MOST_VALUES:
        raise QueryError(f"parameters have {_MOST_VALUES:,} values at most")
    return [sql_value(value) for value in values]


def check_rows(rows: pa.RecordBatch | pa.Table) -> None:
    """Raise NoMessage for invalid rows from a client: their offsets might point to other memory of the server."""
    try:
        rows.validate(full=True)
    except pa.ArrowException as error:
        raise NoMessage("these are no parameters") from error


def _count(value: Any) -> int:
    """Return the number of values in a value, nested ones included, without making Python objects.

    >>> _count(pa.scalar([[1, None], [], None], pa.list_(pa.list_(pa.int64())))), _count(pa.scalar("x"))
    (6, 1)
    """
    if not _is_list(value.type):
        return 1
    count, level = 1, value.values if value.is_valid else None
    while level is not None:
        count += len(level)
        level = level.flatten() if _is_list(level.type) else None
    return count


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def sql_value(value: Any) -> str:
    """Return a value of Arrow as SQL. A text stays an untyped literal, so it takes the type that it is compared with.

    >>> sql_value(pa.scalar(-7)), sql_value(pa.scalar("it's")), sql_value(pa.scalar([1, None], pa.list_(pa.int8())))
    ("CAST('-7' AS BIGINT)", "'it''s'", "[CAST('1' AS TINYINT), NULL]")

    Raises QueryError for unsupported values.
    """
    kind = value.type
    if not value.is_valid:
        return "NULL"
    if isinstance(value, pa.UuidScalar):
        return f"CAST('{value.as_py()}' AS UUID)"
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar) and not pa.types.is_nested(value.value.type):
        return sql_value(value.value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return quote_text(value.as_py())
    if any(is_kind(kind) for is_kind in _BINARY):
        return f"from_hex('{value.as_py().hex()}')"
    if _is_list(kind):
        return f"[{', '.join(map(sql_value, value.values))}]"
    if pa.types.is_interval(kind):
        months, days, nanoseconds = value.as_py()
        return f"CAST('{months} months {days} days {nanoseconds // 1000} microseconds' AS INTERVAL)"
    if pa.types.is_duration(kind):
        return f"CAST('{value.cast(pa.duration('us')).value} microseconds' AS INTERVAL)"
    if (name := _type(kind)) is None:
        raise QueryError(f"parameters of the type {kind} are not supported")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # Arrow has no text for times far in the past or the future.
        text = arrow_time_text(value)
    else:
        text = repr(value.as_py()) if pa.types.is_floating(kind) else value.cast(pa.string()).as_py()
    return f"CAST({quote_text(text)} AS {name})"


def _type(kind: pa.DataType) -> str | None:
    """Return the DuckDB type for an Arrow type whose values can be cast to text; None for other types."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP_NS" if kind.unit == "ns" else "TIMESTAMP"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPES.get(kind)
