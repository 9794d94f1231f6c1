"""Files whose rows are changes: Debezium's envelopes, columns of operations, the order of files and rows, what is wrong."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.connectors.filesystem.splits import FileDiscovery
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.errors import DataError, SqlStreamError
from sqlstream.session.state_queries import snapshot
from sqlstream.testing import Stream

ENVELOPES = [
    {"before": None, "after": {"id": 1, "who": {"name": "ann"}, "price": 5}, "op": "c", "ts_ms": 7},
    {"after": {"id": 2, "who": {"name": "bob"}, "price": 7}, "op": "r", "source": {"table": "orders"}},
    {"before": {"id": 1, "who": {"name": "ann"}, "price": 5}, "after": {"id": 1, "who": None, "price": 6}, "op": "u"},
    {"before": {"id": 2, "who": {"name": "bob"}, "price": 7}, "after": None, "op": "d"},
    None,
]
OPTIONS = {"changelog--op_column": "op"}
COLUMNS = "id BIGINT, who ROW<name STRING>, price BIGINT"


def table(columns: str, path: object, form: str, **options: str) -> str:
    named = {"connector": "filesystem", "path": str(path), "format": form}
    given = {**named, **{k.replace("_", "-").replace("--", "."): v for k, v in options.items()}}
    return f"CREATE TABLE t ({columns}) WITH ({', '.join(f'{k!r} = {v!r}' for k, v in given.items())});"


def lines(path: Path, values: Sequence[object]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(v)}\n" for v in values))
    return path


def feed(stream: Stream, *paths: Path, mtimes: Sequence[int] | None = None) -> None:
    """Let every job read files in one batch; the last one is the first in the descriptor."""
    times = mtimes or range(len(paths))
    splits = [FileSplit(str(p), p.stat().st_size, t, i) for i, (p, t) in enumerate(zip(paths, times, strict=True))]
    for run in stream.runs.values():
        run.batch({0: splits})


def copied(declaration: str, columns: str = "id BIGINT, price BIGINT") -> Stream:
    names = ", ".join(c.split()[0] for c in columns.split(", "))
    return Stream(f"{declaration} CREATE TABLE out ({columns}); INSERT INTO out SELECT {names} FROM t")


def batch_rows(stream: Stream, project: Path) -> list[tuple[Any, ...]]:
    """Return the rows that a state query finds in the table."""
    found = stream.compiler.catalog.tables["t"]
    with duckdb.connect(config={"threads": 1}) as con:
        return sorted(con.execute(f"SELECT * FROM {snapshot(con, found, str(project)).relation}").fetchall())


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize("payload", [False, True])
def test_envelopes_are_changes(tmp_path: Path, key: str, payload: bool) -> None:
    values = [{"schema": {}, "payload": e} for e in ENVELOPES] if payload else ENVELOPES
    include = {"debezium_json--schema_include": "true"} if payload else {}
    with copied(table(COLUMNS + key, tmp_path, "debezium-json", **include)) as stream:
        feed(stream, lines(tmp_path / "a.json", values[:2]))
        assert sorted(stream.rows("out")) == [(1, 5), (2, 7)]
        feed(stream, lines(tmp_path / "b.json", values[2:]))
        assert stream.rows("out") == [(1, 6)]
        assert batch_rows(stream, tmp_path) == [(1, None, 6)]


def test_envelopes_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(e)}\n" for e in ENVELOPES).encode()))
    with copied(table(COLUMNS, tmp_path, "debezium-json")) as stream:
        feed(stream, path)
        assert stream.rows("out") == [(1, 6)]


def test_with_a_key_an_update_needs_no_row_before_it_and_a_key_may_change(tmp_path: Path) -> None:
    values = [
        {"after": {"id": 1, "price": 5}, "op": "c"},
        {"after": {"id": 2, "price": 5}, "op": "c"},
        {"after": {"id": 1, "price": 6}, "op": "u"},
        {"before": {"id": 2, "price": 5}, "after": {"id": 3, "price": 8}, "op": "u"},
        {"before": {"id": 1}, "op": "d"},
        {"before": {"id": 1}, "op": "d"},
    ]
    declared = table("id BIGINT, price BIGINT, PRIMARY KEY (id) NOT ENFORCED", tmp_path, "debezium-json")
    with copied(declared) as stream:
        feed(stream, lines(tmp_path / "a.json", values[:4]))
        assert sorted(stream.rows("out")) == [(1, 6), (3, 8)]
        feed(stream, lines(tmp_path / "b.json", values[4:]))
        assert stream.rows("out") == [(3, 8)]
        assert stream.query("SELECT absent_deletes, state_rows FROM sqlstream.operators") == [(1, 1)]
        assert batch_rows(stream, tmp_path) == [(3, 8)]


def test_a_key_may_have_a_name_that_needs_quotes(tmp_path: Path) -> None:
    values = [{"after": {"order": 1, "price": price}, "op": "u"} for price in (5, 6)]
    declared = table("`order` BIGINT, price BIGINT, PRIMARY KEY (`order`) NOT ENFORCED", tmp_path, "debezium-json")
    with Stream(
        f"{declared} CREATE TABLE out (id BIGINT, price BIGINT); INSERT INTO out SELECT `order`, price FROM t"
    ) as s:
        feed(s, lines(tmp_path / "a.json", values))
        assert s.rows("out") == [(1, 6)]
        assert batch_rows(s, tmp_path) == [(1, 6)]


def test_metadata_and_partitions_stand_beside_the_envelope(tmp_path: Path) -> None:
    columns = "id BIGINT, day DATE, n BIGINT METADATA FROM 'row-number', PRIMARY KEY (id, day) NOT ENFORCED"
    declared = table(columns, tmp_path, "debezium-json").replace(") WITH", ") PARTITIONED BY (day) WITH")
    values = [{"after": {"id": i}, "op": "c"} for i in (7, 8)] + [{"before": {"id": 7}, "op": "d"}]
    with copied(declared, "id BIGINT, day DATE, n BIGINT") as stream:
        feed(stream, lines(tmp_path / "day=2026-01-01" / "a", values), lines(tmp_path / "day=2026-01-02" / "a", values))
        found = [(id, str(day), n) for id, day, n in sorted(stream.rows("out"))]
        assert found == [(8, "2026-01-01", 1), (8, "2026-01-02", 1)]


WRONG: dict[str, tuple[object, str, str]] = {
    "operation": ({"op": "x", "after": {"id": 1}}, 'operation "x" is not one of c, r, u, d', ""),
    "truncate": ({"op": "t"}, 'operation "t" is not one of c, r, u, d', ""),
    "payload": (
        {"schema": {}, "payload": {"op": "c", "after": {"id": 1}}},
        'the envelope is in "payload": option debezium-json.schema-include must be true',
        "",
    ),
    "none": ({"after": {"id": 1}}, "operation NULL is not one of c, r, u, d", ""),
    "after": ({"op": "c", "before": {"id": 1}}, 'operation "c" has no row after it', ""),
    "before": ({"op": "d", "after": {"id": 1}}, 'operation "d" has no row before it', ""),
    "update": ({"op": "u", "after": {"id": 1}}, "an update has no row before it", "Declare the PRIMARY KEY"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_envelope_that_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    value, message, hint = WRONG[name]
    good = {"after": {"id": 0, "price": 0}, "op": "c"}
    path = lines(tmp_path / "a.json", [good, good, value, good])
    with copied(table("id BIGINT, price BIGINT", tmp_path, "debezium-json")) as stream:
        with pytest.raises(DataError) as error:
            feed(stream, path)
        assert error.value.message == f'row 3 of file "{path}" of table "t": {message}'
        assert (error.value.hint or "").startswith(hint)


def test_an_envelope_without_the_payload_that_it_should_be_in_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.json", [None, {"after": {"id": 1}, "op": "c"}])
    declared = table("id BIGINT", tmp_path, "debezium-json", **{"debezium_json--schema_include": "true"})
    wrong = 'row 2 of .*: the envelope is not in "payload": option debezium-json.schema-include must be false'
    with copied(declared, "id BIGINT") as stream, pytest.raises(DataError, match=wrong):
        feed(stream, path)


def test_lines_that_are_no_envelopes_are_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.json", [{"op": "c", "after": {"id": "x"}}])
    with copied(table("id BIGINT, price BIGINT", tmp_path, "debezium-json")) as stream:
        with pytest.raises(DataError) as error:
            feed(stream, path)
        assert error.value.message == f'line 1 of file "{path}" of table "t" is malformed'
        assert "'debezium-json.ignore-parse-errors'" in (error.value.hint or "")


def test_malformed_changes_are_skipped_and_counted(tmp_path: Path) -> None:
    values = [
        {"op": "c", "after": {"id": "x"}},
        {"op": "c", "after": {"id": 1, "price": 2}},
        *(value for name, (value, _, _) in WRONG.items() if name != "update"),
        None,
        {"op": "c", "after": {"id": 2, "price": 3}},
    ]
    ignore = {"debezium_json--ignore_parse_errors": "true"}
    with copied(table("id BIGINT, price BIGINT", tmp_path, "debezium-json", **ignore)) as stream:
        path = lines(tmp_path / "a.json", values)
        path.write_text(path.read_text() + "{\n")
        feed(stream, path)
        assert sorted(stream.rows("out")) == [(1, 2), (2, 3)]
        assert stream.runs["out"].commits.totals.sources["t"].malformed_rows == 8


OPERATIONS = [("I", 1, 5), ("+I", 2, 7), ("-u", 1, 5), ("U", 1, 6), ("D", 2, 7), ("i", 3, 1)]


def written(path: Path, form: str, rows: Sequence[tuple[Any, ...]], names: Sequence[str], *, header: bool) -> Path:
    path.parent.mkdir(exist_ok=True)
    records = [dict(zip(names, row, strict=True)) for row in rows]
    match form:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(records), path)
        case "json":
            lines(path, records)
        case _:
            texts = [",".join("" if v is None else str(v) for v in row) for row in rows]
            path.write_text("".join(f"{t}\n" for t in [*([",".join(names)] if header else []), *texts]))
    return path


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("form", ["parquet", "json", "csv", "csv with header"])
def test_a_column_of_operations_in_every_format(tmp_path: Path, form: str, declared: bool, key: str) -> None:
    form, _, header = form.partition(" ")
    if form == "csv" and not header and not declared:
        pytest.skip("it has no place then")
    options = {**OPTIONS, **({"csv--header": "true"} if header else {})}
    columns = f"{'op STRING, ' if declared else ''}id BIGINT, price BIGINT{key}"
    with copied(table(columns, tmp_path, form, **options)) as stream:
        feed(stream, written(tmp_path / "a", form, OPERATIONS, ["op", "id", "price"], header=bool(header)))
        assert sorted(stream.rows("out")) == [(1, 6), (3, 1)]
        assert batch_rows(stream, tmp_path) == [(1, 6), (3, 1)]


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_operations_that_do_not_exist(tmp_path: Path, form: str) -> None:
    rows = [*OPERATIONS[:2], ("x", 4, 4), (None, 5, 5), *OPERATIONS[2:]]
    path = written(tmp_path / "a", form, rows, ["op", "id", "price"], header=True)
    options = {**OPTIONS, **({"csv--header": "true"} if form == "csv" else {})}
    wrong = r'row 3 of file .* operation "x" is not one of I, U, B, D'
    declared = table("id BIGINT, price BIGINT", tmp_path, form, **options)
    with copied(declared) as stream, pytest.raises(DataError, match=wrong):
        feed(stream, path)
    if form == "parquet":
        return
    ignore = {f"{form}--ignore_parse_errors": "true"}
    with copied(table("id BIGINT, price BIGINT", tmp_path, form, **options, **ignore)) as stream:
        feed(stream, path)
        assert sorted(stream.rows("out")) == [(1, 6), (3, 1)]
        assert stream.runs["out"].commits.totals.sources["t"].malformed_rows == 2


def test_a_table_takes_its_columns_from_parquet_beside_that_of_operations(tmp_path: Path) -> None:
    written(tmp_path / "a", "parquet", OPERATIONS, ["op", "id", "price"], header=False)
    options = {"changelog--op_column": "OP"}
    declared = table("", tmp_path, "parquet", **options).replace("()", "")
    with Stream(f"{declared} CREATE TABLE out (id BIGINT, price BIGINT); INSERT INTO out SELECT * FROM t") as stream:
        feed(stream, tmp_path / "a")
        assert sorted(stream.rows("out")) == [(1, 6), (3, 1)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_of_a_key_the_last_change_counts_by_file_and_row(tmp_path: Path, parallelism: int) -> None:
    script = f"""{table("id BIGINT, price BIGINT, PRIMARY KEY (id) NOT ENFORCED", tmp_path, "json", **OPTIONS)}
    CREATE TABLE out (id BIGINT, price BIGINT); INSERT INTO out SELECT * FROM t"""
    script = script
    names = ["op", "id", "price"]
    with Stream(script, parallelism=parallelism) as stream:
        first = written(tmp_path / "z", "json", [("I", 1, 1), ("I", 2, 1), ("D", 3, None)], names, header=False)
        second = written(tmp_path / "a", "json", [("U", 1, 2), ("U", 1, 3), ("D", 2, None)], names, header=False)
        third = written(tmp_path / "b", "json", [("I", 2, 9), ("D", 1, None), ("I", 1, 4)], names, header=False)
        # The time of a file comes before its name.
        feed(stream, third, first, second, mtimes=[5, 4, 5])
        assert sorted(stream.rows("out")) == [(1, 4), (2, 9)]
        assert stream.query("SELECT absent_deletes FROM sqlstream.operators") == [(1,)]


def test_row_groups_of_a_file_with_a_key_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [("U", n % 3, n) for n in range(30)]
    records = [dict(zip(["op", "id", "price"], row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=10)
    declared = table("id BIGINT, price BIGINT, PRIMARY KEY (id) NOT ENFORCED", tmp_path, "parquet", **OPTIONS)
    with copied(declared) as stream:
        size = os.path.getsize(path)
        splits = [FileSplit(str(path), size, 1, 1, (s, s + 10), last=s == 20) for s in (20, 0, 10)]
        stream.runs["out"].batch({0: splits})
        assert sorted(stream.rows("out")) == [(0, 27), (1, 28), (2, 29)]


@pytest.mark.parametrize(("key", "cut"), [("", False), (", PRIMARY KEY (id) NOT ENFORCED", True)])
def test_a_file_is_cut_only_where_rows_before_updates_do_not_matter(tmp_path: Path, key: str, cut: bool) -> None:
    ids = pa.array(range(400_000))
    pq.write_table(pa.table({"op": pa.repeat("I", 400_000), "id": ids}), tmp_path / "a", row_group_size=50_000)
    declared = table(f"id BIGINT{key}", tmp_path, "parquet", **OPTIONS)
    with Stream(declared) as stream:
        found = FileDiscovery.of(stream.compiler.catalog.tables["t"], project=str(tmp_path), parallelism=2)
        found.poll()
        assert (len(found.next_batch() or ()) > 1) == cut


@pytest.fixture
def updates(tmp_path: Path) -> Iterator[tuple[Stream, Path]]:
    with copied(table("id BIGINT, price BIGINT", tmp_path, "json", **OPTIONS)) as stream:
        yield stream, tmp_path


def test_updates_without_rows_before_need_a_key(updates: tuple[Stream, Path]) -> None:
    stream, folder = updates
    names = ["op", "id", "price"]
    whole = written(folder / "a", "json", OPERATIONS, names, header=False)
    lacking = written(folder / "b", "json", [("I", 7, 1), ("U", 7, 2)], names, header=False)
    with pytest.raises(SqlStreamError) as error:
        feed(stream, whole, lacking)
    assert error.value.message == f'file "{lacking}" of table "t": an update has no row before it'
    assert error.value.detail == "Rows after an update (U): 1, rows before one (B): 0."
    assert "PRIMARY KEY" in (error.value.hint or "")
