"""The options that connectors and formats declare: their types, how they are checked, and the errors about wrong ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlstream.catalog import IDLE_TIMEOUT, MAX_AHEAD, Table
from sqlstream.errors import BindError, missing
from sqlstream.units import parse_boolean, parse_bytes, parse_count, parse_duration


@dataclass(frozen=True, slots=True)
class OptionType:
    """The type of an option's value. `parse` returns the value of a text; it raises ValueError with a message for users."""

    name: str
    parse: Callable[[str], object]


def _number(text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise ValueError(f'"{text}" is not a whole number')
    return int(text)


def _filled(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


TEXT = OptionType("text", str)
NAME = OptionType("name", _filled)
BOOLEAN = OptionType("boolean", parse_boolean)
# A whole number from 1 on, and one from 0 on.
COUNT = OptionType("count", parse_count)
NUMBER = OptionType("number", _number)
SIZE = OptionType("size", parse_bytes)
DURATION = OptionType("duration", parse_duration)


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option of WITH (..).

    `meaning` is a line for the manual. A `required` option has no default; the error about a missing one shows its `example`, and
    an option that is `instead_of` it can replace it. A `mutable` option (how fast a table is read, how malformed rows are
    handled) can change without making the job another job.
    """

    name: str
    type: OptionType
    meaning: str
    default: str = ""
    required: bool = False
    example: str = ""
    mutable: bool = False
    instead_of: str = ""


def named(options: Iterable[TableOption]) -> Mapping[str, TableOption]:
    """Return options by their names; the last one of a name counts."""
    return {option.name: option for option in options}


CONNECTOR = TableOption("connector", TEXT, "name of the connector", required=True)
FORMAT = TableOption("format", TEXT, "how the rows are encoded", required=True, example="parquet")
MONITOR = TableOption(
    "source.monitor-interval",
    DURATION,
    "how often to look for new rows; without it the table is bounded",
    example="1 s",
)
MAX_BYTES = TableOption(
    "source.max-bytes-per-batch", SIZE, "the most bytes that a batch reads", default="128 MB", mutable=True
)
# Every table that a job reads has these.
SCAN_OPTIONS = (
    TableOption(
        IDLE_TIMEOUT,
        DURATION,
        "a table that had no row for this long no longer holds back the watermark",
        default="`table.exec.source.idle-timeout`",
        mutable=True,
    ),
    TableOption(
        MAX_AHEAD,
        DURATION,
        "rows whose event time is further ahead of the clock are skipped, and counted as malformed",
        mutable=True,
    ),
)


def check_required(table: Table, options: Iterable[TableOption]) -> None:
    """Raise BindError for the first required option that a table lacks, unless it has another one that is `instead_of` it."""
    listed = list(options)
    replaced = {option.instead_of for option in listed if option.name in table.options}
    for option in listed:
        if option.required and option.name not in replaced and not table.options.get(option.name):
            hint = f"Write it into WITH (..): '{option.name}' = '{option.example}'."
            raise BindError(f'table "{table.name}" needs the option "{option.name}"', table.span, hint=hint)


def no_such_option(table: Table, name: str, names: Iterable[str], of: str) -> BindError:
    """Return the error for an unknown option; `of` is the connector or format in words, such as `format "csv"`."""
    message = f'table "{table.name}": option "{name}" does not exist for {of}'
    return BindError(message, table.option_span(name), hint=missing("option", name, names))


def check_value(table: Table, option: TableOption, value: str) -> None:
    """Raise BindError unless the value is of the option's type."""
    try:
        option.type.parse(value)
    except ValueError as error:
        message = f'table "{table.name}": option "{option.name}": {error}'
        raise BindError(message, table.option_span(option.name, value=True)) from None
