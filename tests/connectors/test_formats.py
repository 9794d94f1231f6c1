"""Files are read as declared, or refused with the file, the row and the reason."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.filesystem.splits import Split
from sqlstream.connectors.formats.faults import malformed_rows, take, translate
from sqlstream.connectors.formats.reading import read
from sqlstream.connectors.tables import validate
from sqlstream.errors import BindError, DataError

Con = duckdb.DuckDBPyConnection


@pytest.fixture
def con() -> Con:
    con = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    con.execute("SET TimeZone = 'UTC'")
    return con


def table(format: str, columns: dict[str, str], **options: str) -> Table:
    named = {f"{format}.{k.replace('_', '-')}": v for k, v in options.items()}
    every = tuple(Column(n, t) for n, t in columns.items())
    return Table("t", every, options={"connector": "filesystem", "path": "x", "format": format, **named})


def split(path: Path, rows: tuple[int, int] | None = None) -> Split:
    size = path.stat().st_size if path.exists() else 1
    return Split(str(path), size, 0, size, rows)


def rows(con: Con, declared: Table, *splits: Split, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    return con.execute(read(con, splits, declared, columns).sql).fetchall()


def write(path: Path, text: str | bytes) -> Split:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return split(path)


def failure(con: Con, declared: Table, *splits: Split) -> DataError:
    """Return what a person sees when the splits cannot be read, wherever it comes up."""
    try:
        plan = read(con, splits, declared)
        con.execute(plan.sql).fetchall()
    except DataError as error:
        return error
    except duckdb.Error as error:
        if found := translate(error, splits, declared):
            return found
        raise
    raise AssertionError("nothing failed")


def skipping(con: Con, declared: Table, *splits: Split) -> tuple[list[tuple[Any, ...]], int]:
    plan = take(con, splits, declared)
    return con.execute(f"FROM {plan.taken}").fetchall(), plan.skipped(con)


# Parquet

OPTIONS = {"connector": "filesystem", "path": "x", "format": "parquet"}


def parquet(path: Path, columns: dict[str, pa.Array], **options: Any) -> Split:
    pq.write_table(pa.table(columns), path, **options)
    return split(path)


def test_parquet_columns_go_by_name_and_may_be_narrower(con: Con, tmp_path: Path) -> None:
    file = parquet(
        tmp_path / "a.parquet",
        {
            "more": pa.array([9]),
            "F": pa.array([1.5], pa.float32()),
            "N": pa.array([7], pa.int32()),
            "d": pa.array([date(2024, 1, 2)]),
            "m": pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
            "s": pa.array([{"x": 1, "y": "z"}]),
        },
    )
    declared = table(
        "parquet",
        {"n": "BIGINT", "f": "DOUBLE", "d": "TIMESTAMP", "m": "DECIMAL(10,2)", "s": "STRUCT(y VARCHAR)"},
    )
    plan = read(con, [file], declared)
    relation = con.sql(plan.sql)
    assert relation.columns == ["n", "f", "d", "m", "s"]
    assert [str(t) for t in relation.types] == [c.type for c in declared.columns]
    assert relation.fetchall() == [(7, 1.5, datetime(2024, 1, 2), Decimal("1.50"), {"y": "z"})]
    assert rows(con, declared, file, columns=["F"]) == [(1.5,)]


def test_parquet_instants_and_wall_clocks_meet_in_utc(con: Con, tmp_path: Path) -> None:
    at = datetime(2024, 7, 1, 12, 0, 0, 5)
    file = parquet(
        tmp_path / "a.parquet",
        {
            "instant": pa.array([at], pa.timestamp("us", "UTC")),
            "clock": pa.array([at], pa.timestamp("us")),
            "nanos": pa.array([at], pa.timestamp("ns")),
            "nano_instant": pa.array([at], pa.timestamp("ns", "UTC")),
        },
    )
    zoned = "TIMESTAMP WITH TIME ZONE"
    con.execute("SET TimeZone = 'America/New_York'")
    clocks = table("parquet", dict.fromkeys(["instant", "clock", "nanos", "nano_instant"], "TIMESTAMP"))
    assert rows(con, clocks, file) == [(at,) * 4]
    instants = table("parquet", dict.fromkeys(["instant", "clock", "nanos", "nano_instant"], zoned))
    assert [v.astimezone(UTC) for v in rows(con, instants, file)[0]] == [at.replace(tzinfo=UTC)] * 4


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (pa.array([2**40]), "INTEGER"),
        (pa.array([1], pa.uint64()), "BIGINT"),
        (pa.array([2**60]), "DOUBLE"),
        (pa.array([1.5]), "FLOAT"),
        (pa.array([1.5]), "BIGINT"),
        (pa.array(["1"]), "BIGINT"),
        (pa.array([1]), "VARCHAR"),
        (pa.array([b"x"]), "VARCHAR"),
        (pa.array([1]), "TIMESTAMP"),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "DECIMAL(5,1)"),
        (pa.array([{"x": 2**40}]), "STRUCT(x INTEGER)"),
        (pa.array([{"x": 1}]), "STRUCT(y BIGINT)"),
        (pa.array([[2**40]]), "INTEGER[]"),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("us")), "DATE"),
    ],
)
def test_parquet_types_that_lose_something_are_refused(
    con: Con, tmp_path: Path, found: pa.Array, declared: str
) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": found})
    error = failure(con, table("parquet", {"a": declared}), file)
    assert error.message.startswith(f'column "a" of file "{file.path}" of table "t" is ')
    assert error.message.endswith(f", which does not fit {declared}")


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (pa.array([1], pa.uint32()), "BIGINT"),
        (pa.array([1], pa.int32()), "DOUBLE"),
        (pa.array([1], pa.int64()), "HUGEINT"),
        (pa.array([1], pa.int64()), "DECIMAL(19,0)"),
        (pa.array([[1]], pa.list_(pa.int16())), "BIGINT[]"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), "MAP(VARCHAR, BIGINT)"),
        (pa.array(["x"]).dictionary_encode(), "VARCHAR"),
    ],
)
def test_parquet_types_that_hold_every_value_are_read(con: Con, tmp_path: Path, found: pa.Array, declared: str) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": found})
    relation = con.sql(read(con, [file], table("parquet", {"a": declared})).sql)
    assert [str(t) for t in relation.types] == [declared]
    (value,) = relation.fetchall()[0]
    assert value in (1, [1], {"k": 1}, "x")


def test_parquet_row_ranges_are_read_exactly_and_skip_row_groups(con: Con, tmp_path: Path) -> None:
    whole = parquet(tmp_path / "a.parquet", {"a": pa.array(range(10_000))}, row_group_size=1_000)
    declared = table("parquet", {"a": "BIGINT"})
    middle = split(tmp_path / "a.parquet", (3_000, 5_000))
    assert rows(con, declared, middle) == [(i,) for i in range(3_000, 5_000)]
    parts = [split(tmp_path / "a.parquet", r) for r in ((0, 3_000), (3_000, 5_000), (5_000, 10_000))]
    assert sorted(rows(con, declared, *parts)) == rows(con, declared, whole)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    # Damage the first row group: only a reader that does not touch it succeeds.
    data[4:600] = b"\xff" * 596
    (tmp_path / "a.parquet").write_bytes(bytes(data))
    assert len(rows(con, declared, middle)) == 2_000
    assert f'file "{whole.path}" of table "t" is damaged' in failure(con, declared, whole).message


def test_parquet_files_of_several_schemas_are_read_together(con: Con, tmp_path: Path) -> None:
    splits = [parquet(tmp_path / f"{i}.parquet", {"a": pa.array([i], pa.int32())}) for i in range(250)]
    splits += [parquet(tmp_path / f"{i}.parquet", {"b": pa.array(["x"]), "a": pa.array([i])}) for i in range(250, 500)]
    plan = read(con, splits, table("parquet", {"a": "BIGINT"}))
    assert plan.sql.count("read_parquet") == 2
    assert con.execute(f"SELECT count(*), sum(a) FROM {plan.relation}").fetchone() == (500, sum(range(500)))


def test_parquet_times_are_cut_to_microseconds(con: Con, tmp_path: Path) -> None:
    nanos = [1_767_261_600_123_456_999, -1, -1000]
    cut = [datetime(2026, 1, 1, 10, 0, 0, 123456), *[datetime(1969, 12, 31, 23, 59, 59, 999999)] * 2]
    for zone in (None, "UTC"):
        times = pa.array(nanos, pa.timestamp("ns", zone))
        deep = pa.array(
            [{"at": n, "all": [n]} for n in nanos], pa.struct({"at": times.type, "all": pa.list_(times.type)})
        )
        maps = pa.array([[("k", n)] for n in nanos], pa.map_(pa.string(), times.type))
        file = parquet(tmp_path / "a.parquet", {"t": times, "z": times, "s": deep, "m": maps})
        declared = table(
            "parquet",
            {
                "t": "TIMESTAMP",
                "z": "TIMESTAMP WITH TIME ZONE",
                "s": 'STRUCT("at" TIMESTAMP, "all" TIMESTAMP[])',
                "m": "MAP(VARCHAR, TIMESTAMP)",
            },
        )
        found = rows(con, declared, file)
        assert [(t, z.astimezone(UTC).replace(tzinfo=None), s, m) for t, z, s, m in found] == [
            (t, t, {"at": t, "all": [t]}, {"k": t}) for t in cut
        ]
    clock = parquet(tmp_path / "b.parquet", {"t": pa.array([86_399_999_999_999], pa.time64("ns"))})
    assert rows(con, table("parquet", {"t": "TIME"}), clock) == [(time(23, 59, 59, 999999),)]


def test_parquet_columns_of_no_type_and_columns_that_came_later_are_null(con: Con, tmp_path: Path) -> None:
    declared = table("parquet", {"a": "BIGINT", "t": "TIMESTAMP", "s": "STRUCT(x BIGINT, y VARCHAR)", "l": "BIGINT[]"})
    new: dict[str, list[object]] = {"a": [1], "t": [datetime(2026, 1, 1)], "s": [{"x": 1, "y": "z"}], "l": [[1]]}
    untyped = {"a": pa.nulls(1), "t": pa.nulls(1), "s": pa.array([{"x": None, "y": "z"}]), "l": pa.array([[None]])}
    files = [
        parquet(tmp_path / "a.parquet", {"a": pa.array([7])}),
        parquet(
            tmp_path / "b.parquet",
            {
                "a": pa.array([8]),
                "s": pa.array(
                    [
                        {"x": 2},
                    ]
                ),
            },
        ),
        parquet(tmp_path / "c.parquet", untyped),
        parquet(tmp_path / "d.parquet", {name: pa.array(values) for name, values in new.items()}),
    ]
    con.execute(f"COPY (SELECT 9 AS a, NULL AS t) TO '{tmp_path}/e.parquet'")
    files.append(split(tmp_path / "e.parquet"))
    assert rows(con, declared, *files) == [
        (7, None, None, None),
        (8, None, {"x": 2, "y": None}, None),
        (None, None, {"x": None, "y": "z"}, [None]),
        tuple(values[0] for values in new.values()),
        (9, None, None, None),
    ]


def test_parquet_columns_that_must_be_there(con: Con, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"auctoin": pa.array([1]), "price": pa.array([1])})
    never_null = Table("t", (Column("auction", "BIGINT", not_null=True), Column("price", "BIGINT")), options=OPTIONS)
    key = Table(
        "t", (Column("auction", "BIGINT"), Column("price", "BIGINT")), primary_key=("auction",), options=OPTIONS
    )
    for declared in (never_null, key):
        assert failure(con, declared, file).render() == (
            f'job failed: file "{file.path}" of table "t" has no column "auction"\nhint: did you mean "auctoin"?'
        )
    error = failure(con, table("parquet", {"x": "BIGINT"}), file)
    assert error.message == f'file "{file.path}" of table "t" has none of the columns of the table'
    assert error.hint == "existing columns: auctoin, price"


def test_parquet_files_that_are_not_whole(con: Con, tmp_path: Path) -> None:
    declared = table("parquet", {"a": "BIGINT"})
    good = parquet(tmp_path / "good.parquet", {"a": pa.array(range(1_000))})
    cut = write(tmp_path / "cut.parquet", (tmp_path / "good.parquet").read_bytes()[:-100])
    text = write(tmp_path / "text.parquet", "a,b\n1,2\n")
    empty = write(tmp_path / "empty.parquet", "")
    for file in (cut, text, empty):
        message = failure(con, declared, good, file).message
        assert message == f'file "{file.path}" of table "t" is not a Parquet file, or not a whole one'


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("header", ["true", "false"])
def test_a_file_that_vanished_is_named(con: Con, tmp_path: Path, format: str, header: str) -> None:
    declared = table(format, {"a": "BIGINT"}, header=header)
    error = failure(con, declared, split(tmp_path / "gone[1].x"))
    assert error.message == f'file "{tmp_path}/gone[1].x" of table "t" disappeared after it was listed'
    assert error.hint == "Put it back and run the job again; it goes on from its last committed batch."


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


# JSON

NESTED = {
    "a": "BIGINT",
    "s": "STRUCT(x INTEGER, y VARCHAR[])",
    "l": "DOUBLE[]",
    "m": "MAP(VARCHAR, INTEGER)",
    "i": "INTEGER[][]",
}


def test_json_lines_are_read_by_key(con: Con, tmp_path: Path) -> None:
    declared = table("json", {"a": "BIGINT", "ts": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE", "it's": "VARCHAR"})
    text = (
        '{"ts": "2024-01-01T10:00:00.123456Z", "z": "2024-01-01T10:00:00+02:00", "a": 1, "it\'s": "x", "more": [1]}\n'
        '\n{}\n{"a": "12", "ts": "2024-01-01", "it\'s": {"k": 1}}'
    )
    expected = [
        (1, datetime(2024, 1, 1, 10, 0, 0, 123456), datetime(2024, 1, 1, 8, tzinfo=UTC), "x"),
        (None, None, None, None),
        (12, datetime(2024, 1, 1), None, '{"k":1}'),
    ]
    plain = write(tmp_path / "a.json", text)
    packed = write(tmp_path / "a.json.gz", gzip.compress(text.encode()))
    zstd = write(tmp_path / "a.json.zst", pa.compress(text.encode(), codec="zstd", asbytes=True))
    for ignoring in ("false", "true"):
        declared.options["json.ignore-parse-errors"] = ignoring  # type: ignore[index]
        for file in (plain, packed, zstd):
            found = rows(con, declared, file)
            assert [(*r[:2], r[2] and r[2].astimezone(UTC), r[3]) for r in found] == expected


FITTING = ["{}", "null", '{"a": 1.0}', '{"s": {"x": 1, "z": 2}, "l": [1, null], "m": {"k": null}}', '{"s": null}']
HINT = (
    "Set 'json.ignore-parse-errors' = 'true' to skip such rows and count them,"
    " 'json.errors-to' = 'name' to keep them in a table."
)
MALFORMED = [
    ("garbage", "The line is not a JSON object"),
    ('{"a": 1', "The line is not a JSON object"),
    ('{"a": 1} {"a": 2}', "The line is not a JSON object"),
    ("[1]", "The line is not a JSON object"),
    ("5", "The line is not a JSON object"),
    ('{"a": "x"}', 'Column "a" does not hold a BIGINT'),
    ('{"a": 9223372036854775808}', 'Column "a" does not hold a BIGINT'),
    ('{"a": {"b": 1}}', 'Column "a" does not hold a BIGINT'),
    ('{"a": 1.5}', 'Column "a" does not hold a BIGINT'),
    ('{"a": -1e-3}', 'Column "a" does not hold a BIGINT'),
    ('{"a": true}', 'Column "a" does not hold a BIGINT'),
    ('{"a": "1.5"}', 'Column "a" does not hold a BIGINT'),
    ('{"a": "15e-1"}', 'Column "a" does not hold a BIGINT'),
    ('{"s": {"x": 1.5}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"x": false}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"m": {"j": 1, "k": 1.5}}', 'Column "m" does not hold a MAP(VARCHAR, INTEGER)'),
    ('{"i": [[1], [2, 2.5]]}', 'Column "i" does not hold a INTEGER[][]'),
    ('{"s": 5}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"x": "q"}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"a": 1, "s": {"x": "q"}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"y": 1}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"l": [1, "q"]}', 'Column "l" does not hold a DOUBLE[]'),
    ('{"l": {}}', 'Column "l" does not hold a DOUBLE[]'),
    ('{"m": {"k": "q"}}', 'Column "m" does not hold a MAP(VARCHAR, INTEGER)'),
]


@pytest.mark.parametrize(("line", "reason"), MALFORMED)
def test_malformed_json_fails_with_its_line(con: Con, tmp_path: Path, line: str, reason: str) -> None:
    before = "\n".join(FITTING)
    file = write(tmp_path / "a.json", f'{before}\n\n{line}\n{{"a": 3}}\n{line}\n')
    error = failure(con, table("json", NESTED), file)
    assert error.message == f'line {len(FITTING) + 2} of file "{file.path}" of table "t" is malformed'
    assert error.detail == f"{reason}: {line}"
    assert error.hint == HINT


def test_the_file_at_fault_is_named_among_similar_names(con: Con, tmp_path: Path) -> None:
    good = write(tmp_path / "a.json", '{"a": 1}')
    bad = write(tmp_path / "a.json.gz", gzip.compress(b'{"a": 1}\n{"a": "x"}'))
    error = failure(con, table("json", {"a": "BIGINT"}), good, bad)
    assert error.message == f'line 2 of file "{bad.path}" of table "t" is malformed'


def test_malformed_json_is_skipped_and_counted(con: Con, tmp_path: Path) -> None:
    lines = [line for pair in zip(FITTING, [m for m, _ in MALFORMED], strict=False) for line in pair]
    lines += [m for m, _ in MALFORMED[len(FITTING) :]]
    first = write(tmp_path / "a.json", "\n".join(lines))
    second = write(tmp_path / "b.json.gz", gzip.compress(b'{"a": 7}\nx\n'))
    strict = table("json", NESTED)
    expected = rows(con, strict, write(tmp_path / "c.json", "\n".join([*FITTING, '{"a": 7}'])))
    found, skipped = skipping(con, table("json", NESTED, ignore_parse_errors="true"), first, second)
    assert found == expected
    assert skipped == len(MALFORMED) + 1


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("TIMESTAMP", "1700000000"),
        ("TIMESTAMP", '"nope"'),
        ("TIMESTAMP WITH TIME ZONE", "5"),
        ("DATE", "5"),
        ("DECIMAL(4,2)", "123.5"),
        ("BOOLEAN", '"maybe"'),
        ("BOOLEAN", "2"),
        ("BOOLEAN", "1.5"),
        ("TINYINT", "300"),
        ("DOUBLE", '"1,5"'),
    ],
)
def test_json_scalars_of_another_type(con: Con, tmp_path: Path, declared: str, value: str) -> None:
    file = write(tmp_path / "a.json", f'{{"a": null}}\n{{"a": {value}}}\n')
    error = failure(con, table("json", {"a": declared}), file)
    assert error.message.startswith("line 2 of file")
    assert error.detail == f'Column "a" does not hold a {declared}: {{"a": {value}}}'
    assert skipping(con, table("json", {"a": declared}, ignore_parse_errors="true"), file) == ([(None,)], 1)


@pytest.mark.parametrize("ignore", ["true", "false"])
def test_whole_numbers_however_they_are_written(con: Con, tmp_path: Path, ignore: str) -> None:
    values = ["12", "12.0", "1.2e1", "120e-1", '"12"', '"12.0"', '"1.2e1"']
    columns = {"a": "BIGINT", "s": "STRUCT(x UTINYINT)"}
    text = "".join(f'{{"a": {v}, "s": {{"x": {v}}}}}\n' for v in values)
    declared = table("json", columns, ignore_parse_errors=ignore)
    assert rows(con, declared, write(tmp_path / "a.json", text)) == [(12, {"x": 12})] * len(values)
    declared = table("csv", {"a": "BIGINT", "b": "HUGEINT"}, ignore_parse_errors=ignore)
    text = "".join(f"{v},-170141183460469231731687303715884105728\n" for v in values)
    assert rows(con, declared, write(tmp_path / "a.csv", text)) == [(12, -(2**127))] * len(values)


def test_what_else_json_values_become(con: Con, tmp_path: Path) -> None:
    columns = {"d": "DOUBLE", "m": "DECIMAL(6,2)", "b": "BOOLEAN", "s": "VARCHAR", "t": "TIMESTAMP"}
    text = '{"d": true, "m": 1.235, "b": 1, "s": 1.5, "t": "2026-01-01 10:00:00.9999999"}\n'
    expected = (1.0, Decimal("1.24"), True, "1.5", datetime(2026, 1, 1, 10, 0, 0, 999999))
    for ignore in ("true", "false"):
        declared = table("json", columns, ignore_parse_errors=ignore)
        assert rows(con, declared, write(tmp_path / "a.json", text)) == [expected]


def test_a_line_that_is_not_whole_yet(con: Con, tmp_path: Path) -> None:
    hint = (
        "The file may not be whole yet."
        " Write files under a name that starts with a dot and rename them when they are complete."
    )
    error = failure(con, table("json", {"a": "BIGINT"}), write(tmp_path / "a.json", '{"a": 1}\n{"a": 2, "b'))
    assert error.hint == hint
    error = failure(con, table("csv", {"a": "BIGINT", "b": "BIGINT"}), write(tmp_path / "a.csv", "1,2\n3"))
    assert error.hint == hint


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_json_lines_that_are_too_long(con: Con, tmp_path: Path, name: str) -> None:
    text = '{"a": 1}\n\n{"a": 2, "s": "' + "x" * (34 << 20) + '"}\n{"a": 3}\nx\n'
    file = write(tmp_path / name, gzip.compress(text.encode(), 1) if name.endswith("gz") else text)
    error = failure(con, table("json", {"a": "BIGINT"}), file)
    assert error.message == f'line 3 of file "{file.path}" of table "t" is malformed'
    assert (error.detail or "").startswith('The line is longer than 32 MB: {"a": 2, "s": "xxx')
    ignoring = table("json", {"a": "BIGINT"}, ignore_parse_errors="true")
    assert skipping(con, ignoring, file) == ([(1,), (3,)], 2)
    found = [(row.number, row.reason, min(len(row.text), 99)) for row in malformed_rows([file], ignoring)]
    assert found == [(3, "The line is longer than 32 MB", 99), (5, "The line is not a JSON object", 1)]


def test_a_twice_given_json_key_fails_with_duckdbs_reason(con: Con, tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", '{"a": 1, "a": 2}\n')
    error = failure(con, table("json", {"a": "BIGINT"}), file)
    assert error.message == f'file "{file.path}" of table "t" has a malformed row'
    assert 'has duplicate key "a"' in (error.detail or "")


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("ignore", ["true", "false"])
def test_truncated_and_wrongly_named_compression(con: Con, tmp_path: Path, format: str, ignore: str) -> None:
    declared = table(format, {"a": "BIGINT"}, ignore_parse_errors=ignore)
    text = os.urandom(20_000).hex().encode() + b"\n"
    for name, data in (("cut.gz", gzip.compress(text)[:-200]), ("plain.gz", b"1\n")):
        file = write(tmp_path / name, data)
        assert failure(con, declared, file).message == (
            f'file "{file.path}" of table "t" is not whole, or not compressed as its name says'
        )


# CSV


def test_csv_follows_rfc_4180(con: Con, tmp_path: Path) -> None:
    declared = table("csv", {"a": "BIGINT", "s": "VARCHAR", "ts": "TIMESTAMP"})
    text = '1,"a ""b"", c\r\nd",2024-01-01T10:00:00Z\r\n2,"",\r\n,,\r\n4,é,2024-01-01 10:00:00.5'
    expected = [
        (1, 'a "b", c\r\nd', datetime(2024, 1, 1, 10)),
        (2, "", None),
        (None, None, None),
        (4, "é", datetime(2024, 1, 1, 10, 0, 0, 500_000)),
    ]
    assert rows(con, declared, write(tmp_path / "a.csv", text)) == expected
    assert rows(con, declared, write(tmp_path / "a.csv.gz", gzip.compress(text.encode()))) == expected


def test_csv_with_a_header_goes_by_name(con: Con, tmp_path: Path) -> None:
    declared = table("csv", {"A": "BIGINT", "b c": "VARCHAR"}, header="true", ignore_parse_errors="true")
    first = write(tmp_path / "a.csv", '\ufeffmore,"b c",a\nx,y,1\nx,y,oops\n')
    second = write(tmp_path / "b.csv.gz", gzip.compress(b"a,b c\n2,z\n"))
    empty = write(tmp_path / "c.csv", "")
    assert skipping(con, declared, first, second, empty) == ([(1, "y"), (2, "z")], 1)
    without = write(tmp_path / "d.csv", "a,bc\n1,2\n")
    error = failure(con, declared, without)
    assert error.message == f'the header of file "{without.path}" of table "t" has no column "b c"'
    assert error.hint == 'did you mean "bc"?'
    assert 'has column "A" twice' in failure(con, declared, write(tmp_path / "e.csv", "a,b c,A\n")).message


def test_csv_characters_and_nulls(con: Con, tmp_path: Path) -> None:
    declared = table(
        "csv",
        {"a": "BIGINT", "s": "VARCHAR"},
        field_delimiter="\\t",
        quote_character="'",
        escape_character="\\",
        null_literal="N/A",
        header="true",
    )
    file = write(tmp_path / "a.tsv", "'s'\ta\n'it\\'s'\t1\nN/A\tN/A\n'N/A'\t2\n")
    assert rows(con, declared, file) == [(1, "it's"), (None, None), (2, "N/A")]


CSV = {"a": "BIGINT", "s": "VARCHAR", "ts": "TIMESTAMP"}
MALFORMED_CSV = [
    ("x,y,", 'Column "a" does not hold a BIGINT'),
    ("1,y,1700000000", 'Column "ts" does not hold a TIMESTAMP'),
    ('"",y,', 'Column "a" does not hold a BIGINT'),
    ("1.5,y,", 'Column "a" does not hold a BIGINT'),
    ("-15e-1,y,", 'Column "a" does not hold a BIGINT'),
    ("true,y,", 'Column "a" does not hold a BIGINT'),
    ("x,y,z", 'Column "ts" does not hold a TIMESTAMP'),
    ("1,y", "The row has fewer than 3 fields"),
    ("1,y,,z,z", "The row has more than 3 fields"),
    ('1,"y"z,', "Value with unterminated quote found"),
]


@pytest.mark.parametrize(("row", "reason"), MALFORMED_CSV)
def test_malformed_csv_fails_with_its_row(con: Con, tmp_path: Path, row: str, reason: str) -> None:
    file = write(tmp_path / "a.csv", f'1,"two\nlines",\n2,,\n{row}\n3,,\n')
    error = failure(con, table("csv", CSV), file)
    assert error.message == f'row 3 of file "{file.path}" of table "t" is malformed'
    assert error.detail == f"{reason}: {row}"


def test_malformed_csv_is_skipped_and_counted(con: Con, tmp_path: Path) -> None:
    declared = table("csv", CSV, ignore_parse_errors="true")
    files = [
        write(tmp_path / f"{i}.csv", "".join(f"{n},ok,\n{row}\n" for n, (row, _) in enumerate(MALFORMED_CSV)))
        for i in range(3)
    ]
    latin = write(tmp_path / "latin.csv", "1,é,\n2,e,\n".encode("latin1"))
    plan = read(con, [*files, latin], declared)
    # Reading twice, as a plan with two uses of the table does, counts once.
    for _ in range(2):
        plan.take(con)
        found = con.execute(f"FROM {plan.taken}").fetchall()
        assert len(found) == 3 * len(MALFORMED_CSV) + 1
    assert plan.skipped(con) == 3 * len(MALFORMED_CSV) + 1
    plan.forget(con)
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


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


# Options


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
            {"source.monitor-interval": "1"},
            'table "t": option "source.monitor-interval": "1" is not a duration, such as 500 ms, 1 s, 2 min, 1 h or 1 d',
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
