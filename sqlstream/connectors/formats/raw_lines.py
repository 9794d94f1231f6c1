"""Files of raw lines: each line is a row of one column, a text or bytes.

DuckDB scans them as an Arrow stream, which reads some lines at a time and starts again with each scan.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.duck.text_files import LIMIT, lines_of
from sqlstream.errors import BindError

_NUMBER = internal("number")
_ROWS, _BYTES = 20_000, 16 << 20
_numbers = itertools.count()
NO_TEXT, TOO_LONG = "The bytes are no text", f"The line is longer than {LIMIT >> 20} MB"


class UnreadableLines(Exception):
    """A file is not compressed as its name says, or is incomplete. The message names it, also within an error of DuckDB."""


@dataclass(frozen=True)
class ScannedLines:
    """The lines of files as an Arrow stream, which starts again with each scan.

    Its columns are VALUE, the bytes of a line without its end, and the line's number in its file, from 0.
    """

    paths: tuple[str, ...]

    schema = pa.schema([(VALUE, pa.large_binary()), (_NUMBER, pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines. Raises UnreadableLines for a file that cannot be read to its end."""
        for path in self.paths:
            for first, lines in _blocks(path):
                numbers = pa.array(range(first, first + len(lines)), pa.int64())
                yield pa.record_batch([pa.array(lines, pa.large_binary()), numbers], self.schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__()


def _blocks(path: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of a file some at a time, as (number of the first, lines without their ends)."""
    lines: list[bytes] = []
    number = size = 0
    try:
        for line in lines_of(path):
            if not number and not lines:
                line = line.removeprefix(codecs.BOM_UTF8)
            lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
            size += len(line)
            if len(lines) >= _ROWS or size >= _BYTES:
                yield number, lines
                number, size, lines = number + len(lines), 0, []
    except OSError as error:
        raise UnreadableLines(f'file "{path}" cannot be read: {error}') from error
    if lines:
        yield number, lines


def read_raw(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return the plan that reads files of raw lines, from a stream that is registered in the connection, see `ReadFiles`."""
    name = f"_raw_{next(_numbers)}"
    streams = {name: ScannedLines(tuple(split.path for split in splits))}
    con.register(name, streams[name])
    is_skipping = skips(table)
    text = f"TRY(decode({VALUE}))" if is_skipping else f"decode({VALUE})"
    items, wrong = [], [f"WHEN octet_length({VALUE}) >= {LIMIT} THEN {quote_text(TOO_LONG)}"]
    for column in columns:
        if column.metadata is not None:
            item = _NUMBER
        elif column.type == "BLOB":
            item = VALUE
        else:
            item = text
            wrong.append(f"WHEN {text} IS NULL THEN {quote_text(NO_TEXT)}")
        items.append(f"CAST({item} AS {column.type}) AS {quote_name(column.name)}")
    if is_skipping:
        items.append(f"CASE {' '.join(wrong)} END AS {WRONG}")
        marked = Select(f"SELECT {', '.join(items)} FROM {name}")
        return ReadPlan.of_marked(marked, keep=True, streams=streams)
    # DuckDB's error about a JSON object that is too long: `faults.translate` then looks for the line.
    long = f"error(concat('\"maximum_object_size\" of ', octet_length({VALUE})))"
    fits = f"CASE WHEN octet_length({VALUE}) >= {LIMIT} THEN {long} ELSE true END"
    sql = Select(f"SELECT {', '.join(items) or '1'} FROM {name} WHERE {fits}")
    return ReadPlan(sql, keep=True, streams=streams)


def check_raw(table: Table) -> None:
    """Raise BindError unless a table stores exactly one column, a STRING or BYTES."""
    columns = table.stored
    if len(columns) != 1 or columns[0].type not in ("VARCHAR", "BLOB"):
        what = ", ".join(f"{c.name} {c.type}" for c in columns) or "none"
        message = f'table "{table.name}": format "raw" holds one column, a STRING or BYTES, not {what}'
        hint = "Declare one column for the line, and take it apart in the query."
        raise BindError(message, table.span, hint=hint)


def nth_raw_lines(path: str, counts: Sequence[int]) -> dict[int, tuple[int, str]]:
    """Return (n, text) of the nth lines of a file, by n, from 1."""
    numbers, numbered_lines = set(counts), dict[int, tuple[int, str]]()
    for first, lines in _blocks(path):
        for number in numbers:
            if first < number <= first + len(lines):
                numbered_lines[number] = number, lines[number - first - 1].decode(errors="replace")
    return numbered_lines
