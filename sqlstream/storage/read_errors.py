"""What DuckDB says about a file that it cannot read as declared, said in our words, with the row at fault."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.errors import DataError
from sqlstream.storage.files import Split, vanished
from sqlstream.storage.json_lines import first_wrong_line
from sqlstream.storage.segments import quote_text

# A malformed row is shown up to this length.
_SHOWN = 200

_CSV_ROW = re.compile(
    r"CSV Error on Line: (\d+)\nOriginal Line: (.*?)\n(?=Error when|Expected Number|\n?Value with|Invalid|.*\n)", re.S
)
_CSV_CAST = re.compile(r"Error when converting column \"(.+?)\"")
_CSV_FIELDS = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")


def translate(
    error: Exception, splits: Iterable[Split], table: Table, columns: Sequence[Column] | None = None
) -> DataError | None:
    """Return the error of reading one of the splits as people should see it, or None when it is about something else.

    `columns` are those that were read, by default all. A malformed row is looked for again, to name its line.
    """
    if "format" not in table.options:
        return None
    text = re.sub(r"\n+LINE \d+: .*", "", str(error), flags=re.DOTALL).strip()
    splits = list(splits)
    parquet = table.options["format"].lower() == "parquet"
    path = _path_in(text, splits)
    if path is None and parquet and type(error) is duckdb.Error:
        # What the Parquet reader makes of a damaged page has no class of its own, and no file name.
        path = _unreadable(splits)
    if path is None:
        return None
    if not os.path.exists(path):
        return vanished(path, table.name)
    file = name_file(path, table)
    if not os.access(path, os.R_OK):
        return DataError(f"no permission to read {file}")
    if "GZIP" in text or "ZSTD" in text:
        return DataError(f"{file} is not whole, or not compressed as its name says", detail=_sentence(text))
    if parquet:
        return _parquet_error(text, file)
    match table.options["format"].lower():
        case "json" | "debezium-json" as form if "JSON" in text:
            return _json_error(text, path, file, columns or table.stored, form)
        case "csv" if match := _CSV_ROW.search(text):
            return _csv_error(text, match, file, table)
    return DataError(f"{file} cannot be read", detail=_sentence(text))


@contextmanager
def reading(splits: Sequence[Split], table: Table) -> Iterator[None]:
    """Turn errors of opening the splits' files into DataErrors."""
    try:
        yield
    except duckdb.Error as error:
        if translated := translate(error, splits, table):
            raise translated from error
        raise
    except FileNotFoundError as error:
        raise vanished(splits[0].path, table.name) from error
    except (OSError, csv.Error) as error:
        raise DataError(f"{name_file(splits[0].path, table)} cannot be read", detail=str(error)) from error


def name_file(path: str, table: Table) -> str:
    """Return the file as messages name it."""
    return f'file "{path}" of table "{table.name}"'


def duckdb_paths(paths: Iterable[str]) -> str:
    """Return a list of paths as an argument of DuckDB's readers."""
    return f"[{', '.join(quote_text(_literal(path)) for path in paths)}]"


@contextmanager
def open_text(path: str) -> Iterator[io.TextIOWrapper]:
    """Open a local file as text, decompressed as its name says."""
    with pa.input_stream(path, compression="detect") as stream:
        yield io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", errors="replace", newline="")


def _literal(path: str) -> str:
    # The readers glob; a class of one character stands for itself.
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def _path_in(text: str, splits: Iterable[Split]) -> str | None:
    paths = {form: s.path for s in splits for form in (s.path, _literal(s.path))}
    found = [form for form in paths if form in text]
    return paths[max(found, key=len)] if found else None


def _unreadable(splits: Iterable[Split]) -> str | None:
    with duckdb.connect(config={"threads": 1, "autoload_known_extensions": False}) as con:
        for path in sorted({s.path for s in splits}):
            try:
                con.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet({duckdb_paths([path])})").fetchall()
            except duckdb.Error:
                return path
    return None


def _parquet_error(text: str, file: str) -> DataError:
    if "magic bytes" in text or "too small" in text:
        return DataError(f"{file} is not a Parquet file, or not a whole one", hint=_WHOLE)
    return DataError(f"{file} is damaged", detail=_sentence(text))


_WHOLE = "Write files under a name that starts with a dot and rename them when they are complete."


def _json_error(text: str, path: str, file: str, columns: Sequence[Column], form: str) -> DataError:
    hint = f"Set '{form}.ignore-parse-errors' = 'true' to skip such rows and count them."
    found = first_wrong_line(duckdb_paths([path]), columns)
    if found is None:
        return DataError(f"{file} has a malformed row", detail=_sentence(text), hint=hint)
    count, column = found
    line, content = _nth_line(path, count)
    fault = f'Column "{column.name}" does not hold a {column.type}' if column else "The line is not a JSON object"
    return DataError(f"line {line} of {file} is malformed", detail=f"{fault}: {_shorten(content)}", hint=hint)


def malformed_line(path: str) -> tuple[int, str]:
    """Return the number of the first line of a file that is not a JSON object, and a sentence that says so."""
    # A column that any line fits.
    count, _ = first_wrong_line(duckdb_paths([path]), [Column("_", "VARCHAR")]) or (0, None)
    line, content = _nth_line(path, count)
    return line, f"The line is not a JSON object: {_shorten(content)}"


def _nth_line(path: str, count: int) -> tuple[int, str]:
    """Return the number and content of the nth line that is not empty."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            count -= bool(line.strip())
            if count == 0:
                return number, line.strip()
    return 0, ""


def _csv_error(text: str, match: re.Match[str], file: str, table: Table) -> DataError:
    fault = _sentence(text[match.end() :]).rstrip(".")
    if cast := _CSV_CAST.search(text):
        types = {c.name: c.type for c in table.physical}
        fault = f'Column "{cast[1]}" does not hold a {types.get(cast[1], "value")}'
    elif fields := _CSV_FIELDS.search(text):
        # DuckDB stops counting at the first field too many.
        fault = f"The row has {'more' if int(fields[2]) > int(fields[1]) else 'fewer'} than {fields[1]} fields"
    hint = "Set 'csv.ignore-parse-errors' = 'true' to skip such rows and count them."
    return DataError(f"row {match[1]} of {file} is malformed", detail=f"{fault}: {_shorten(match[2])}", hint=hint)


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _sentence(text: str) -> str:
    """Return the first line of DuckDB's message as a sentence."""
    first = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", text.strip()).split("\n")[0].strip()
    return first[:1].upper() + first[1:].rstrip(".") + "." if first else ""
