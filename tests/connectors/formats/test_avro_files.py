"""Avro's container files as tables: every type, blocks, schemas that differ, damage; and as sinks, for other readers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pytest

from sqlstream import Session
from sqlstream.catalog import Column, Table
from sqlstream.connectors.filesystem.inference import columns_of_files
from sqlstream.connectors.formats.avro import containers, decoding
from sqlstream.connectors.formats.avro.containers import AvroContainer
from sqlstream.connectors.formats.avro.written_files import check_columns
from sqlstream.connectors.formats.faults import place
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.reading import read
from sqlstream.duck.errors import translate
from sqlstream.duck.internal_columns import ROW
from sqlstream.errors import BindError, DataError
from sqlstream.testing import Stream
from tests.connectors.formats.reading_files import Con, failure, rows, split, table, write
from tests.connectors.formats.test_avro import IGNORED, SIMPLE, TYPES, UNFIT, below, field, record


def avro(path: Path, schema: Any, *values: dict[str, Any], codec: str = "null", block: int = 16_000) -> FileSplit:
    with path.open("wb") as file:
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        fastavro.writer(file, parsed, values, codec, sync_interval=block)
    return split(path)


@pytest.fixture(params=[True, False], ids=["polars", "fastavro"])
def _each_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(decoding, "has_polars", lambda: False)


@pytest.mark.usefixtures("_each_decoder")
def test_every_type_is_read_from_files(con: Con, tmp_path: Path) -> None:
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    for number, (type_, declared, written, expected) in enumerate(TYPES):
        file = avro(tmp_path / f"{number}.avro", record(field("x", type_), name=f"R{number}"), {"x": written})
        assert rows(con, table("avro", {"X": declared}), file) == [(expected,)], type_


@pytest.mark.usefixtures("_each_decoder")
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_files_are_read_some_blocks_at_a_time(
    con: Con, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    values = [{"k": k, "s": f"s{k}" * 10} for k in range(1000)]
    file = avro(tmp_path / "a.avro", SIMPLE, *values, codec=codec, block=500)
    other = avro(tmp_path / "b.avro", SIMPLE, {"k": -1, "s": None}, codec=codec)
    monkeypatch.setattr(containers, "CHUNK_BYTES", 2000)
    sizes = [len(body) for _, body in AvroContainer.of(file.path).chunks()]
    assert len(sizes) > 3
    assert max(sizes) < 4000
    declared = table("avro", {"k": "BIGINT", "s": "VARCHAR"})
    plan = read(con, [file, other], declared)
    expected = [*((v["k"], v["s"]) for v in values), (-1, None)]
    # The stream begins again.
    for _ in range(2):
        assert con.execute(plan.sql).fetchall() == expected
    plan.forget(con)
    numbered = Table("t", (*declared.columns, ROW), options=declared.options)
    assert rows(con, numbered, file, other, columns=["k", ROW.name])[-2:] == [(999, 999), (-1, 0)]
    assert place(file, declared, [1, 1000]) == {
        1: (1, '{"k":0,"s":"' + "s0" * 10 + '"}'),
        1000: (1000, '{"k":999,"s":"' + "s999" * 10 + '"}'),
    }


def stored(path: Path, schema: Any, below_schema: Any, *values: dict[str, Any]) -> FileSplit:
    """Write a file whose header has another schema than the one with which its blocks are written."""
    file = avro(path, below_schema, *values)
    written = AvroContainer.of(file.path)
    blocks = path.read_bytes()[len(written.head) :]
    return write(path, decoding._file(schema, blocks, "null", written.sync))


@pytest.mark.usefixtures("_each_decoder")
def test_logical_types_that_do_not_fit_are_ignored_in_files(con: Con, tmp_path: Path) -> None:
    for number, (type_, declared, value) in enumerate(IGNORED):
        schema, below_schema = (record(field("k", "int"), field("x", t)) for t in (type_, below(type_)))
        file = stored(tmp_path / f"{number}.avro", schema, below_schema, {"k": 1, "x": value})
        assert rows(con, table("avro", {"k": "INTEGER"}), file) == [(1,)], type_
        assert rows(con, table("avro", {"x": declared}), file) == [(value,)], type_


@pytest.mark.usefixtures("_each_decoder")
def test_a_value_that_does_not_fit_costs_its_file_only_if_a_column_names_it(con: Con, tmp_path: Path) -> None:
    for number, (type_, declared, value, expected) in enumerate(UNFIT):
        schema, below_schema = (record(field("k", "int"), field("x", t)) for t in (type_, below(type_)))
        file = stored(tmp_path / f"{number}.avro", schema, below_schema, {"k": 1, "x": value}, {"k": 2, "x": value})
        assert rows(con, table("avro", {"k": "INTEGER", "y": "DATE"}), file) == [(1, None), (2, None)], type_
        assert rows(con, table("avro", {"k": "INTEGER", "x": declared}), file, columns=[]) == [(1,), (1,)], type_
        named = table("avro", {"x": declared})
        if expected is None:
            assert "is damaged" in failure(con, named, file).message, type_
        else:
            assert rows(con, named, file) == [(expected,), (expected,)], type_


def test_a_field_without_a_type_cannot_be_a_column(con: Con, tmp_path: Path) -> None:
    file = avro(tmp_path / "u.avro", record(field("k", "int"), field("u", ["string", "int"])), {"k": 1, "u": "x"})
    assert rows(con, table("avro", {"k": "INTEGER"}), file) == [(1,)]
    error = failure(con, table("avro", {"k": "INTEGER", "U": "VARCHAR"}), file)
    assert error.message == f'column "u" of file "{file.path}" of table "t" has no type in SQL'


@pytest.mark.usefixtures("_each_decoder")
def test_a_block_that_is_damaged_costs_the_whole_blocks_of_its_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = avro(tmp_path / "a.avro", SIMPLE, *({"k": k, "s": "x" * 90} for k in range(100)), block=500)
    whole = AvroContainer.of(file.path)
    monkeypatch.setattr(containers, "CHUNK_BYTES", 2000)
    counts = [count for count, _ in whole.chunks()]
    assert len(counts) > 3
    Path(file.path).write_bytes(Path(file.path).read_bytes()[:-1])
    found, chunks = list[int](), whole.chunks()
    with pytest.raises(containers.DamagedContainer):
        found.extend(count for count, _ in chunks)
    assert found == counts[:-1]


def test_columns_go_by_name_and_files_may_differ(con: Con, tmp_path: Path) -> None:
    older = avro(tmp_path / "1.avro", record(field("k", "int"), field("gone", "string")), {"k": 1, "gone": "x"})
    newer = avro(tmp_path / "2.avro", record(field("S", ["null", "string"]), field("k", "long")), {"k": 2, "S": "y"})
    declared = table("avro", {"k": "BIGINT", "s": "VARCHAR", "later": "DATE"})
    assert rows(con, declared, older, newer) == [(1, None, None), (2, "y", None)]
    error = failure(con, table("avro", {"k": "INTEGER"}), older, newer)
    assert error.message == f'column "k" of file "{newer.path}" of table "t" is BIGINT, which does not fit INTEGER'
    error = failure(con, table("avro", {"z": "INTEGER"}), older)
    assert error.message == f'file "{older.path}" of table "t" has none of the columns of the table'


def test_the_columns_of_the_first_file(tmp_path: Path) -> None:
    address = record(field("street", "string"), name="Address")
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(field("k", "long"), field("home", address), field("at", ["null", moment]))
    avro(tmp_path / "a.avro", schema)
    declared = table("avro", {})
    found = columns_of_files(Table("t", (), options={**declared.options, "path": str(tmp_path)}), "/")
    expected = [("k", "BIGINT"), ("home", "STRUCT(street VARCHAR)"), ("at", "TIMESTAMP WITH TIME ZONE")]
    assert [(c.name, c.type) for c in found] == expected


@pytest.mark.usefixtures("_each_decoder")
def test_files_that_are_not_whole(con: Con, tmp_path: Path) -> None:
    declared = table("avro", {"k": "BIGINT", "s": "VARCHAR"}, ignore_parse_errors="true")
    whole = avro(tmp_path / "whole.avro", SIMPLE, *({"k": k, "s": "some text"} for k in range(100)), block=300)
    data = Path(whole.path).read_bytes()
    head = len(AvroContainer.of(whole.path).head)
    for name, body, message, detail in (
        ("none", b"PAR1" * 10, "is not an Avro file, or an incomplete one", "It does not begin as one."),
        ("header", data[: head - 20], "is not an Avro file, or an incomplete one", "Its header is cut off or damaged."),
        ("cut", data[:-5], "is damaged", "is cut off or damaged"),
        ("length", data[:head] + b"\x02" + b"\xfe" * 9 + b"\x01" + data[head:], "is damaged", "is cut off or damaged"),
        ("sync", data[: head + 100] + b"x" + data[head + 101 :], "is damaged", None),
        ("rows", data[:head] + b"\x04\x04\x02\x02" + data[head - 16 : head], "is damaged", None),
        # The count of a block: for so many rows polars would ask for memory that there is not, and the process would end.
        ("count", data[:head] + decoding._long(1 << 46) + b"\x04\x02\x02" + data[head - 16 : head], "is damaged", None),
        ("empty", b"", "is not an Avro file, or an incomplete one", "It does not begin as one."),
    ):
        file = write(tmp_path / f"{name}.avro", body)
        if name == "sync":
            file = write(tmp_path / f"{name}.avro", data[:-16] + b"-" * 16)
            detail = "does not end as blocks of this file do"
        error = failure(con, declared, whole, file)
        assert error.message == f'file "{file.path}" of table "t" {message}', name
        assert (detail or "") in str(error.detail), name
    assert len(rows(con, declared, whole)) == 100


WRITTEN = """
CREATE TABLE given (k BIGINT, s STRING, m MAP<STRING, INT>, h DECIMAL(20, 0), day DATE);
CREATE TABLE files (k BIGINT, s STRING, m MAP<STRING, INT>, h DECIMAL(20, 0), day DATE) PARTITIONED BY (day)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'avro'{more});
INSERT INTO files SELECT * FROM given;
"""


@pytest.mark.parametrize("codec", ["deflate", "xz"])
def test_others_read_what_is_written(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "out"
    with Stream(WRITTEN.format(path=path, more=f", 'avro.codec' = '{codec}'")) as stream:
        stream.batch("given", [(1, "a", {"x": 1}, 12, "2026-03-01"), (2, None, None, None, None)])
        stream.restart()
        stream.batch("given", [(3, "ü", {}, -5, "2026-03-01")])
    found: dict[str, list[Any]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            assert file.suffix == ".avro"
            with file.open("rb") as opened:
                reader = fastavro.reader(opened)
                assert reader.metadata["avro.codec"] == codec
                found[file.parent.name] = [*found.get(file.parent.name, []), *reader]
    assert found == {
        "day=2026-03-01": [
            {"k": 1, "s": "a", "m": {"x": 1}, "h": 12},
            {"k": 3, "s": "ü", "m": {}, "h": -5},
        ],
        "day=__HIVE_DEFAULT_PARTITION__": [{"k": 2, "s": None, "m": None, "h": None}],
    }


def test_columns_that_avro_does_not_have_are_refused(tmp_path: Path) -> None:
    script = WRITTEN.replace("s STRING", "s INTERVAL").format(path=tmp_path / "out", more="")
    with pytest.raises(BindError, match="Avro has no type for INTERVAL"):
        Stream(script)
    schema = json.dumps(record(field("k", "int")))
    given = Table("t", (Column("k", "BIGINT"),), options={"path": "x", "format": "avro", "avro.schema": schema})
    with pytest.raises(BindError, match='column "k" of table "t" is BIGINT, which does not fit INTEGER'):
        check_columns(given)
    with pytest.raises(DataError, match="is no Avro schema"):
        check_columns(replace(given, options={**given.options, "avro.schema": "{"}))


def test_a_state_query_reads_the_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    schema = record(field("op", "string"), field("k", "long"), field("s", ["null", "string"]))
    changes = [("I", 1, "a"), ("I", 2, "b"), ("D", 1, None), ("U", 2, "c")]
    avro(tmp_path / "in" / "a.avro", schema, *({"op": o, "k": k, "s": s} for o, k, s in changes))
    given = "'connector' = 'filesystem', 'path' = 'in', 'format' = 'avro'"
    with Session(str(tmp_path)) as session:
        session.sql(f"CREATE TABLE raw_rows WITH ({given})")
        session.sql(
            f"CREATE TABLE t (k BIGINT, s STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ({given}, 'changelog.op-column' = 'op')"
        )
        assert session.query("SELECT count(*), sum(k) FROM raw_rows").fetchall() == [(4, 6)]
        assert session.query("SELECT k, t.s FROM t JOIN raw_rows USING (k) WHERE op = 'U'").fetchall() == [(2, "c")]
        [file] = (tmp_path / "in").iterdir()
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(duckdb.Error) as raised:
            session.query("SELECT * FROM raw_rows").fetchall()
        error = translate(raised.value, "SELECT * FROM raw_rows")
        assert error.message == f'file "{file}" is damaged'
        assert re.fullmatch(r"The block at byte \d+ is cut off or damaged\.", str(error.detail))
