"""Translates DuckDB's errors about files that it cannot read as declared, with the file or the row at fault."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.copies import shown
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import WRONG_QUOTE, does_not_hold, format_of, skip_hint
from sqlstream.connectors.formats.raw_lines import UnreadableLines
from sqlstream.connectors.formats.zstd_frames import frames_fault
from sqlstream.duck import databases
from sqlstream.duck.errors import damage
from sqlstream.duck.text_files import (
    PACKINGS,
    WHOLE,
    _literal,
    duckdb_paths,
    packed_fault,
    sentence,
    shorten,
)
from sqlstream.errors import DataError

_TAIL, _CHUNK = 1 << 16, 1 << 20
COMPRESSED = (".gz", ".zst")
# In DuckDB's errors about compressed files, which do not always name the file.
_COMPRESSION = re.compile("gzip|zstd", re.IGNORECASE)

# Of a file whose name says that bzip2, lz4 or the like has compressed it.
_NO_PACKING = "compression type is not supported"

_CSV_ROW = re.compile(
    r"CSV Error on Line: (\d+)\nOriginal Line: (.*?)\n(?=Error when|Expected Number|\n?Value with|Invalid|.*\n)", re.S
)
_CSV_CAST = re.compile(r"Error when converting column \"(.+?)\"")
_CSV_FIELDS = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")


def vanished(path: str, table: str) -> DataError:
    """Return the error about a file that was listed and no longer exists; `table` is the table's name."""
    return DataError(
        f'file "{shown(path)}" of table "{table}" disappeared after it was listed',
        hint="Put it back and run the job again; it continues after its last committed batch.",
    )


def translate_file(error: Exception, splits: Sequence[FileSplit], table: Table) -> DataError | None:
    """Translate an error of opening or reading one of the splits for users; None if it is about something else.

    It names a malformed row only if the error does; `faults.translate` reads the files again to find it.
    """
    text = re.sub(r"\n+LINE \d+: .*", "", str(error), flags=re.DOTALL).strip()
    parquet = format_of(table) == "parquet"
    path = path_in(text, splits)
    if path is None and parquet and not isinstance(error, duckdb.ConversionException | duckdb.BinderException):
        # The Parquet reader's errors about a damaged page or schema often name no file.
        path = _unreadable(splits)
    elif path is None and _COMPRESSION.search(text):
        path = _not_unpacked(splits)
    if path is None:
        return None
    if not os.path.exists(path):
        return vanished(path, table.name)
    file = name_file(path, table)
    if not os.access(path, os.R_OK):
        return DataError(f"no permission to read {file}")
    packed = path.endswith(COMPRESSED) and _COMPRESSION.search(text.replace(path, ""))
    if packed or "UnreadableLines" in text or format_of(table) == "raw":
        return _not_whole(path, table, text)
    if _NO_PACKING in text:
        return DataError(f"{file} is compressed in a way that cannot be read", hint=PACKINGS)
    if parquet:
        return _parquet_error(text, file)
    if format_of(table) == "avro":
        return DataError(f"{file} is damaged", detail=sentence(damage(text) or text), hint=WHOLE)
    if format_of(table) == "csv" and (match := _CSV_ROW.search(text)):
        return malformed_row(path, "row", int(match[1]), _csv_fault(text, match, table), match[2], table)
    return DataError(f"{file} cannot be read", detail=sentence(text))


@contextmanager
def reading(splits: Sequence[FileSplit], table: Table) -> Iterator[None]:
    """Raise errors of opening and reading the splits' files as DataErrors."""
    try:
        yield
    except duckdb.Error as error:
        if translated := translate_file(error, splits, table):
            raise translated from error
        raise
    except FileNotFoundError as error:
        raise vanished(splits[0].path, table.name) from error
    except (OSError, UnreadableLines) as error:
        if splits[0].path.endswith(COMPRESSED):
            raise _not_whole(splits[0].path, table, str(error)) from error
        raise DataError(f"{name_file(splits[0].path, table)} cannot be read", detail=str(error)) from error
    except csv.Error as error:
        raise DataError(f"{name_file(splits[0].path, table)} cannot be read", detail=str(error)) from error
    except (UnicodeError, RuntimeError) as error:
        # DuckDB's Python binding fails at the names and types in a damaged file.
        path = (_unreadable(splits) if format_of(table) == "parquet" else None) or splits[0].path
        raise DataError(f"{name_file(path, table)} is damaged", detail=f"{type(error).__name__}: {error}.") from error


