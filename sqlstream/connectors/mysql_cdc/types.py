"""Types of columns of MySQL and MariaDB: which declared types hold them, and their values as texts, of a snapshot and of the log.

A value has the same text in both: a change that takes a row back must be equal to the row. Numbers and texts are themselves,
bytes hexadecimal, times as in SQL. A `timestamp`, which is an instant, ends in `+00`. Dates with a zero in them are NULL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlstream.connectors.mysql.dialect import plain_type
from sqlstream.connectors.relational.dialect import is_nested
from sqlstream.duck.sql import quote_name

# By integer type: its bits, and its most decimal digits, with and without a sign.
_WHOLE = {
    "tinyint": (8, 3, 3),
    "smallint": (16, 5, 5),
    "mediumint": (24, 7, 8),
    "int": (32, 10, 10),
    "bigint": (64, 19, 20),
}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
# The bits of a whole number that a floating-point number has exactly.
_EXACT = {"FLOAT": 24, "DOUBLE": 53}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES = {"datetime": ("TIMESTAMP",), "timestamp": ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")}
# By other types: the types that hold them.
_HELD = {
    "float": ("FLOAT", "DOUBLE"),
    "double": ("DOUBLE",),
    "date": ("DATE", "VARCHAR"),
    "time": ("TIME",),
    "year": ("SMALLINT", "INTEGER", "BIGINT", "VARCHAR"),
    "uuid": ("UUID", "VARCHAR"),
    "enum": ("VARCHAR",),
    "set": ("VARCHAR",),
    **dict.fromkeys(_BYTES, ("BLOB",)),
    **{kind: (*held, "VARCHAR") for kind, held in _TIMES.items()},
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.IGNORECASE)
# Types of columns in the log, by their numbers there.
_LOGGED = {
    1: "tinyint",
    2: "smallint",
    9: "mediumint",
    3: "int",
    8: "bigint",
    4: "float",
    5: "double",
    7: "timestamp",
    10: "date",
}
_LOGGED |= {11: "time", 12: "datetime", 13: "year", 16: "bit", 17: "timestamp", 18: "datetime", 19: "time", 245: "json"}
_LOGGED |= {246: "decimal", 247: "enum", 248: "set"}
_VARCHAR, _STRING, _BLOB = (15, 253), 254, 252
# An instant after 2038 has the 32nd bit, which the library takes for a sign.
_ERA = timedelta(seconds=1 << 32)


def reads(column_type: str, kind: str) -> bool:
    """Whether the DuckDB type `kind` holds all values of a column type of the server.

    >>> [reads("int(11) unsigned", kind) for kind in ("INTEGER", "BIGINT", "DECIMAL(10,0)", "VARCHAR")]
    [False, True, True, True]
    """
    plain = plain_type(column_type)
    name, _, more = plain.partition("(")[0].partition(" ")
    if more not in ("", "unsigned"):
        # A comment says how the column is stored.
        return False
    if name in _WHOLE:
        return _reads_whole(name, bool(more), kind)
    if name == "decimal":
        there, declared = _DECIMAL.match(plain), _DECIMAL.fullmatch(kind)
        if declared and there:
            digits, scale = int(declared[1]), int(declared[2])
            return scale >= int(there[2]) and digits - scale >= int(there[1]) - int(there[2])
        return kind in ("DOUBLE", "VARCHAR")
    if name == "bit":
        return kind == "BLOB" or (kind == "BOOLEAN" and plain == "bit(1)")
    if name in _TEXTS:
        return kind in ("VARCHAR", "JSON") or is_nested(kind)
    return kind in _HELD.get(name, ())


def _reads_whole(name: str, unsigned: bool, kind: str) -> bool:
    bits, signed_digits, unsigned_digits = _WHOLE[name]
    if declared := _DECIMAL.fullmatch(kind):
        return int(declared[1]) - int(declared[2]) >= (unsigned_digits if unsigned else signed_digits)
    if kind.startswith("U") and kind.removeprefix("U") in _BITS:
        return unsigned and _BITS[kind.removeprefix("U")] >= bits
    if kind in _BITS:
        return _BITS[kind] >= bits + unsigned
    if kind in _EXACT:
        return _EXACT[kind] >= bits
    return kind == "VARCHAR" or (kind == "BOOLEAN" and name == "tinyint")


def snapshot_item(name: str, column_type: str, kind: str) -> str:
    """Return the SQL, in the server's words with names in double quotes, of the text of a column's value."""
    column, plain = quote_name(name), plain_type(column_type)
    word = plain.partition("(")[0].partition(" ")[0]
    if word in _WHOLE or word == "year":
        # Without the zeros that a column may show before its numbers.
        return f"{column} + 0"
    if word == "float":
        # As a double: the server would round it to six digits.
        return f"{column} + 0e0"
    if word == "bit":
        digits = 2 * ((int(plain[4:-1]) + 7) // 8)
        return f"{column} + 0" if kind == "BOOLEAN" else f"LPAD(HEX({column} + 0), {digits}, '0')"
    if word in _BYTES:
        return f"HEX({column})"
    if word in ("date", "datetime", "timestamp"):
        text = f"CONCAT({column}, '+00')" if word == "timestamp" else column
        return f"CASE WHEN YEAR({column}) > 0 AND MONTH({column}) > 0 AND DAYOFMONTH({column}) > 0 THEN {text} END"
    return column


def logged_type(column: Any) -> str:
    """Return the type of a column of the log in the server's words, without lengths of texts."""
    code = column.type
    if code in _VARCHAR or code == _STRING:
        if column.character_set_name != "binary":
            return "varchar"
        # MariaDB writes a UUID as its 16 bytes.
        return "uuid" if code == _STRING and column.max_length == 16 else "varbinary"
    if code == _BLOB:
        return "blob" if column.character_set_name == "binary" else "text"
    name = _LOGGED.get(code, "geometry")
    if name == "decimal":
        return f"decimal({column.precision},{column.decimals})"
    if name == "bit":
        return f"bit({column.bits})"
    return f"{name} unsigned" if name in _WHOLE and column.unsigned else name


