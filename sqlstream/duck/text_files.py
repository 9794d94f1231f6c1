"""Text files: paths for DuckDB's readers, and lines for errors."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from sqlstream.duck import databases
from sqlstream.duck.sql import quote_text


def duckdb_paths(paths: Iterable[str]) -> str:
    """Return literal paths as the SQL of a list, the argument of DuckDB's readers."""
    return f"[{', '.join(quote_text(_literal(path)) for path in paths)}]"


@contextmanager
def open_text(path: str, errors: str = "replace") -> Iterator[io.TextIOWrapper]:
    """Open a local file as UTF-8 text, decompressed by its extension; `errors` is as for `open`. Line ends are not translated."""
    with pa.input_stream(path, compression="detect") as stream:
        yield io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", errors=errors, newline="")


def _literal(path: str) -> str:
    # The readers expand patterns; a character in brackets matches itself.
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def malformed_line(path: str) -> tuple[int, str]:
    """Return the number (from 1) of the first line of a file that is not a JSON object, and a sentence that quotes the line."""
    count = first_wrong_line(duckdb_paths([path]))
    [(line, content)] = nth_lines(path, [count]).values() or [(0, "")]
    return line, f"{NO_OBJECT}: {shorten(content)}"


def nth_lines(path: str, counts: Iterable[int]) -> dict[int, tuple[int, str]]:
    """Return line numbers (from 1) and contents of some non-empty lines of a file, by their position among the non-empty ones.

    `counts` are these positions, from 1. The result has none that is beyond the end of the file.
    """
    targets, lines, count = set(counts), dict[int, tuple[int, str]](), 0
    for number, line in enumerate(lines_of(path), 1):
        text = line.strip()
        count += bool(text)
        if text and count in targets:
            lines[count] = number, text.decode("utf-8-sig", errors="replace")
            if len(lines) == len(targets):
                break
    return lines


def sentence(text: str) -> str:
    """Return the first line of an error of DuckDB as a sentence, without the kind of error; empty for an empty text."""
    first = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", text.strip()).split("\n")[0].strip()
    return first[:1].upper() + first[1:].rstrip(".") + "." if first else ""


# The hint about incomplete files.
WHOLE = "Write files under a name that starts with a dot and rename them when they are complete."
# The hint about files of other compressions.
PACKINGS = "Compress them with gzip or zstd, under a name that ends with .gz or .zst."
_CUT = re.compile("truncated|end of", re.IGNORECASE)
_OTHERWISE = re.compile("not a gzip|header|frame descriptor|not bz2", re.IGNORECASE)


def packed_fault(text: str) -> str:
    """Return a sentence that says why a compressed file cannot be read, from an error of DuckDB or Arrow.

    >>> packed_fault("Unexpected end of GZIP stream: a.gz"), packed_fault("zlib inflate failed: incorrect data check")
    ('It ends within its compressed data.', 'Its compressed data is damaged.')
    """
    if _CUT.search(text):
        return "It ends within its compressed data."
    return "It does not begin as such a file does." if _OTHERWISE.search(text) else "Its compressed data is damaged."


# The bytes that DuckDB's JSON reader has room for, with its default maximum_object_size.
LIMIT = 32 << 20


_CHUNK = 1 << 20


def lines_of(path: str) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, decompressed by its extension. Lines of LIMIT bytes or more are cut off."""
    line = bytearray()
    with pa.input_stream(path, compression="detect") as stream:
        while chunk := stream.read(_CHUNK):
            first, *rest = chunk.split(b"\n")
            _extend(line, first)
            for part in rest:
                yield bytes(line) + b"\n"
                line = bytearray(part)
    if line:
        yield bytes(line)


def _extend(line: bytearray, part: bytes) -> None:
    if len(line) < LIMIT:
        line += part


NO_OBJECT = "The line is not a JSON object"


def first_wrong_line(path: str) -> int:
    """Return the number of the first non-empty line of a file that is not a JSON object; 0 if there is none.

    Lines are counted from 1, without empty ones. `path` is SQL (see `duckdb_paths`). The whole file is read.
    """
    lines = f"read_ndjson_objects({path}, ignore_errors = true, hive_partitioning = false)"
    with databases.passing() as con:
        # fetchall, since a result that is not read to its end blocks the connection.
        numbers = con.execute(
            f"SELECT _n FROM (SELECT row_number() OVER () AS _n, json FROM {lines})"
            " WHERE json IS NULL OR json_type(json) NOT IN ('OBJECT', 'NULL') ORDER BY _n LIMIT 1"
        ).fetchall()
    return numbers[0][0] if numbers else 0


def shorten(text: str, length: int = 200) -> str:
    """Return a text for a message, cut off after `length` characters."""
    text = text.strip()
    return text if len(text) <= length else text[:length] + "..."
