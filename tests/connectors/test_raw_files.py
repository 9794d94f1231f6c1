"""Files of format raw: lines as they are, compressed or not, numbers, and lines that are none of the column's type."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import BindError, DataError, SqlStreamError
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
    for columns in ("a STRING, b STRING", "n DECIMAL(10, 2)", "ts TIMESTAMP(3)"):
        with pytest.raises(BindError, match='format "raw" holds one column, a number, BOOLEAN, STRING or BYTES, not'):
            read(tmp_path, columns)
    with pytest.raises(BindError, match='files in charset "UTF-16" have no lines of format "raw"'):
        read(tmp_path, more=", 'raw.charset' = 'UTF-16'")
    for more in ("'raw.charset' = 'rot13'", "'raw.charset' = 'none'", "'raw.endianness' = 'middle'"):
        with pytest.raises(BindError, match=r"is no charset|is neither big-endian nor little-endian"):
            read(tmp_path, more=f", {more}")


NUMBERS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 10, 127],
    "SMALLINT": [-(2**15), 10, 2570],
    "INT": [-(2**31), 10, 0x0A0A0A0A, 2**31 - 1],
    "BIGINT": [-(2**63), 10, 0x0A0A0A0A0A0A0A0A, 2**63 - 1],
    "FLOAT": [-1.5, 0.0, 2.0**100],
    "DOUBLE": [-1.5, 0.0, 1e300],
    "STRING": ["", "a", "zürich"],
    "BYTES": [b"", b"\x00\xff"],
}


def write(path: Path, kind: str, values: list[Any], more: str = "") -> list[bytes]:
    """Write values into files with a job; return the contents of the files."""
    script = f"""CREATE TABLE given (v {kind}); CREATE TABLE o (v {kind})
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'raw'{more}); INSERT INTO o SELECT v FROM given"""
    with Stream(script) as stream:
        stream.batch("given", [(value,) for value in values])
    return [file.read_bytes() for file in path.glob("*.raw")]


@pytest.mark.parametrize("more", ["", ", 'raw.endianness' = 'little-endian', 'raw.charset' = 'ISO-8859-1'"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_written_values_are_read_back(tmp_path: Path, kind: str, more: str) -> None:
    values = NUMBERS[kind]
    write(tmp_path, kind, values, more)
    assert read(tmp_path, f"v {kind}", f"v {kind}", more) == sorted(((v,) for v in values), key=str)


def test_the_bytes_of_a_line_are_those_of_flink(tmp_path: Path) -> None:
    """The bytes are those of java.nio.ByteBuffer, whose first byte is the most significant one."""
    little = ", 'raw.endianness' = 'little-endian'"
    assert write(tmp_path / "a", "INT", [258]) == [b"\x00\x00\x01\x02\n"]
    assert write(tmp_path / "b", "INT", [258], little) == [b"\x02\x01\x00\x00\n"]
    assert write(tmp_path / "c", "DOUBLE", [1.5]) == [b"\x3f\xf8\x00\x00\x00\x00\x00\x00\n"]
    assert write(tmp_path / "d", "BOOLEAN", [True]) == [b"\x01\n"]
    assert write(tmp_path / "e", "STRING", ["zürich €"], ", 'raw.charset' = 'ISO-8859-1'") == [b"z\xfcrich ?\n"]


def test_lines_that_cannot_be_written(tmp_path: Path) -> None:
    for value, message in (
        (None, "is NULL"),
        ("a\nb", "contains the end of a line"),
        ("a\r", "contains the end of a line"),
    ):
        with pytest.raises(DataError, match=message):
            write(tmp_path, "STRING", [value])
    assert not list(tmp_path.glob("*.raw"))


def test_bytes_that_are_no_number(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x00\x00\x00\x07\n123456\n\x00\x00\x00\x0a")
    with pytest.raises(DataError, match=r'line 2 of file ".*a.bin" of table "lines" is malformed') as raised:
        read(tmp_path, "n INT", "n INT")
    assert raised.value.detail == "INTEGER has 4 bytes, and the value 6: 0x313233343536"
    kept = read(tmp_path, "n INT", "n INT", ", 'raw.errors-to' = 'wrong'")
    assert kept == [(10,), (7,), (2, "0x313233343536", "INTEGER has 4 bytes, and the value 6")]


def test_lines_of_files_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "blocked.txt").write_text("ann\nbob\n")
    script = f"""CREATE TABLE t (name STRING, p AS PROCTIME()); CREATE TABLE out (name STRING);
    CREATE TABLE blocked (name STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'raw');
    INSERT INTO out SELECT t.name FROM t JOIN blocked FOR SYSTEM_TIME AS OF t.p AS b ON b.name = t.name"""
    with Stream(script) as stream:
        stream.batch("t", [("ann",), ("eve",)])
        assert stream.rows() == [("ann",)]