def _not_whole(path: str, table: Table, text: str) -> DataError:
    message = f"{name_file(path, table)} is incomplete, or not compressed as its name says"
    return DataError(message, detail=packed_fault(text), hint=WHOLE)


def check_frames(splits: Iterable[FileSplit], table: Table) -> None:
    """Raise DataError for a file of zstd that is cut off: DuckDB would read a part of it, without an error."""
    for path in {split.path for split in splits if split.path.endswith(".zst")}:
        try:
            if (fault := frames_fault(path)) is not None:
                raise _not_whole(path, table, fault)
        except FileNotFoundError as error:
            raise vanished(path, table.name) from error


def name_file(path: str, table: Table) -> str:
    """Return the name of a file in messages: `file "in/x.csv" of table "t"`, with the URI of a remote file."""
    return f'file "{shown(path)}" of table "{table.name}"'


def path_in(text: str, splits: Iterable[FileSplit]) -> str | None:
    """Return the path of the split that an error's text names, the longest if it names several; None if it names none."""
    paths = {form: s.path for s in splits for form in (s.path, _literal(s.path))}
    forms = [form for form in paths if form in text]
    return paths[max(forms, key=len)] if forms else None


def _unreadable(splits: Iterable[FileSplit]) -> str | None:
    with databases.passing() as con:
        for path in sorted({s.path for s in splits}):
            try:
                con.execute(f"SELECT name FROM parquet_schema({duckdb_paths([path])})").fetchall()
                con.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet({duckdb_paths([path])})").fetchall()
            except (duckdb.Error, UnicodeError, RuntimeError):
                return path
    return None


def _not_unpacked(splits: Iterable[FileSplit]) -> str | None:
    """Return the first file that cannot be decompressed as its name says, or is truncated.

    If all can, and only one file is compressed, return that one: it must be the one that failed. Otherwise return None.
    """
    paths = sorted({s.path for s in splits if s.path.endswith(COMPRESSED)})
    for path in paths:
        try:
            with pa.input_stream(path, compression="detect") as stream:
                while stream.read(_CHUNK):
                    pass
        except OSError:
            return path
    return paths[0] if len(paths) == 1 else None


def _parquet_error(text: str, file: str) -> DataError:
    if "magic bytes" in text or "too small" in text:
        return DataError(f"{file} is not a Parquet file, or an incomplete one", hint=WHOLE)
    return DataError(f"{file} is damaged", detail=sentence(text))


def malformed_row(path: str, what: str, number: int, reason: str, text: str, table: Table) -> DataError:
    """Return the error about a malformed row of a file, such as `line 3 of file "x.json" of table "t" is malformed`.

    `what` is `row` or `line`, and `path` a local one, at which the file still is.
    """
    # A file is read once: to skip the last line of an incomplete one would lose the rest of that line.
    hint = f"The file may not be complete yet. {WHOLE}" if _is_unfinished(path, text) else skip_hint(table)
    message = f"{what} {number} of {name_file(path, table)} is malformed"
    return DataError(message, detail=f"{reason}: {shorten(text)}", hint=hint)


def _is_unfinished(path: str, text: str) -> bool:
    """Whether a text is the last line of a file, and has no line end yet."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _TAIL))
        tail = file.read()
    last = text.strip().encode()[-_TAIL // 2 :]
    return bool(last) and not tail.endswith((b"\n", b"\r")) and tail.rstrip().endswith(last)


def _csv_fault(text: str, match: re.Match[str], table: Table) -> str:
    """Return the reason for a malformed row from DuckDB's error about it."""
    if cast := _CSV_CAST.search(text):
        return csv_reason("CAST", cast[1], "", table)
    return csv_reason("", "", text if _CSV_FIELDS.search(text) else text[match.end() :], table)


def csv_reason(kind: str, column: str, message: str, table: Table) -> str:
    """Return the reason for a malformed row, without a full stop, from DuckDB's rejects table: error type, column, message."""
    if kind == "CAST":
        return does_not_hold(next((c for c in table.physical if c.name == column), Column(column, "value")))
    if fields := _CSV_FIELDS.search(message):
        # DuckDB stops counting at the first field too many.
        return f"The row has {'more' if int(fields[2]) > int(fields[1]) else 'fewer'} than {fields[1]} fields"
    if "unterminated quote" in message:
        return WRONG_QUOTE
    return sentence(message).rstrip(".")
