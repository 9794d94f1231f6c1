"""PostgreSQL's SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlstream.catalog import Column
from sqlstream.connectors.relational.dialect import Dialect, is_nested

_TEXTS = ("text", "character varying", "character", "citext", "json", "jsonb", "xml", "uuid", "inet", "cidr", "enum")
# By DuckDB type: the column types that hold all its values. The first one is created.
_TYPES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("boolean",),
    "TINYINT": ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    "UTINYINT": ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    "SMALLINT": ("smallint", "integer", "bigint", "numeric", "real", "double precision"),
    "USMALLINT": ("integer", "bigint", "numeric", "real", "double precision"),
    "INTEGER": ("integer", "bigint", "numeric", "double precision"),
    "UINTEGER": ("bigint", "numeric", "double precision"),
    "BIGINT": ("bigint", "numeric"),
    "UBIGINT": ("numeric",),
    "HUGEINT": ("numeric",),
    "UHUGEINT": ("numeric",),
    "FLOAT": ("real", "double precision"),
    "DOUBLE": ("double precision",),
    "VARCHAR": _TEXTS,
    "JSON": ("jsonb", "json", "text"),
    "BLOB": ("bytea",),
    "UUID": ("uuid", "text"),
    "DATE": ("date",),
    "TIME": ("time without time zone",),
    "TIME WITH TIME ZONE": ("time with time zone",),
    "TIMESTAMP": ("timestamp without time zone", "timestamp with time zone"),
    "TIMESTAMP_S": ("timestamp without time zone", "timestamp with time zone"),
    "TIMESTAMP_MS": ("timestamp without time zone", "timestamp with time zone"),
    "TIMESTAMP_NS": ("timestamp without time zone", "timestamp with time zone"),
    "TIMESTAMP WITH TIME ZONE": ("timestamp with time zone",),
    "INTERVAL": ("interval",),
}
# Types whose values pyarrow writes into CSV as PostgreSQL reads them.
_PLAIN = (
    "BOOLEAN",
    "TINYINT",
    "UTINYINT",
    "SMALLINT",
    "USMALLINT",
    "INTEGER",
    "UINTEGER",
    "BIGINT",
    "UBIGINT",
    "VARCHAR",
)
_NUMERIC = re.compile(r"(?:DECIMAL|numeric)\((\d+), ?(-?\d+)\)")
# The fill factor in percent of tables with a key: the new version of an updated row fits into the page of the old one, and then
# no index changes.
_FILLED = 80
# Types in which there are years before Christ.
_DATED = ("DATE", "TIMESTAMP")


class PostgreSQL(Dialect):
    """PostgreSQL's dialect; rows are sent as CSV."""

    name = "PostgreSQL"

    def type(self, kind: str) -> str:
        if is_nested(kind):
            return "jsonb"
        if match := _NUMERIC.fullmatch(kind):
            return f"numeric({match[1]}, {match[2]})"
        return _TYPES.get(kind, _TEXTS)[0]

    def fitting(self, kind: str) -> Sequence[str]:
        if is_nested(kind):
            return ("jsonb", "json")
        if kind.startswith("DECIMAL"):
            return ("numeric", self.type(kind))
        return _TYPES.get(kind, ("text",))

    def fits(self, kind: str, column_type: str) -> bool:
        declared, there = _NUMERIC.fullmatch(kind), _NUMERIC.fullmatch(column_type)
        if there is None:
            # `character varying(10)`, `timestamp(3) without time zone`
            return re.sub(r"\(\d+\)", "", column_type) in self.fitting(kind)
        if declared is None:
            return "numeric" in self.fitting(kind) and int(there[1]) - int(there[2]) >= _DIGITS.get(kind, 39)
        digits, scale = int(declared[1]), int(declared[2])
        return int(there[2]) >= scale and int(there[1]) - int(there[2]) >= digits - scale

    def create(self, target: str, columns: Iterable[Column], key: Sequence[str]) -> str:
        """Return the CREATE TABLE, with a fill factor for a table with a key."""
        statement = super().create(target, columns, key)
        return f"{statement} WITH (fillfactor = {_FILLED})" if key else statement

    def value(self, kind: str, sql: str) -> str:
        if is_nested(kind):
            return f"CAST(to_json({sql}) AS VARCHAR)"
        if kind == "BLOB":
            return rf"'\x' || hex({sql})"
        if kind in _PLAIN:
            return sql
        if kind.startswith(_DATED):
            return f"replace(CAST({sql} AS VARCHAR), ' (BC)', ' BC')"
        return f"CAST({sql} AS VARCHAR)"


# How many digits whole numbers have.
_DIGITS = {
    "TINYINT": 3, "UTINYINT": 3, "SMALLINT": 5, "USMALLINT": 5, "INTEGER": 10, "UINTEGER": 10, "BIGINT": 19, "UBIGINT": 20,
}  # fmt: skip
