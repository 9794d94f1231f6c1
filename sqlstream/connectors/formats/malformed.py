"""Malformed rows, which are not as their table declares: whether they are skipped, and what is stored of them.

`'<format>.ignore-parse-errors' = 'true'` skips and counts them, `'<format>.errors-to' = 'name'` also stores them as rows of the
warehouse table of that name. Every format has both options; only this module reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import ERRORS_TO, IGNORE, Column, Table
from sqlstream.connectors.options import BOOLEAN, OptionType, TableOption
from sqlstream.units import parse_boolean

# The most characters that are stored of a malformed row.
KEPT_CHARACTERS = 10_000
# The columns of the table that stores malformed rows.
COLUMNS = (
    Column("job", "VARCHAR"),
    Column("source_table", "VARCHAR"),
    Column("file", "VARCHAR"),
    Column("row_number", "BIGINT"),
    Column("text", "VARCHAR"),
    Column("reason", "VARCHAR"),
    Column("processed_at", "TIMESTAMP WITH TIME ZONE"),
)


def _name(text: str) -> str:
    if not text:
        raise ValueError("it names a table")
    return text


_TABLE = OptionType("table", _name)


@dataclass(frozen=True, slots=True, order=True)
class MalformedRow:
    """A malformed row: its file or partition, its number there as messages show it, the reason, and its text.

    Rows of files are numbered from 1; messages have their own number, such as an offset.
    """

    path: str
    number: int
    reason: str
    text: str


def options_of(format: str) -> tuple[TableOption, ...]:
    """Return the options about malformed rows for tables of a format."""
    return (
        TableOption(
            f"{format}.{IGNORE}", BOOLEAN, "true: malformed rows are skipped and counted", default="false", mutable=True
        ),
        TableOption(
            f"{format}.{ERRORS_TO}",
            _TABLE,
            "malformed rows are skipped, counted, and kept in the warehouse table of this name",
            mutable=True,
        ),
    )


def format_of(table: Table) -> str:
    """Return the name of a table's format, in lower case; "" if it has none."""
    return table.options.get("format", "").lower()


def errors_to(table: Table) -> str | None:
    """Return the name of the table that stores malformed rows; None if they are not stored."""
    return table.options.get(f"{format_of(table)}.{ERRORS_TO}")


def skips(table: Table) -> bool:
    """Whether malformed rows are skipped and counted; otherwise they fail the job."""
    ignored = parse_boolean(table.options.get(f"{format_of(table)}.{IGNORE}", "false"))
    return ignored or errors_to(table) is not None


def skip_hint(table: Table) -> str:
    """Return the hint of an error about a malformed row: how to skip such rows."""
    ignore, keep = (f"{format_of(table)}.{option}" for option in (IGNORE, ERRORS_TO))
    return f"Set '{ignore}' = 'true' to skip such rows and count them, '{keep}' = 'name' to keep them in a table."


def does_not_hold(column: Column) -> str:
    """Return the reason for a malformed row: a value is not of the column's type."""
    return f'Column "{column.name}" does not hold a {column.type}'


WRONG_QUOTE = "A quote is not closed, or stands within a field"
NO_VALUE = "is NOT NULL, but the row has no value for it"


def no_value(name: str) -> str:
    """Return the reason for a malformed row: it has no value for a NOT NULL column."""
    return f'Column "{name}" {NO_VALUE}'
