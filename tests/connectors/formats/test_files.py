"""What holds for files of any format: their names, what is missing or not whole, and the options of their tables."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.formats.faults import translate
from sqlstream.connectors.formats.reading import read
from sqlstream.connectors.tables import validate
from sqlstream.errors import BindError
from tests.connectors.formats.reading_files import Con, failure, parquet, rows, split, table, write


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("header", ["true", "false"])
def test_a_file_that_vanished_is_named(con: Con, tmp_path: Path, format: str, header: str) -> None:
    declared = table(format, {"a": "BIGINT"}, header=header)
    error = failure(con, declared, split(tmp_path / "gone[1].x"))
    assert error.message == f'file "{tmp_path}/gone[1].x" of table "t" disappeared after it was listed'
    assert error.hint == "Put it back and run the job again; it continues after its last committed batch."


@pytest.mark.parametrize("name", ["a[1].x", "b*.x", "c?.x", "it's.x", "{x,y}.x", "back\\slash.x", "k=5/d.x", "ü ü.x"])
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_any_file_name_names_one_file(con: Con, tmp_path: Path, format: str, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for other in ("a1.x", "b2.x", "c3.x"):
        (tmp_path / other).write_text("not to be read")
    if format == "parquet":
        file = parquet(path, {"k": pa.array([1])})
    else:
        file = write(path, '{"k": 1}\n' if format == "json" else "1\n")
    assert rows(con, table(format, {"k": "BIGINT"}), file) == [(1,)]


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("ignore", ["true", "false"])
def test_truncated_and_wrongly_named_compression(con: Con, tmp_path: Path, format: str, ignore: str) -> None:
    declared = table(format, {"a": "BIGINT"}, ignore_parse_errors=ignore)
    text = os.urandom(20_000).hex().encode() + b"\n"
    for name, data in (("cut.gz", gzip.compress(text)[:-200]), ("plain.gz", b"1\n")):
        file = write(tmp_path / name, data)
        assert failure(con, declared, file).message == (
            f'file "{file.path}" of table "t" is incomplete, or not compressed as its name says'
        )


def test_an_error_of_something_else_is_not_ours(con: Con, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "1\n")
    with pytest.raises(duckdb.Error) as raised:
        con.execute("SELECT error('x')")
    assert translate(raised.value, [file], table("csv", {"a": "BIGINT"})) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(con: Con, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "1\n")
    (tmp_path / "a.csv").chmod(0)
    assert failure(con, table("csv", {"a": "BIGINT"}), file).message.startswith("no permission to read file")


def test_no_splits_give_no_rows(con: Con) -> None:
    relation = con.sql(read(con, [], table("json", {"a": "BIGINT", "b": "DECIMAL(5,2)"})).sql)
    assert (relation.columns, [str(t) for t in relation.types]) == (["a", "b"], ["BIGINT", "DECIMAL(5,2)"])
    assert relation.fetchall() == []


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"path": ""}, 'table "t" needs the option "path"', "Write it into WITH (..): 'path' = 'data/'."),
        ({"format": "jsn"}, 'table "t": format "jsn" does not exist', 'did you mean "json"?'),
        (
            {"csv.haeder": "true"},
            'table "t": option "csv.haeder" does not exist for format "csv"',
            'did you mean "csv.header"?',
        ),
        ({"csv.header": "yes"}, 'table "t": option "csv.header": "yes" is not true or false', None),
        ({"csv.quote-character": "''"}, """table "t": option "csv.quote-character": "''" is not one character""", None),
        (
            {"source.monitor-interval": "soon"},
            'table "t": option "source.monitor-interval": "soon" is not a duration, such as 500 ms, 1 s, 2 min, 1 h or 1 d',
            None,
        ),
        (
            {"source.max-bytes-per-batch": "big"},
            'table "t": option "source.max-bytes-per-batch": "big" is not a size, such as 64 kb, 128 MB or 1 GiB',
            None,
        ),
        (
            {"source.max-files-per-batch": "0"},
            'table "t": option "source.max-files-per-batch": "0" is not a whole number of at least 1',
            None,
        ),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str, hint: str | None) -> None:
    declared = table("csv", {"a": "BIGINT"})
    wrong = Table("t", declared.columns, options={**declared.options, **options})
    with pytest.raises(BindError) as raised:
        validate(wrong)
    assert (raised.value.message, raised.value.hint) == (message, hint)


def test_every_option_is_accepted() -> None:
    options = {
        "source.monitor-interval": "1 s",
        "source.max-files-per-batch": "10",
        "source.max-bytes-per-batch": "64mb",
        "csv.header": "TRUE",
        "csv.field-delimiter": "\\t",
        "csv.quote-character": "",
        "csv.escape-character": "\\",
        "csv.null-literal": "N/A",
        "csv.ignore-parse-errors": "false",
    }
    declared = table("CSV", {"a": "BIGINT"})
    validate(Table("t", declared.columns, options={**declared.options, **options}))
