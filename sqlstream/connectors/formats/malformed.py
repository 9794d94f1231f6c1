"""Rows that are not as their table declares: whether they are skipped, and what is kept of them.

`'<format>.ignore-parse-errors' = 'true'` skips and counts them, `'<format>.errors-to' = 'name'` keeps them, too, as rows of the
warehouse table of that name. Both are options of every format, read here alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import ERRORS_TO, IGNORE, Column, Table
from sqlstream.connectors.options import BOOLEAN, OptionType, TableOption
from sqlstream.units import parse_boolean

# A malformed row is kept up to so many characters.
KEPT_CHARACTERS = 10_000
# The columns of the table that keeps malformed rows.
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
    """A row by its file (or partition) and its number there, from 1, as messages say it; `text` is what stands there."""

    path: str
    number: int
    reason: str
    text: str


def options_of(format: str) -> tuple[TableOption, ...]:
    """Return the options about malformed rows that tables of a format have."""
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
    return table.options.get("format", "").lower()


def errors_to(table: Table) -> str | None:
    """Return the name of the table that keeps malformed rows, if there is to be one."""
    return table.options.get(f"{format_of(table)}.{ERRORS_TO}")


def skips(table: Table) -> bool:
    """Whether malformed rows are left out, and counted, instead of failing the job."""
    ignored = parse_boolean(table.options.get(f"{format_of(table)}.{IGNORE}", "false"))
    return ignored or errors_to(table) is not None


def skip_hint(table: Table) -> str:
    """Return what to do about malformed rows that are to stay out."""
    ignore, keep = (f"{format_of(table)}.{option}" for option in (IGNORE, ERRORS_TO))
    return f"Set '{ignore}' = 'true' to skip such rows and count them, '{keep}' = 'name' to keep them in a table."


def does_not_hold(column: Column) -> str:
    """Return why a row is malformed of which a value does not fit its column."""
    return f'Column "{column.name}" does not hold a {column.type}'


WRONG_QUOTE = "A quote is not closed, or stands within a field"
NO_VALUE = "is NOT NULL, but the row has no value for it"


def no_value(name: str) -> str:
    """Return why a row is malformed that is NULL in a column that never is."""
    return f'Column "{name}" {NO_VALUE}'
