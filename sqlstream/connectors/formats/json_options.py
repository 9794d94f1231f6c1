"""The options of the format json that Flink has, too: missing fields, and the spelling of times."""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.catalog import DEBEZIUM, Column, Table
from sqlstream.connectors.options import BOOLEAN, OptionType, TableOption
from sqlstream.duck.sql import quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.units import parse_boolean

_SQL, _ISO = "SQL", "ISO-8601"
_TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


def _standard(text: str) -> str:
    if text.upper() not in (_SQL, _ISO):
        raise ValueError(f'"{text}" is neither {_SQL} nor {_ISO}')
    return text.upper()


COMPLETE = TableOption(
    "json.fail-on-missing-field",
    BOOLEAN,
    "true: an object that lacks the field of a column is malformed; false: the column is NULL",
    "false",
)


def timestamp_format(form: str) -> TableOption:
    """Return the option of a format about the spelling of times."""
    meaning = (
        "how times are written: `2026-01-01 10:00:00.5` (`SQL`) or `2026-01-01T10:00:00.5` (`ISO-8601`); both are read"
    )
    return TableOption(f"{form}.timestamp-format.standard", OptionType(f"{_SQL} or {_ISO}", _standard), meaning, _SQL)


def is_complete(table: Table) -> bool:
    """Whether an object that lacks a field of the table is malformed."""
    is_json = table.options.get("format", "").lower() == "json"
    return is_json and parse_boolean(table.options.get(COMPLETE.name, COMPLETE.default))


def writes_iso(options: Mapping[str, str], form: str) -> bool:
    """Whether a format writes times as ISO 8601 says."""
    return options.get(f"{form}.timestamp-format.standard", _SQL).upper() == _ISO


def iso_time(column: Column) -> str | None:
    """Return the SQL of the text of a time as ISO 8601 says, in UTC if it has a zone; None for a column of another type."""
    name = quote_name(column.name)
    match column.type:
        case "TIMESTAMP":
            return f"replace(CAST({name} AS VARCHAR), ' ', 'T')"
        case "TIMESTAMP WITH TIME ZONE":
            return f"replace(CAST({name} AT TIME ZONE 'UTC' AS VARCHAR), ' ', 'T') || 'Z'"
    return None


def check_times(table: Table, form: str) -> None:
    """Raise UnsupportedError for a table that would write times within other values as ISO 8601 says."""
    nested = (c for c in table.writable if c.type not in _TIMES and "TIMESTAMP" in c.type)
    if form in ("json", DEBEZIUM) and writes_iso(table.options, form) and (column := next(nested, None)):
        name = f"{form}.timestamp-format.standard"
        message = f'column "{column.name}" of table "{table.name}": times within other values as {_ISO} says'
        hint = "Declare them as STRING, and write them with DATE_FORMAT(ts, 'yyyy-MM-dd''T''HH:mm:ss')."
        raise UnsupportedError(message, table.option_span(name, value=True), hint=hint)
