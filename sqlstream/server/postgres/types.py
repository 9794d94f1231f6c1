"""The types of PostgreSQL that clients see for DuckDB's types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from duckdb.sqltypes import DuckDBPyType

from sqlstream.duck.types import kind_of


@dataclass(frozen=True, slots=True)
class WireType:
    """A type of PostgreSQL's: its oid, the size of a value in bytes (-1: variable), and the oid of its array type.

    `title` is its name in SQL, `category` the letter of its category in PostgreSQL.
    """

    name: str
    oid: int
    size: int
    array: int
    title: str
    category: str


BOOL = WireType("bool", 16, 1, 1000, "boolean", "B")
BYTEA = WireType("bytea", 17, -1, 1001, "bytea", "U")
INT8 = WireType("int8", 20, 8, 1016, "bigint", "N")
INT2 = WireType("int2", 21, 2, 1005, "smallint", "N")
INT4 = WireType("int4", 23, 4, 1007, "integer", "N")
TEXT = WireType("text", 25, -1, 1009, "text", "S")
JSON = WireType("json", 114, -1, 199, "json", "U")
FLOAT4 = WireType("float4", 700, 4, 1021, "real", "N")
FLOAT8 = WireType("float8", 701, 8, 1022, "double precision", "N")
DATE = WireType("date", 1082, 4, 1182, "date", "D")
TIME = WireType("time", 1083, 8, 1183, "time without time zone", "D")
TIMESTAMP = WireType("timestamp", 1114, 8, 1115, "timestamp without time zone", "D")
TIMESTAMPTZ = WireType("timestamptz", 1184, 8, 1185, "timestamp with time zone", "D")
INTERVAL = WireType("interval", 1186, 16, 1187, "interval", "T")
TIMETZ = WireType("timetz", 1266, 12, 1270, "time with time zone", "D")
NUMERIC = WireType("numeric", 1700, -1, 1231, "numeric", "N")
UUID = WireType("uuid", 2950, 16, 2951, "uuid", "U")

# Types of results.
RESULT_TYPES = (
    *(BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ),
    *(NUMERIC, UUID),
)
# Types that clients look up, or use for parameters.
OTHER_TYPES = (
    WireType("char", 18, 1, 1002, '"char"', "Z"),
    WireType("name", 19, 64, 1003, "name", "S"),
    WireType("regproc", 24, 4, 1008, "regproc", "N"),
    WireType("oid", 26, 4, 1028, "oid", "N"),
    WireType("regclass", 2205, 4, 2210, "regclass", "N"),
    WireType("regtype", 2206, 4, 2211, "regtype", "N"),
    WireType("bpchar", 1042, -1, 1014, "character", "S"),
    WireType("varchar", 1043, -1, 1015, "character varying", "S"),
    WireType("jsonb", 3802, -1, 3807, "jsonb", "U"),
    WireType("unknown", 705, -2, 0, "unknown", "X"),
)

_OF_KINDS: Mapping[str, WireType] = {
    "boolean": BOOL,
    "tinyint": INT2,
    "utinyint": INT2,
    "smallint": INT2,
    "usmallint": INT4,
    "integer": INT4,
    "uinteger": INT8,
    "bigint": INT8,
    "ubigint": NUMERIC,
    "hugeint": NUMERIC,
    "uhugeint": NUMERIC,
    "bignum": NUMERIC,
    "decimal": NUMERIC,
    "float": FLOAT4,
    "double": FLOAT8,
    "blob": BYTEA,
    "date": DATE,
    "time": TIME,
    "time with time zone": TIMETZ,
    "timestamp": TIMESTAMP,
    "timestamp_s": TIMESTAMP,
    "timestamp_ms": TIMESTAMP,
    "timestamp_ns": TIMESTAMP,
    "timestamp with time zone": TIMESTAMPTZ,
    "interval": INTERVAL,
    "uuid": UUID,
    "struct": JSON,
    "map": JSON,
    "union": JSON,
    "variant": JSON,
}


@dataclass(frozen=True, slots=True)
class SentType:
    """The type of a column: of its values, or with `is_array` of their elements; `modifier` is -1, or a numeric's digits."""

    of: WireType
    is_array: bool = False
    modifier: int = -1

    @property
    def oid(self) -> int:
        """The oid of the type, or of its array type."""
        return self.of.array if self.is_array else self.of.oid

    @property
    def size(self) -> int:
        """The size of a value in bytes; -1: variable."""
        return -1 if self.is_array else self.of.size


@lru_cache(maxsize=4096)
def column_type(type: str) -> SentType:
    """Return the type that clients see for a DuckDB type. Types that PostgreSQL does not have become JSON or text.

    >>> column_type("BIGINT").of.name, column_type("VARCHAR[]").oid, column_type("STRUCT(a INTEGER)[]").of.name
    ('int8', 1009, 'json')
    >>> column_type("DECIMAL(9,2)").modifier
    589830
    """
    if kind_of(type) not in ("list", "array"):
        return SentType(_scalar(type), modifier=_modifier(type))
    [(_, element)] = DuckDBPyType(type).children[:1]
    of = _scalar(str(element))
    # PostgreSQL's arrays cannot hold arrays of different lengths, and an element of JSON would be a text in one.
    nested = of is JSON or kind_of(str(element)) in ("list", "array")
    return SentType(JSON) if nested else SentType(of, is_array=True, modifier=_modifier(str(element)))


def _scalar(type: str) -> WireType:
    return JSON if type == "JSON" else _OF_KINDS.get(kind_of(type), TEXT)


def _modifier(type: str) -> int:
    """Return precision and scale of a decimal, packed as PostgreSQL does; -1 for other types."""
    if kind_of(type) != "decimal":
        return -1
    (_, precision), (_, scale) = DuckDBPyType(type).children
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    return ((precision << 16) | scale) + 4
