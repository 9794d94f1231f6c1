"""Files of raw lines: each line is a row of one column, see `raw_codec`.

The end of a line follows each value, also a number, which is as many bytes as its type has, whatever they are. DuckDB scans them
as an Arrow stream, which reads some lines at a time and starts again with each scan.
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
from sqlstream.connectors.formats.raw_codec import CHARSET, HINT, RawCodec, problem
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.duck.text_files import LIMIT, lines_of
from sqlstream.errors import BindError

_NUMBER = internal("number")
_ROWS, _BYTES = 20_000, 16 << 20
_numbers = itertools.count()
TOO_LONG = f"The line is longer than {LIMIT >> 20} MB"
# Bytes that are no text in UTF-8.
_NO_TEXT = b"\xff"


class UnreadableLines(Exception):
    """A file is not compressed as its name says, or is incomplete. The message names it, also within an error of DuckDB."""


@dataclass(frozen=True)
class ScannedLines:
    """The lines of files as an Arrow stream, which starts again with each scan.

    Its columns are VALUE, the bytes of a line without its end, and the line's number in its file, from 0. Texts are UTF-8,
    whatever they are in the files.
    """

    paths: tuple[str, ...]
    codec: RawCodec

    schema = pa.schema([(VALUE, pa.large_binary()), (_NUMBER, pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines. Raises UnreadableLines for a file that cannot be read to its end."""
        for path in self.paths:
            for first, lines in _blocks(path, self.codec):
                numbers = pa.array(range(first, first + len(lines)), pa.int64())
                if self.codec.needs_python:
                    lines = [_NO_TEXT if (text := self.codec.text(line)) is None else text.encode() for line in lines]
                yield pa.record_batch([pa.array(lines, pa.large_binary()), numbers], self.schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__()


def _lines(path: str, codec: RawCodec) -> Iterator[bytes]:
    """Yield the lines of a file without their ends."""
    first = True
    for line in lines_of(path):
        text = line.removeprefix(codecs.BOM_UTF8) if first and codec.charset == "utf-8" else line
        yield text.removesuffix(b"\n").removesuffix(b"\r")
        first = False


def _numbers_of(path: str, size: int) -> Iterator[bytes]:
    """Yield the numbers of a file, of `size` bytes each; where no line end follows one, all bytes up to the next line end."""
    record = b""
    for line in lines_of(path):
        # A byte of a number may be a line end.
        record += line
        if len(record) > size:
            yield record.removesuffix(b"\n")
            record = b""
    if record:
        yield record


def _blocks(path: str, codec: RawCodec) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of a file some at a time, as (number of the first, lines without their ends)."""
    lines: list[bytes] = []
    number = size = 0
    try:
        for line in _lines(path, codec) if codec.size is None else _numbers_of(path, codec.size):
            lines.append(line)
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
    codec = codec_of(table)
    streams = {name: ScannedLines(tuple(split.path for split in splits), codec)}
    con.register(name, streams[name])
    is_skipping = skips(table)
    items, wrong = [], [f"WHEN octet_length({VALUE}) >= {LIMIT} THEN {quote_text(TOO_LONG)}"]
    for column in columns:
        if column.metadata is not None:
            item = _NUMBER
        elif codec.size is None:
            # An error of DuckDB about bytes that are no text: `faults.translate` then looks for the line.
            item = codec.decoded(VALUE) if is_skipping or codec.type == "BLOB" else f"decode({VALUE})"
        else:
            item = codec.decoded(VALUE)
        if column.metadata is None and codec.type != "BLOB":
            wrong.append(f"WHEN {codec.fault(VALUE)} IS NOT NULL THEN {codec.fault(VALUE)}")
        items.append(f"CAST({item} AS {column.type}) AS {quote_name(column.name)}")
    if is_skipping:
        items.append(f"CASE {' '.join(wrong)} END AS {WRONG}")
        marked = Select(f"SELECT {', '.join(items)} FROM {name}")
        return ReadPlan.of_marked(marked, keep=True, streams=streams)
    # DuckDB's error about a JSON object that is too long: `faults.translate` then looks for the line.
    long = f"error(concat('\"maximum_object_size\" of ', octet_length({VALUE})))"
    fits = f"CASE WHEN octet_length({VALUE}) >= {LIMIT} THEN {long} ELSE true END"
    if codec.size is not None:
        fits = f"CASE WHEN octet_length({VALUE}) <> {codec.size} THEN error('a line \" is malformed: ') ELSE true END"
    sql = Select(f"SELECT {', '.join(items) or '1'} FROM {name} WHERE {fits}")
    return ReadPlan(sql, keep=True, streams=streams)


def codec_of(table: Table) -> RawCodec:
    """Return the codec of the one column that a table stores; `check_raw` must have accepted it."""
    [column] = table.stored
    return RawCodec.of(column.type, table.options)


def check_raw(table: Table) -> None:
    """Raise BindError unless a table stores exactly one column, of a type that raw lines hold, in a charset of lines."""
    if (wrong := problem(table.stored)) is not None:
        raise BindError(f'table "{table.name}": format "raw" {wrong}', table.span, hint=HINT)
    codec = codec_of(table)
    if codec.needs_python and codec.bytes_of("\n") != b"\n":
        message = (
            f'table "{table.name}": files in charset "{table.options[CHARSET.name]}" have no lines of format "raw"'
        )
        hint = "The end of a line must be one byte, as in UTF-8 and in ISO-8859-1."
        raise BindError(message, table.option_span(CHARSET.name, value=True), hint=hint)


def nth_raw_lines(path: str, counts: Sequence[int], table: Table) -> dict[int, tuple[int, str]]:
    """Map each n in `counts` to (n, text) of the nth row of a file, counted from 1."""
    numbers, numbered_lines, codec = set(counts), dict[int, tuple[int, str]](), codec_of(table)
    for first, lines in _blocks(path, codec):
        for number in numbers:
            if first < number <= first + len(lines):
                numbered_lines[number] = number, codec.shown(lines[number - first - 1])
    return numbered_lines
