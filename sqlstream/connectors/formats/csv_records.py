"""CSV files read record by record: files that DuckDB's reader rejects as a whole, or in which it would lose rows.

DuckDB's reader wants one kind of line ends, even within quotes, and lines of at most two megabytes, and after a wrong quote it
may continue anywhere. Here each of `\\n`, `\\r\\n` and `\\r` ends a record, unless it is quoted. A record with a wrong quote ends
with the line of that quote, so that the rows after it are read. This takes some thirty times as long, so it is a second attempt.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.csv_rows import csv_layout, fields_of, has_header, quoting
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import WRONG_QUOTE, does_not_hold, skips
from sqlstream.connectors.formats.raw_codec import NO_TEXT
from sqlstream.connectors.formats.raw_lines import UnreadableLines
from sqlstream.connectors.formats.whole_numbers import fraction
from sqlstream.connectors.read_plan import WRONG, ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text, union_all
from sqlstream.duck.text_files import LIMIT, open_text

_NO_ROW = re.compile(r'row \d+ of file ".+" is malformed: ', re.DOTALL)
_TOO_LONG = f"The row is longer than {LIMIT >> 20} MB"
_HALF = re.compile("[\ud800-\udfff]")
# The most characters that a message shows of a record that is too long.
_SHOWN = 100_000
_PATH, _NUMBER, _FAULT = internal("path"), internal("number"), internal("fault")
_ROWS, _CHARACTERS = 20_000, 16 << 20
# A line of two megabytes has all of such a block.
_BLOCK = 512 << 10
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """A record of a file: its number, from 1 (the header counts), its text without the line end, and why it is malformed."""

    number: int
    text: str
    fault: str | None = None


def records(path: str, options: Mapping[str, str]) -> Iterator[CsvRecord]:
    """Yield all records of a file, also its header and empty lines. Raises OSError for a truncated compressed file."""
    number, parts, size, is_open = 1, list[str](), 0, False
    quote = quoting(options)[1]
    with open_text(path, errors="surrogateescape") as file:
        while line := file.readline(LIMIT):
            is_whole = line.endswith(("\n", "\r"))
            if size < LIMIT:
                parts.append(line)
                size += len(line)
                is_open = (is_open or quote in line) and continues(line, options, is_open=is_open)
            if size < LIMIT and is_open:
                continue
            # The rest of a record that is too long is dropped, up to the next line end.
            if is_whole or size < LIMIT:
                yield _record(number, parts, size)
                number, parts, size, is_open = number + 1, [], 0, False
    if parts:
        yield _record(number, parts, size)


def _record(number: int, parts: Sequence[str], size: int) -> CsvRecord:
    if size >= LIMIT:
        return CsvRecord(number, _shown("".join(parts)[:_SHOWN]), _TOO_LONG)
    text = "".join(parts)
    text = text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith(("\n", "\r")) else text
    # Bytes that are no UTF-8 became surrogates.
    if not text.isascii() and _HALF.search(text):
        return CsvRecord(number, _shown(text), NO_TEXT)
    return CsvRecord(number, text)


def _shown(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")


def continues(line: str, options: Mapping[str, str], *, is_open: bool) -> bool:
    r"""Whether a record continues in the next line; `is_open` says whether this line begins within quotes.

    >>> continues('1,"a\n', {}, is_open=False), continues('b""', {}, is_open=True), continues('b"x,"\n', {}, is_open=True)
    (True, True, False)
    """
    delimiter, quote, escape = quoting(options)
    if not quote or (not is_open and quote not in line):
        return False
    inside, at = _inside(quote, escape), 0
    while True:
        if not is_open:
            if not line.startswith(quote, at):
                at = line.find(delimiter, at) + 1
                if not at:
                    return False
                continue
            at += 1
        match = inside.match(line, at)
        assert match is not None
        at = match.end()
        if at == len(line):
            return True
        # After the closing quote comes another field or the end of the line; otherwise the quote is wrong.
        at, is_open = at + 1, False
        if not line.startswith(delimiter, at):
            return False
        at += 1


@cache
def _inside(quote: str, escape: str) -> re.Pattern[str]:
    """Return the pattern of the text within quotes."""
    mark, sign = re.escape(quote), re.escape(escape)
    pattern = f"(?:[^{mark}]++|{mark}{mark})*+" if escape == quote else f"(?:[^{mark}{sign}]++|{sign}.)*+"
    return re.compile(pattern, re.DOTALL)


def mixed_files(splits: Iterable[FileSplit]) -> set[str]:
    """Return the paths of files with line ends of several kinds, or with long lines, which DuckDB's reader does not accept.

    This is for callers that cannot try again. It takes one pass over the bytes, a small part of the time to parse them.
    """
    return {split.path for split in splits if _is_mixed(split.path)}


def misread_files(splits: Iterable[FileSplit], table: Table) -> set[str]:
    """Return the paths of files from which DuckDB's reader may return rows that are not there, without an error.

    After an empty last field, it takes a `\\r\\n` that is not the line end of the file for two line ends. If rows have one field,
    it returns the empty line between them as a row with NULL.
    """
    if len(table.physical) != 1:
        return set()
    return mixed_files(split for split in splits if len(csv_layout(split, table)) == 1)


def _is_mixed(path: str) -> bool:
    kinds, last = set[bytes](), b""
    try:
        with pa.input_stream(path, compression="detect") as stream:
            while block := stream.read(_BLOCK):
                if len(block) == _BLOCK and b"\n" not in block and b"\r" not in block:
                    return True
                kinds |= _line_ends(block, last)
                last = block[-1:]
    except OSError:
        # The reader raises the error about the file.
        return False
    return len(kinds | ({b"\r"} if last == b"\r" else set())) > 1


def _line_ends(block: bytes, last: bytes) -> set[bytes]:
    """Return the kinds of line ends in a block; `last` is the byte before it. A `\\r` at its end is left to the next block."""
    block = (last if last == b"\r" else b"") + block
    if b"\r" not in block:
        return {b"\n"} if b"\n" in block else set()
    rest = block.removesuffix(b"\r").replace(b"\r\n", b"")
    ends = {end for end in (b"\n", b"\r") if end in rest}
    return ends | {b"\r\n"} if b"\r\n" in block else ends


def rows(path: str, options: Mapping[str, str], fields: int) -> Iterator[CsvRecord]:
    """Yield the records that are rows: not the header, and an empty line (a NULL) only if rows have one field."""
    for record in records(path, options):
        if (record.number > 1 or not has_header(options)) and (record.text or fields == 1):
            yield record


def nth_rows(
    path: str, options: Mapping[str, str], fields: int, positions: set[int], left_out: set[int]
) -> dict[int, CsvRecord]:
    """Map each n in `positions` to the nth row of a file, counted from 1, without the records whose numbers are in `left_out`."""
    by_position, count = dict[int, CsvRecord](), 0
    for record in rows(path, options, fields):
        if record.number in left_out:
            continue
        count += 1
        if count in positions:
            by_position[count] = record
            if len(by_position) == len(positions):
                break
    return by_position


@dataclass(frozen=True)
class ScannedRecords:
    """The rows of CSV files as an Arrow stream, which starts again with each scan.

    Its columns are the fields as texts (`field_names`), the file's path, the reason why a row is malformed (NULL if it is not),
    and the number of the record, from 1.
    """

    paths: tuple[str, ...]
    fields: int
    options: Mapping[str, str]

    @property
    def schema(self) -> pa.Schema:
        names = (*field_names(self.fields), _PATH, _FAULT)
        return pa.schema([*((name, pa.string()) for name in names), (_NUMBER, pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises UnreadableLines for a file that cannot be read to its end."""
        for path in self.paths:
            waiting, size = list[CsvRecord](), 0
            try:
                for record in rows(path, self.options, self.fields):
                    waiting.append(record)
                    size += len(record.text)
                    if len(waiting) >= _ROWS or size >= _CHARACTERS:
                        yield self._batch(path, waiting)
                        waiting, size = [], 0
            except OSError as error:
                raise UnreadableLines(f'file "{path}" cannot be read: {error}') from error
            if waiting:
                yield self._batch(path, waiting)

    def _row(self, path: str, record: CsvRecord) -> list[str | None]:
        fields, fault = row_of("" if record.fault else record.text, self.options, self.fields)
        return [*fields, path, record.fault or fault]

    def _batch(self, path: str, waiting: Sequence[CsvRecord]) -> pa.RecordBatch:
        columns = zip(*(self._row(path, record) for record in waiting), strict=True)
        numbers = pa.array([record.number for record in waiting], pa.int64())
        return pa.record_batch([*(pa.array(column, pa.string()) for column in columns), numbers], self.schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__()


def read_records(
    con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    """Return the plan that reads CSV files record by record, from streams that are registered in the connection.

    Unless the table skips malformed rows, the plan's SQL fails at the first one with an error that `is_no_row` recognizes.
    """
    layouts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for split in splits:
        layouts.setdefault(csv_layout(split, table), []).append(split.path)
    streams, selects = dict[str, ScannedRecords](), []
    for layout, paths in layouts.items():
        name = Relation(f"_csv_{next(_numbers)}")
        streams[name] = ScannedRecords(tuple(paths), len(layout), table.options)
        con.register(name, streams[name])
        fields = dict(zip((own for own, _ in layout), field_names(len(layout)), strict=True))
        origin = () if skips(table) else (_PATH, _NUMBER)
        selects.append(marked_fields(con, name, [(fields[c.name], c) for c in columns], origin, _FAULT))
    marked = union_all(selects)
    if skips(table):
        return ReadPlan.of_marked(marked, keep=True, streams=streams)
    message = f"""concat('row ', {_NUMBER}, ' of file "', {_PATH}, '" is malformed: ', {WRONG})"""
    is_row = f"CASE WHEN {WRONG} IS NULL THEN true ELSE error({message}) END"
    names = ", ".join(quote_name(c.name) for c in columns) or "1"
    return ReadPlan(Select(f"SELECT {names} FROM ({marked}) WHERE {is_row}"), keep=True, streams=streams)


def is_no_row(error: Exception) -> bool:
    """Whether this is the error about a malformed row of a plan of `read_records`."""
    return bool(_NO_ROW.search(str(error)))


def field_names(count: int) -> list[str]:
    """Return the names of `count` columns, which hold the fields of a record as texts."""
    return [f"_field_{n}" for n in range(count)]


def row_of(text: str, options: Mapping[str, str], count: int) -> tuple[Sequence[str | None], str | None]:
    """Return (fields, None) with the first `count` fields of a record; for a malformed record, (NULLs, the reason).

    As in DuckDB, further fields must be NULL.

    >>> row_of("1,a,,", {}, 2), row_of('1,a,""', {}, 2)
    ((['1', 'a'], None), ([None, None], 'The row has more than 2 fields'))
    """
    fields, fault = fields_of(text, options), None
    if fields is None:
        fault = WRONG_QUOTE
    elif len(fields) < count:
        fault = f"The row has fewer than {count} fields"
    elif any(field is not None for field in fields[count:]):
        fault = f"The row has more than {count} fields"
    return [None] * count if fields is None or fault else fields[:count], fault


def marked_fields(
    con: duckdb.DuckDBPyConnection,
    relation: Relation,
    columns: Sequence[tuple[str, Column]],
    passthrough: Sequence[str],
    fault: str,
) -> Select:
    """Return the columns `passthrough`, the table's columns, and WRONG.

    `columns` has (field, column): the column of `relation` that holds the text of a column. `fault` is the column of `relation`
    with the reason why a record is malformed.
    """
    items, cases = list(passthrough), [f"WHEN {fault} IS NOT NULL THEN {fault}"]
    for field, column in columns:
        value = f"TRY_CAST({field} AS {column.type})"
        items.append(f"{value} AS {quote_name(column.name)}")
        wrong = [f"{field} IS NOT NULL AND {value} IS NULL", *filter(None, [fraction(field, con.sqltype(column.type))])]
        cases.append(f"WHEN {' OR '.join(wrong)} THEN {quote_text(does_not_hold(column))}")
    items.append(f"CASE {' '.join(cases)} END AS {WRONG}")
    return Select(f"SELECT {', '.join(items)} FROM {relation}")
