"""Rows of a relation for people and programs: as a table, CSV or JSON, on a terminal, in a pipe or in a file."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast
from uuid import UUID

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.duck.time_texts import python_values
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.queries.query import translate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPE_WIDTH = 10_000
# Rows that are in memory at a time.
ROWS = 10_000
# Characters that move the cursor, change colours, or do worse; newline and tab are not among them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def show_relation(relation: duckdb.DuckDBPyRelation, form: str, output: str | None, sql: str = "") -> None:
    """Write a relation's rows to the file `output`, or to the terminal if it is None: see `write_relation`.

    Raises UsageError if the file cannot be written.
    """
    with _stream(output) as stream:
        write_relation(relation, form, stream, sql)


def write_relation(relation: duckdb.DuckDBPyRelation, form: str, stream: TextIO, sql: str = "") -> None:
    """Write a relation's rows to a stream, as `table`, `csv` or `json`.

    Raises SqlStreamError for an error while rows are computed, which points into `sql`, and BrokenPipeError.
    """
    try:
        {"table": write_table, "csv": _csv, "json": _json}[form](relation, stream)
    except BrokenPipeError:
        # The reader has closed the pipe.
        raise
    except (duckdb.Error, OSError) as e:
        raise error_of_rows(e, sql) from e


def error_of_rows(error: Exception, sql: str | SourceText) -> SqlStreamError:
    """Translate an error while rows are computed: into the error of a user's function, or into one that points into `sql`."""
    # Imported here, because most queries do not need functions.
    from sqlstream.functions.registration import recover

    return (recover(error) if isinstance(error, duckdb.Error) else None) or translate(error, sql)


