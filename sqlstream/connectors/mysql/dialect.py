"""The dialects of MySQL and MariaDB: column types, and rows as the literals of an INSERT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlstream.catalog import Column
from sqlstream.connectors.relational.dialect import Dialect, is_nested
from sqlstream.duck.sql import Select, quote_name, quote_text

_TEXTS = ("longtext", "mediumtext", "text", "tinytext", "varchar", "char", "enum", "json", "uuid", "inet4", "inet6")
_TIMES = ("datetime", "timestamp")
# By integer type: its bits, and its most decimal digits.
_WHOLE = {"tinyint": (8, 3), "smallint": (16, 5), "mediumint": (24, 8), "int": (32, 10), "bigint": (64, 20)}
_NUMBERS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
# By DuckDB type other than integers: the column types that hold its values. The first one is created, unless _CREATED has one.
_TYPES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("tinyint", "bit(1)", "smallint", "int"),
    "HUGEINT": ("decimal(39,0)",),
    "UHUGEINT": ("decimal(39,0)",),
    "FLOAT": ("float", "double"),
    "DOUBLE": ("double",),
    "VARCHAR": _TEXTS,
    "JSON": ("json", "longtext", "mediumtext", "text"),
    "BLOB": ("longblob", "mediumblob", "blob", "tinyblob", "varbinary"),
    "UUID": ("char", "uuid", "varchar", "longtext", "text"),
    "DATE": ("date",),
    "TIME": ("time",),
    "TIMESTAMP": _TIMES,
    "TIMESTAMP_S": _TIMES,
    "TIMESTAMP_MS": _TIMES,
    "TIMESTAMP_NS": _TIMES,
    "TIMESTAMP WITH TIME ZONE": ("timestamp", "datetime"),
}
# By DuckDB type: the full column type that is created.
_CREATED = {
    "BOOLEAN": "boolean",
    "UUID": "char(36)",
    "TIME": "time(6)",
    "TIMESTAMP WITH TIME ZONE": "timestamp(6)",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "datetime(6)"),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)", re.IGNORECASE)
_FRACTION = re.compile(r"(?:datetime|timestamp|time)(?:\((\d)\))?")
# An index has at most 3072 bytes, and a character up to four.
_KEY_BYTES = 3072
_LONGEST_KEY = 255


def plain_type(declared: str) -> str:
    """Return a column type of `information_schema` without display widths, lengths of texts, and values of enumerations.

    >>> [plain_type(kind) for kind in ("int(11) unsigned", "tinyint(1)", "varchar(9)", "decimal(9,2)", "enum('a')")]
    ['int unsigned', 'tinyint', 'varchar', 'decimal(9,2)', 'enum']
    """
    kind = declared.lower().replace(" zerofill", "").strip()
    if kind.startswith(("enum(", "set(")):
        return kind[: kind.index("(")]
    return re.sub(r"^((?:tiny|small|medium|big)?int|(?:var)?char|varbinary)\(\d+\)", r"\1", kind)


def fraction(column_type: str) -> int | None:
    """Return the number of fractional digits of a second that a column type holds; None if it is no type of times.

    >>> [fraction(kind) for kind in ("datetime", "timestamp(3)", "date")]
    [0, 3, None]
    """
    there = _FRACTION.fullmatch(column_type)
    return int(there[1] or 0) if there else None


def whole(kind: str) -> tuple[str, ...] | None:
    """Return the column types for a DuckDB integer type, first the one to create columns with; None for other types."""
    unsigned = kind.startswith("U")
    bits = _NUMBERS.get(kind.removeprefix("U"))
    if bits is None:
        return None
    sizes = [(name, size, digits) for name, (size, digits) in _WHOLE.items() if size >= bits]
    own, digits = sizes[0][0], 19 if kind == "BIGINT" else sizes[0][2]
    types = [f"{own} unsigned" if unsigned else own]
    types += [name for name, size, _ in sizes if size > bits]
    types += [f"{name} unsigned" for name, size, _ in sizes if unsigned and size > bits]
    types.append(f"decimal({digits},0)")
    return (*types, *(["double"] if bits <= 32 else []))


class MySQL(Dialect):
    """MySQL's dialect, in sessions in which double quotes enclose names and backslashes escape nothing.

    Values are sent as texts of SQL literals.
    """

    name = "MySQL"
    # The collation of created tables: texts are equal only if all their characters are, including blanks at the end.
    collation = "utf8mb4_0900_bin"

    def type(self, kind: str) -> str:
        if is_nested(kind):
            return "json"
        return _CREATED.get(kind) or (kind.lower() if kind.startswith("DECIMAL") else self.fitting(kind)[0])

    def fitting(self, kind: str) -> Sequence[str]:
        if is_nested(kind):
            return _TYPES["JSON"]
        if kind.startswith("DECIMAL"):
            return (kind.lower(),)
        return whole(kind) or _TYPES.get(kind, ("longtext", "mediumtext", "text", "varchar"))

    def fits(self, kind: str, column_type: str) -> bool:
        fitting = self.fitting(kind)
        if there := _DECIMAL.fullmatch(column_type):
            return any(_holds(there, needed) for name in fitting if (needed := _DECIMAL.fullmatch(name)))
        return (column_type if fraction(column_type) is None else column_type.partition("(")[0]) in fitting

    def value(self, kind: str, sql: str) -> str:
        if kind == "BOOLEAN":
            return f"CAST(CAST({sql} AS TINYINT) AS VARCHAR)"
        if kind == "BLOB":
            return f"'X''' || hex({sql}) || ''''"
        if whole(kind) or kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT")):
            return f"CAST({sql} AS VARCHAR)"
        if kind.startswith("TIMESTAMP"):
            return f"'''' || CAST(CAST({sql} AS TIMESTAMP) AS VARCHAR) || ''''"
        text = f"CAST(to_json({sql}) AS VARCHAR)" if is_nested(kind) else f"CAST({sql} AS VARCHAR)"
        return f"'''' || replace({text}, '''', '''''') || ''''"

    def literals(self, columns: Iterable[Column], rows: Select, types: dict[str, str]) -> Select:
        """Return a SELECT that makes of each row a text for INSERT, such as `(1, 'a'),`.

        `types` maps columns to their types in the database. The SELECT fails if a column would round a time.
        """
        items = (f"coalesce({self._checked(c, types[c.name])}, 'NULL')" for c in columns)
        return Select(f"SELECT '(' || concat_ws(', ', {', '.join(items)}) || '),' AS _row FROM ({rows})")

    def _checked(self, column: Column, column_type: str) -> str:
        """Return the SQL of a value as a literal, which fails if the server would round a time."""
        name, kind = quote_name(column.name), column.type
        value, digits = self.value(kind, name), fraction(column_type)
        if digits is None or digits == 6 or not kind.startswith("TIME"):
            return value
        micros = f"epoch_us(CAST({name} AS TIMESTAMP))" if kind.startswith("TIMESTAMP") else f"epoch_us({name})"
        text = quote_text(f'column "{column.name}" is {column_type} there, which cannot hold ')
        wrong = f"error({text} || CAST({name} AS VARCHAR))"
        return f"CASE WHEN {micros} % {10 ** (6 - digits)} = 0 OR {name} IS NULL THEN {value} ELSE {wrong} END"

    def create(self, target: str, columns: Iterable[Column], key: Sequence[str]) -> str:
        """Return the CREATE TABLE; key columns of texts and bytes get a length that fits into an index."""
        columns = list(columns)
        kinds = {c.name: c.type for c in columns}
        texts = sum(self.type(kinds[name]) == "longtext" for name in key)
        length = min(_LONGEST_KEY, (_KEY_BYTES - 16 * len(key)) // 4 // max(texts, 1))
        items = []
        for column in columns:
            kind = self.type(column.type)
            if column.name in key:
                kind = {"longtext": f"varchar({length})", "longblob": f"varbinary({length})"}.get(kind, kind)
            null = "NOT NULL" if column.not_null or column.name in key else "NULL"
            items.append(f"{quote_name(column.name)} {kind} {null}")
        if key:
            items.append(f"PRIMARY KEY ({_listed(key)})")
        options = f"ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {self.collation}"
        return f"CREATE TABLE IF NOT EXISTS {target} ({', '.join(items)}) {options}"

    # INSERT .. ON DUPLICATE KEY UPDATE would also change a row with another key that collides in another unique index. With
    # `update` and `insert_others` that is an error, and they take no longer. Their joins begin with the new rows, which are few.

    def update(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str | None:
        """Return the UPDATE of the rows whose keys are in the table `rows`; None if all columns are key columns."""
        sets = ", ".join(f"_old.{quote_name(c)} = _new.{quote_name(c)}" for c in columns if c not in key)
        return f"UPDATE {rows} AS _new STRAIGHT_JOIN {target} AS _old ON {_same(key)} SET {sets}" if sets else None

    def insert_others(self, target: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
        """Return the INSERT of the rows of the table `rows` whose keys the target lacks."""
        items = ", ".join(f"_new.{quote_name(c)}" for c in columns)
        lacking = (
            f"FROM {rows} AS _new LEFT JOIN {target} AS _old ON {_same(key)} WHERE _old.{quote_name(key[0])} IS NULL"
        )
        return f"INSERT INTO {target} ({_listed(columns)}) SELECT {items} {lacking}"

    def delete(self, target: str, key: Sequence[str], rows: str) -> str:
        """Return the DELETE of the rows whose keys are in the table `rows`."""
        return f"DELETE _old FROM {rows} AS _new STRAIGHT_JOIN {target} AS _old ON {_same(key)}"


class MariaDB(MySQL):
    """MariaDB's dialect."""

    name = "MariaDB"
    collation = "utf8mb4_nopad_bin"


class OldMySQL(MySQL):
    """The dialect of MySQL 5.7, whose collations ignore blanks at the end of texts."""

    collation = "utf8mb4_bin"


def dialect_of(version: str) -> MySQL:
    """Return the dialect of a server by the text of its version.

    >>> [type(dialect_of(version)).__name__ for version in ("11.4.5-MariaDB-log", "8.4.3", "5.7.44-log")]
    ['MariaDB', 'MySQL', 'OldMySQL']
    """
    if "mariadb" in version.lower():
        return MariaDB()
    return OldMySQL() if version.startswith("5.") else MySQL()


def _holds(there: re.Match[str], needed: re.Match[str]) -> bool:
    digits, scale = int(needed[1]), int(needed[2])
    return int(there[2]) >= scale and int(there[1]) - int(there[2]) >= digits - scale


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"_old.{quote_name(k)} = _new.{quote_name(k)}" for k in key)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))