def logged_reads(column: Any, kind: str) -> bool:
    """Whether the DuckDB type `kind` holds all values of a column of the log."""
    logged = logged_type(column)
    return reads(logged, kind) or (logged == "uuid" and kind == "BLOB")


def log_text(column: Any, kind: str) -> Callable[[Any], str | None]:
    """Return the function that makes a text of a value of a column, as the library has it. It gets no NULL."""
    match logged_type(column).partition("(")[0].partition(" ")[0]:
        case "float" | "double":
            return repr
        case "decimal":
            return lambda value: f"{value:f}"
        case "varbinary" | "uuid" if column.type == _STRING:
            # The log leaves out zeros at the end.
            size = column.max_length
            if kind in ("UUID", "VARCHAR"):
                return lambda value: str(UUID(bytes=value.ljust(size, b"\0")))
            return lambda value: value.ljust(size, b"\0").hex()
        case "varbinary" | "blob":
            return lambda value: value.hex()
        case "datetime":
            digits = getattr(column, "fsp", 0)
            return lambda value: _time_text(value, digits)
        case "timestamp":
            digits = getattr(column, "fsp", 0)
            return lambda value: _instant_text(value, digits)
        case "time":
            return _duration_text
        case "year":
            # The library takes the year 0 for 1900, which no column holds.
            return lambda value: str(0 if value == 1900 else value)
        case "set":
            order = {word: index for index, word in enumerate(column.set_values)}
            return lambda value: ",".join(sorted(value, key=order.__getitem__))
        case "bit":
            if kind == "BOOLEAN":
                return lambda value: str(int(value, 2))
            digits = 2 * ((column.bits + 7) // 8)
            return lambda value: f"{int(value, 2):0{digits}X}"
        case "json":
            return lambda value: json.dumps(value, ensure_ascii=False, default=_json_text)
    return str


def _json_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _time_text(value: datetime, digits: int) -> str:
    text = value.isoformat(" ", "microseconds")
    return text[: 20 + digits] if digits else text[:19]


def _instant_text(value: datetime, digits: int) -> str | None:
    if value.year < 1970:
        value += _ERA
    # The first second of 1970 stands for the date of zeros.
    whole = value.replace(microsecond=0)
    return None if whole == datetime(1970, 1, 1) else f"{_time_text(value, digits)}+00"


def _duration_text(value: timedelta) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