@contextmanager
def _stream(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        with open(output, "w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as e:
        raise UsageError(f'file "{output}" cannot be written', detail=e.strerror or str(e)) from e


def texts(relation: duckdb.DuckDBPyRelation) -> Iterator[Sequence[str | None]]:
    """Yield the rows with their values cast to VARCHAR, None for NULL."""
    texts = (f"CAST({quote_name(name)} AS VARCHAR)" for name in relation.columns)
    yield from values_of(relation.project(", ".join(texts)))


def _terminal(stream: TextIO | io.TextIOBase) -> Console:
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            # Rich would exit the process, with a code of its own.
            raise BrokenPipeError

    # A pipe has no width: each row is one line, however long.
    width = None if stream.isatty() else PIPE_WIDTH
    # In a notebook, Rich would display the output itself, and colour it.
    plain = False if isinstance(stream, io.StringIO) else None
    return Terminal(
        file=cast(TextIO, stream),
        highlight=False,
        markup=False,
        width=width,
        force_jupyter=False,
        force_terminal=plain,
    )


def write_rows(
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    stream: TextIO | io.TextIOBase,
    numbers: Sequence[bool] | None = None,
) -> None:
    """Write rows of texts as a table for people; columns with True in `numbers` are right-aligned."""
    rights = list(numbers or [False] * len(names))
    table = _table(list(map(printable, names)), rights, [None] * len(names), header=True)
    for row in rows:
        table.add_row(*_printed(row))
    _terminal(stream).print(table)


def write_table(relation: duckdb.DuckDBPyRelation, stream: TextIO | io.TextIOBase, *, count: bool = True) -> None:
    """Write a relation's rows as a table for people, in parts, so that few are in memory; with `count`, also their number."""
    console = _terminal(stream)
    names = list(map(printable, relation.columns))
    numbers = [is_number(str(type)) for type in relation.types]
    widths = list(map(len, names))
    rows, written = texts(relation), 0
    while (part := [_printed(row) for row in itertools.islice(rows, ROWS)]) or not written:
        widths = [max(w, *(len(row[i]) for row in part), 0) for i, w in enumerate(widths)]
        fits = sum(widths) + 3 * len(widths) <= console.width
        table = _table(names, numbers, widths if written and fits else [None] * len(names), header=not written)
        for row in part:
            table.add_row(*row)
        console.print(table)
        written += len(part)
        if len(part) < ROWS:
            break
    if count:
        console.print(f"({written} row{'' if written == 1 else 's'})")


def text_table(relation: duckdb.DuckDBPyRelation, most: int) -> RenderableType:
    """Return a table of at most `most` rows of a relation, and the number of all rows, for Rich to print."""
    from rich.console import Group

    names = list(map(printable, relation.columns))
    table = _table(names, [is_number(str(type)) for type in relation.types], [None] * len(names), header=True)
    count = 0
    for row in texts(relation):
        count += 1
        if count <= most:
            table.add_row(*_printed(row))
    more = f", the first {most:,} are shown" if count > most else ""
    return Group(table, f"({count:,} row{'' if count == 1 else 's'}{more})")


def _printed(row: Sequence[str | None]) -> list[str]:
    return ["NULL" if v is None else printable(v) for v in row]


def _table(names: Sequence[str], numbers: Sequence[bool], widths: Sequence[int | None], *, header: bool) -> Table:
    """Return an empty table with columns; without a width (None), a column is as wide as its values."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=header)
    for name, number, width in zip(names, numbers, widths, strict=True):
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(name, justify=justify, overflow="fold", min_width=width)
    return table


def _csv(relation: duckdb.DuckDBPyRelation, stream: TextIO) -> None:
    shown = printable if stream.isatty() else str
    for row in itertools.chain([relation.columns], texts(relation)):
        stream.write(",".join(_csv_cell(v if v is None else shown(v)) for v in row) + "\n")


def _csv_cell(value: str | None) -> str:
    """Return a CSV cell: NULL is empty, and an empty text is quoted, as DuckDB and PostgreSQL write them.

    >>> [_csv_cell(value) for value in (None, "", "a", 'a "b", c')]
    ['', '""', 'a', '"a ""b"", c"']
    """
    if value is None:
        return ""
    plain = value and not any(character in value for character in ',"\r\n')
    return value if plain else '"' + value.replace('"', '""') + '"'


def _json(relation: duckdb.DuckDBPyRelation, stream: TextIO) -> None:
    stream.write("[")
    separator = "\n "
    for row in values_of(relation):
        value = dict(zip(relation.columns, map(finite, row), strict=True))
        text = json.dumps(value, default=plain_value, ensure_ascii=False)
        stream.write(separator + (printable(text, "\\u{:04x}") if stream.isatty() else text))
        separator = ",\n "
    stream.write("\n]\n" if separator.startswith(",") else "]\n")


def printable(text: str, form: str = "\\x{:02x}") -> str:
    """Return a text with escapes in place of characters that control a terminal: values may come from anywhere.

    >>> printable("red: \x1b[31m")
    'red: \\\\x1b[31m'
    """
    return _CONTROL.sub(lambda match: form.format(ord(match[0])), text)


def is_number(type: str) -> bool:
    """Return whether a DuckDB type is numeric: such columns are right-aligned."""
    return type.endswith("INT") or type in ("INTEGER", "DOUBLE", "FLOAT") or type.startswith("DECIMAL")


def values_of(relation: duckdb.DuckDBPyRelation) -> Iterator[Sequence[Any]]:
    """Yield the rows of a relation as Python values, while they are computed; times that Python lacks are texts."""
    for batch in relation.to_arrow_reader(ROWS):
        yield from zip(*map(python_values, batch.columns), strict=True)


def finite(value: Any) -> Any:
    """Return a value for JSON: NaN and infinities, also in lists and structs, become texts.

    >>> finite([1.5, {"a": float("nan")}])
    [1.5, {'a': 'nan'}]
    """
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case list() | tuple():
            return list(map(finite, value))
        case dict():
            return {name: finite(one) for name, one in value.items()}
    return value


def plain_value(value: Any) -> Any:
    """Convert a value of a type that JSON lacks to a number or a text: the argument `default` of `json.dumps`."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case timedelta() | UUID():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)


def json_row(row: Sequence[Any]) -> list[Any]:
    """Return the values of a row as JSON values.

    >>> json_row([1, Decimal("1.5"), date(2026, 3, 1), float("nan")])
    [1, 1.5, '2026-03-01', 'nan']
    """
    values: list[Any] = json.loads(json.dumps(list(map(finite, row)), default=plain_value))
    return values
