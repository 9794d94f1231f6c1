"""The encoding in which values travel and are stored in Parquet: values of types that Parquet lacks become text."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import Column
from sqlstream.duck.sql import Items, Relation, Select, quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.units import EventTime

# Arrow has no exact form of these (INTERVAL has one, but Parquet has not).
_AS_TEXT = {"interval", "uhugeint", "bit", "bignum", "time with time zone"}


_REFUSED = {"union", "variant"}

# The types of whole numbers, but UHUGEINT, which has more values than a DECIMAL.
INTEGERS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)


_LAST_TIMESTAMP = 2**63 - 2


def microseconds(time: pa.Scalar) -> EventTime:
    """Return a date or time, or a number of microseconds, as an event time."""
    if not pa.types.is_integer(time.type):
        time = time.cast(pa.timestamp("us", getattr(time.type, "tz", None))).cast(pa.int64())
    return EventTime(time.as_py())


@lru_cache(maxsize=4096)
def kind_of(type: str) -> str:
    """Return the kind of a type: DuckDB's name in lower case, without parameters.

    >>> kind_of("STRUCT(a INTEGER)"), kind_of("DECIMAL(9,2)[]"), kind_of("MAP(INTEGER, VARCHAR)")
    ('struct', 'list', 'map')
    """
    return DuckDBPyType(type).id


def element_of(type: str) -> str:
    """Return the element type of a list or an array.

    >>> element_of("STRUCT(a INTEGER)[]")
    'STRUCT(a INTEGER)'
    """
    [(_, element)] = DuckDBPyType(type).children[:1]
    return str(element)


def has_elements(type: str) -> bool:
    """Return whether a type is a list or an array."""
    return kind_of(type) in ("list", "array")


@lru_cache(maxsize=4096)
def stored_type(type: str) -> str:
    """Return the DuckDB type in which values of a type are stored. Raises UnsupportedError for UNION and VARIANT.

    >>> stored_type("STRUCT(a INTEGER, b INTERVAL[])")
    'STRUCT("a" INTEGER, "b" VARCHAR[])'
    """
    return _stored(DuckDBPyType(type))


def _stored(type: DuckDBPyType) -> str:
    if type.id in _REFUSED:
        name = type.id.upper()
        raise UnsupportedError(f"{name} values cannot be kept in state", hint="Cast the column to JSON or VARCHAR.")
    if type.id in _AS_TEXT or type.id == "enum":
        return "VARCHAR"
    parts = [(quote_name(name), _stored(part)) for name, part in _parts(type)]
    match type.id:
        case "struct":
            return f"STRUCT({', '.join(f'{name} {part}' for name, part in parts)})"
        case "map":
            return f"MAP({parts[0][1]}, {parts[1][1]})"
        case "list" | "array":
            return f"{parts[0][1]}[]"
    return str(type)


def _parts(type: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    if type.id not in ("struct", "map", "list", "array"):
        return []
    return [(name, part) for name, part in type.children if isinstance(part, DuckDBPyType)]


def encoded(columns: Iterable[Column], relation: Relation) -> Select:
    """Return the columns of a relation, encoded for storage."""
    return Select(f"SELECT {encoded_items(columns)} FROM {relation}")


def encoded_items(columns: Iterable[Column]) -> Items:
    """Return columns, encoded for storage."""
    return Items(", ".join(map(_encoded, columns)))


def _encoded(column: Column) -> str:
    name = quote_name(column.name)
    # A cast to the same type is free, but DuckDB cannot cast an aggregate's exported state to itself.
    stored = stored_type(column.type)
    return f"CAST({name} AS {stored}) AS {name}" if is_changed(column.type) else name


@lru_cache(maxsize=4096)
def is_changed(type: str) -> bool:
    """Return whether values of a type, or parts of them, are stored as text in place of their own type."""
    return _has(DuckDBPyType(type), _AS_TEXT | {"enum"})


def _has(type: DuckDBPyType, ids: Collection[str]) -> bool:
    return type.id in ids or any(_has(part, ids) for _, part in _parts(type))


@lru_cache(maxsize=4096)
def has_intervals(type: str) -> bool:
    """Return whether a type is INTERVAL, or has an INTERVAL inside.

    >>> has_intervals("STRUCT(a INTEGER, b INTERVAL[])"), has_intervals("VARCHAR")
    (True, False)
    """
    return _has(DuckDBPyType(type), {"interval"})


def check_encoded(columns: Iterable[Column], schema: pa.Schema) -> None:
    """Raise TypeError if a column of an Arrow schema is not encoded for storage: its values would be read back changed."""
    for column in columns:
        arrow = schema.field(column.name).type
        if is_changed(column.type) and not _carries(DuckDBPyType(column.type), arrow):
            raise TypeError(f'column "{column.name}" of type {column.type} is not encoded for storage, but {arrow}')


def _carries(type: DuckDBPyType, arrow: pa.DataType) -> bool:
    if type.id in _AS_TEXT:
        return bool(pa.types.is_string(arrow))
    parts = [part for _, part in _parts(type)]
    match type.id:
        case "struct":
            arrow_parts = [field.type for field in arrow]
        case "map":
            arrow_parts = [arrow.key_type, arrow.item_type]
        case "list" | "array":
            arrow_parts = [arrow.value_type]
        case _:
            return True
    return all(_carries(part, arrow) for part, arrow in zip(parts, arrow_parts, strict=True))


def time_literal(time: EventTime, type: str) -> str:
    """Return an event time as SQL, for comparison with a column of a type. Times beyond DuckDB's range become infinite.

    >>> time_literal(EventTime(5_000_000), "TIMESTAMP")
    'make_timestamp(5000000)'
    """
    literal = time_literal_type(type)
    if literal == "BIGINT":
        return f"{time}::BIGINT"
    if abs(time) > _LAST_TIMESTAMP:
        return f"'{'-' if time < 0 else ''}infinity'::{literal}"
    return f"make_timestamp{'tz' if literal == 'TIMESTAMPTZ' else ''}({time})"


@lru_cache(maxsize=4096)
def time_literal_type(type: str) -> str:
    """Return the type of `time_literal` for a column of a type.

    >>> time_literal_type("TIMESTAMP_S"), time_literal_type("TIMESTAMP WITH TIME ZONE"), time_literal_type("BIGINT")
    ('TIMESTAMP', 'TIMESTAMPTZ', 'BIGINT')
    """
    kind = DuckDBPyType(type).id
    return {"bigint": "BIGINT", "timestamp with time zone": "TIMESTAMPTZ"}.get(kind, "TIMESTAMP")
