"""Files of every format, damaged at random: rows, malformed rows, or one error that names the file; nothing is lost silently."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.formats.test_avro import field, record
from tests.connectors.formats.test_avro_files import avro
from tests.connectors.test_malformed import copying, declared, feed, malformed_count
from tests.properties.examples import SHARE
from tests.seed import commit_seed

COUNT = 40
# So many damaged files of each kind, others for each commit; PROPERTY_EXAMPLES=20 tries twenty times as many.
EXAMPLES = round(12 * SHARE)
FIRST = int(commit_seed(), 16) % 1_000_000
COLUMNS = "k BIGINT, s STRING, d DOUBLE, ts TIMESTAMP(3)"
ROWS: list[dict[str, Any]] = [
    {"k": k, "s": ("", "x, y", 'say "é"', "two\nlines", "-")[k % 5], "d": k / 4, "ts": f"2026-03-01 10:00:{k:02}"}
    for k in range(COUNT)
]
# What readers and decoders say to those who call them, not to those who wrote the file.
RAW = (
    "Traceback",
    "INTERNAL",
    "strict_mode",
    "ignore_errors=",
    "null_padding",
    "store_rejects",
    "Python Proxy",
    "KeyError",
)


def csv_row(row: dict[str, Any]) -> str:
    quoted = row["s"].replace('"', '""')
    return f'{row["k"]},"{quoted}",{row["d"]},{row["ts"]}'


def csv_text(end: str = "\n") -> str:
    return "".join(csv_row(row) + end for row in ROWS)


def json_text(**more: Any) -> str:
    return "".join(json.dumps({**r, **more}, ensure_ascii=False) + "\n" for r in ROWS)


def written_parquet(path: Path) -> None:
    columns = {name: [r[name] for r in ROWS] for name in ROWS[0]}
    times = pa.array(columns.pop("ts")).cast(pa.timestamp("us"))
    pq.write_table(pa.table(columns).append_column("ts", times), path, row_group_size=15, compression="snappy")


def written_avro(codec: str) -> Callable[[Path], None]:
    schema = record(
        field("k", "long"), field("s", ["null", "string"]), field("d", ["null", "double"]), field("ts", "string")
    )

    def write(path: Path) -> None:
        avro(path, schema, *ROWS, codec=codec, block=200)

    return write


def written(body: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(body)

    return write


def text(content: str) -> Callable[[Path], None]:
    return written(content.encode())


def packed(content: str) -> Callable[[Path], None]:
    return written(gzip.compress(content.encode(), mtime=0))


DEBEZIUM = "".join(json.dumps({"before": None, "after": r, "op": "c"}, ensure_ascii=False) + "\n" for r in ROWS)
OPERATIONS = {"changelog.op-column": "op"}
# By name: the format, what writes a file, and further options.
KINDS: dict[str, tuple[str, Callable[[Path], None], dict[str, str]]] = {
    "csv": ("csv", text(csv_text()), {}),
    "csv-of-windows": ("csv", text(csv_text("\r\n")), {}),
    "csv-header": ("csv", text("k,s,d,ts\n" + csv_text()), {"csv.header": "true"}),
    "csv-gz": ("csv", packed(csv_text()), {}),
    "json": ("json", text(json_text()), {}),
    "json-gz": ("json", packed(json_text()), {}),
    "json-changes": ("json", text(json_text(op="I")), OPERATIONS),
    "debezium-json": ("debezium-json", text(DEBEZIUM), {}),
    "avro": ("avro", written_avro("null"), {}),
    "avro-deflate": ("avro", written_avro("deflate"), {}),
    "parquet": ("parquet", written_parquet, {}),
    "raw": ("raw", text(csv_text()), {}),
    "raw-gz": ("raw", packed(csv_text()), {}),
}


def damaged(body: bytes, random: Random) -> bytes:
    """Return bytes with one thing done to them, sometimes two."""
    found = bytearray(body)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(found) + 1)
        end = min(len(found), at + random.choice((1, 2, 8, 60)))
        match random.randrange(6):
            case 0:
                found[at:end] = bytes(random.randrange(256) for _ in range(end - at))
            case 1:
                found[at:end] = b""
            case 2:
                found[at:at] = found[at:end]
            case 3:
                del found[at:]
            case 4:
                found[at:at] = random.choice(
                    (b'"', b"\r", b"\n", b"\r\n", b"\0", b"\xff", b",", b"}", b"9", b"\\", b"e9")
                )
            case _:
                if at < len(found):
                    found[at] ^= 1 << random.randrange(8)
    return bytes(found)


def table(kind: str, path: Path, *, keeps: bool) -> str:
    form, _, more = KINDS[kind]
    options = {key.replace(".", "__").replace("-", "_"): value for key, value in more.items()}
    if keeps:
        options[f"{form.replace('-', '_')}__errors_to"] = "bad"
    columns = "line STRING" if form == "raw" else f"{COLUMNS}{', op STRING' if 'op' in str(more) else ''}"
    return declared(columns, form, **options)


def opened(kind: str, path: Path, *, keeps: bool) -> Stream:
    return copying(table(kind, path, keeps=keeps), "line STRING" if KINDS[kind][0] == "raw" else "k BIGINT, s STRING")


def check_error(error: SqlStreamError, path: Path) -> None:
    said = f"{error.message}\n{error.detail}\n{error.hint}"
    assert str(path) in error.message, said
    assert not [word for word in RAW if word in said], said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + EXAMPLES))
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_by_name(tmp_path: Path, kind: str, seed: int) -> None:
    path = tmp_path / f"a.{kind.replace('-gz', '.gz')}"
    KINDS[kind][1](path)
    path.write_bytes(damaged(path.read_bytes(), Random(f"{kind} {seed}")))
    for keeps in (False, True):
        with opened(kind, path, keeps=keeps) as stream:
            try:
                feed(stream, path)
            except SqlStreamError as error:
                check_error(error, path)
                continue
            if keeps:
                check_kept(stream, kind, path)


def check_kept(stream: Stream, kind: str, path: Path) -> None:
    """Check that each row whose text nothing has happened to is read, or stands in that of a malformed row."""
    kept = [text.replace("\r\n", "\n") for (text,) in stream.query("SELECT text FROM bad")]
    assert malformed_count(stream) == len(kept)
    rows = stream.rows("out")
    form = KINDS[kind][0]
    if form in ("parquet", "avro"):
        return
    try:
        body = gzip.decompress(path.read_bytes()) if kind.endswith("-gz") else path.read_bytes()
    except gzip.BadGzipFile:
        # The sum of the text, at the end, is nothing that readers look at.
        return
    there = "\n" + body.decode(errors="replace").replace("\r\n", "\n") + "\n"
    for row, line in texts_of(kind):
        if f"\n{line}\n" in there and row not in rows:
            # A quote before it may have made it a part of something else, and its lines those of two.
            found = [*kept, *map(str, rows)]
            assert all(any(part in text for text in found) for part in line.split("\n")), line


def texts_of(kind: str) -> list[tuple[tuple[Any, ...], str]]:
    """Return the rows that a file has, each with its text."""
    form = KINDS[kind][0]
    if form == "raw":
        return [((line,), line) for line in csv_text().splitlines()]
    lines = [csv_row(row) for row in ROWS] if form == "csv" else json_texts(kind).splitlines()
    return [((row["k"], row["s"]), line) for row, line in zip(ROWS, lines, strict=True)]


def json_texts(kind: str) -> str:
    return DEBEZIUM if kind == "debezium-json" else json_text(op="I") if kind == "json-changes" else json_text()
