"""Files of format raw: lines as they are, compressed or not, and those that are no text."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import BindError, DataError, SqlStreamError, UnsupportedError
from sqlstream.testing import Stream

SCRIPT = """
CREATE TABLE lines ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'raw'{more});
CREATE TABLE out ({out}); INSERT INTO out SELECT * FROM lines
"""


def read(path: Path, columns: str = "line STRING", out: str = "line STRING", more: str = "") -> list[Any]:
    with Stream(SCRIPT.format(columns=columns, path=path, out=out, more=more)) as stream:
        stream.finish()
        rows = sorted(stream.rows("out"), key=str)
        errors = stream.query("SELECT row_number, text, reason FROM wrong") if "errors-to" in more else []
        return [*rows, *errors]


def test_lines_are_rows(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"\xef\xbb\xbffirst\r\n\n  {\"a\": 1}, \x01'x'\nz\xc3\xbcrich")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"packed\n"))
    (tmp_path / "empty.log").write_bytes(b"")
    assert sorted(read(tmp_path)) == [("",), ("  {\"a\": 1}, \x01'x'",), ("first",), ("packed",), ("zürich",)]


def test_bytes_and_metadata(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.log").write_bytes(b"\x00\xff\na\n")
    columns = "line BYTES, n BIGINT METADATA FROM 'row-number', f STRING METADATA FROM 'file.name'"
    assert read(tmp_path, columns, "line BYTES, n BIGINT, f STRING") == [(b"\x00\xff", 0, "a.log"), (b"a", 1, "a.log")]
    script = SCRIPT.replace("WITH", "PARTITIONED BY (day) WITH")
    with (
        Stream(
            script.format(columns="line STRING, day INT", path=tmp_path, out="line STRING, day INT", more="")
        ) as stream,
        pytest.raises(DataError, match=r'line 1 of file ".*a.log" of table "lines" is malformed'),
    ):
        stream.finish()


def test_a_line_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n\n\xff\xfe\ntwo\n")
    with pytest.raises(DataError, match=r'line 3 of file ".*a.log" of table "lines" is malformed') as raised:
        read(tmp_path)
    assert "raw.ignore-parse-errors" in (raised.value.hint or "")
    assert read(tmp_path, more=", 'raw.ignore-parse-errors' = 'true'") == [("",), ("one",), ("two",)]
    kept = read(tmp_path, more=", 'raw.errors-to' = 'wrong'")
    assert kept[3:] == [(3, "\ufffd\ufffd", "The bytes are no text")]


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (
        "sqlstream.duck.text_files",
        "sqlstream.connectors.formats.raw_lines",
        "sqlstream.connectors.formats.faults",
    ):
        monkeypatch.setattr(f"{module}.LIMIT", 1000)
    (tmp_path / "a.log").write_bytes(b"one\n" + b"x" * 1001 + b"\ntwo\n")
    with pytest.raises(DataError, match="line 2 of file"):
        read(tmp_path)
    assert read(tmp_path, more=", 'raw.ignore-parse-errors' = 'true'") == [("one",), ("two",)]


def test_a_file_that_is_not_compressed_as_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"packed\n" * 1000)[:-20])
    with pytest.raises(SqlStreamError, match=r'file ".*a.gz" of table "lines" is incomplete, or not compressed'):
        read(tmp_path)


def test_what_raw_files_cannot_be(tmp_path: Path) -> None:
    for columns in ("a STRING, b STRING", "n INT"):
        with pytest.raises(BindError, match='format "raw" holds one column, a STRING or BYTES, not'):
            read(tmp_path, columns)
    script = f"""CREATE TABLE t (line STRING); CREATE TABLE o (line STRING)
    WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'raw'); INSERT INTO o SELECT * FROM t"""
    with pytest.raises(UnsupportedError, match="writing files of format raw"):
        Stream(script)


def test_lines_of_files_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "blocked.txt").write_text("ann\nbob\n")
    script = f"""CREATE TABLE t (name STRING, p AS PROCTIME()); CREATE TABLE out (name STRING);
    CREATE TABLE blocked (name STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'raw');
    INSERT INTO out SELECT t.name FROM t JOIN blocked FOR SYSTEM_TIME AS OF t.p AS b ON b.name = t.name"""
    with Stream(script) as stream:
        stream.batch("t", [("ann",), ("eve",)])
        assert stream.rows() == [("ann",)]
