"""Compressed files that are cut off, or are not what their names say: jobs and queries name the file, and say what to do."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

from sqlstream import Session
from sqlstream.connectors.formats.zstd_frames import frames_fault
from sqlstream.duck.errors import translate
from sqlstream.errors import DataError, SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.test_malformed import declared, feed

COUNT = 3_000
NAMES = [f"{Random(7).getrandbits(120) + n:030x}" for n in range(COUNT)]
COLUMNS = "k BIGINT, s STRING"
TEXTS = {
    "csv": "".join(f"{k},{name}\n" for k, name in enumerate(NAMES)),
    "csv header": "".join(["k,s\n", *(f"{k},{name}\n" for k, name in enumerate(NAMES))]),
    "json": "".join(json.dumps({"k": k, "s": name}) + "\n" for k, name in enumerate(NAMES)),
    "debezium-json": "".join(json.dumps({"op": "c", "after": {"k": k, "s": s}}) + "\n" for k, s in enumerate(NAMES)),
    "raw": "".join(f"{name}\n" for name in NAMES),
}


def zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd}
CUT, OTHERWISE = "It ends within its compressed data.", "It does not begin as such a file does."
# What is done to a file, and what is said of it, where that does not depend on what reads it.
DAMAGES: dict[str, tuple[Callable[[bytes, bytes], bytes], str | None]] = {
    "cut": (lambda packed, text: packed[: len(packed) // 2], CUT),
    "last bytes": (lambda packed, text: packed[:-9], CUT),
    "first bytes": (lambda packed, text: packed[:5], None),
    "not packed": (lambda packed, text: text, OTHERWISE),
}


def write(folder: Path, kind: str, packing: str, damage: str) -> Path:
    folder.mkdir(exist_ok=True)
    text = TEXTS[kind].encode()
    path = folder / f"a.{kind.partition(' ')[0]}.{packing}"
    path.write_bytes(DAMAGES[damage][0](PACKED[packing](text), text))
    return path


def options_of(kind: str) -> tuple[str, dict[str, str]]:
    """Return the columns of a kind, and its further options."""
    columns = {"raw": "s STRING", "debezium-json": f"{COLUMNS}, PRIMARY KEY (k) NOT ENFORCED"}.get(kind, COLUMNS)
    return columns, {"csv__header": "true"} if kind == "csv header" else {}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_job_names_the_file(tmp_path: Path, kind: str, packing: str, damage: str) -> None:
    path, (columns, more) = write(tmp_path / "in", kind, packing, damage), options_of(kind)
    for skips in (False, True):
        form = kind.partition(" ")[0]
        skipping = {f"{form.replace('-', '_')}__ignore_parse_errors": "true"} if skips else {}
        table = declared(columns, form, **more, **skipping)
        with Stream(f"{table} CREATE TABLE out (s STRING); INSERT INTO out SELECT s FROM t") as stream:
            with pytest.raises(DataError) as failed:
                feed(stream, path)
            check(failed.value, f'file "{path}" of table "t"', damage)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_query_names_the_file(tmp_path: Path, kind: str, packing: str, damage: str) -> None:
    path, (columns, more) = write(tmp_path / "in", kind, packing, damage), options_of(kind)
    with Session(str(tmp_path)) as session:
        session.sql(declared(columns, kind.partition(" ")[0], **more))
        with pytest.raises((SqlStreamError, duckdb.Error)) as failed:
            session.query("SELECT count(s) FROM t").fetchall()
        error = failed.value
        check(error if isinstance(error, SqlStreamError) else translate(error, "SELECT"), f'file "{path}"', damage)


def check(error: SqlStreamError, file: str, damage: str) -> None:
    assert error.message.startswith(file)
    assert error.message.endswith("is incomplete, or not compressed as its name says")
    assert error.detail == (DAMAGES[damage][1] or error.detail)
    assert error.detail in (CUT, OTHERWISE)
    assert "rename them when they are complete" in str(error.hint)


@pytest.mark.parametrize("kind", ["csv", "json", "debezium-json"])
def test_other_compressions_are_said_to_be_others(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"a.{kind}.bz2"
    path.write_bytes(bz2.compress(TEXTS[kind].encode()))
    columns, more = options_of(kind)
    table, errors = declared(columns, kind, **more), list[SqlStreamError]()
    with Stream(f"{table} CREATE TABLE out (s STRING); INSERT INTO out SELECT s FROM t") as stream:
        with pytest.raises(DataError) as failed:
            feed(stream, path)
        errors.append(failed.value)
    with Session(str(tmp_path)) as session:
        session.sql(table)
        with pytest.raises(duckdb.Error) as raised:
            session.query("SELECT count(s) FROM t").fetchall()
        errors.append(translate(raised.value, "SELECT"))
    for error in errors:
        assert error.message.startswith(f'file "{path}"')
        assert error.message.endswith("is compressed in a way that cannot be read")
        assert error.hint == "Compress them with gzip or zstd, under a name that ends with .gz or .zst."


@pytest.mark.parametrize("sizes", [[0], [1], [300_000], [10, 0, 200_000]])
def test_frames_of_zstd(tmp_path: Path, sizes: list[int]) -> None:
    """A file is whole if it ends where a frame does; frames may follow each other, with others to skip between."""
    random, path = Random(3), tmp_path / "a.zst"
    packed = [zstd(random.randbytes(size // 2) + b"x" * (size - size // 2)) for size in sizes]
    skipped = (0x184D2A53).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    ends = {0}
    body = b""
    for part in (*packed, skipped):
        body += part
        ends.add(len(body))
    for end in {*random.sample(range(len(body)), min(len(body), 60)), *(end - 1 for end in ends if end), *ends} - {0}:
        path.write_bytes(body[:end])
        assert (frames_fault(str(path)) is None) == (end in ends), end
