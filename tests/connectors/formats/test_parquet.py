"""Parquet files are read as declared, or refused with the file, the column and the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.reading import read
from tests.connectors.formats.reading_files import Con, failure, parquet, rows, split, table, write

OPTIONS = {"connector": "filesystem", "path": "x", "format": "parquet"}


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
        (pa.array([1], pa.uint64()), "INTEGER"),
        (pa.array([1], pa.int64()), "UBIGINT"),
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
        assert message == f'file "{file.path}" of table "t" is not a Parquet file, or an incomplete one'


UNSIGNED = {"UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64()}


@pytest.mark.parametrize("unsigned", UNSIGNED)
@pytest.mark.parametrize("declared", ["{}", "{}[]", "STRUCT(x {})", "MAP(VARCHAR, {})"])
def test_unsigned_integers_that_fit_are_read(con: Con, tmp_path: Path, unsigned: str, declared: str) -> None:
    signed, kind = unsigned[1:], UNSIGNED[unsigned]
    largest = 2 ** (kind.bit_width - 1) - 1
    nested: dict[str, tuple[pa.DataType, Callable[[int], object]]] = {
        "{}": (kind, lambda n: n),
        "{}[]": (pa.list_(kind), lambda n: [1, n]),
        "STRUCT(x {})": (pa.struct([("x", kind)]), lambda n: {"x": n}),
        "MAP(VARCHAR, {})": (pa.map_(pa.string(), kind), lambda n: [("k", n)]),
    }
    type_, value = nested[declared]
    fits = parquet(tmp_path / "a.parquet", {"a": pa.array([value(largest), None], type_)})
    declaration = table("parquet", {"a": declared.format(signed)})
    found = rows(con, declaration, fits)
    assert str(largest) in str(found[0])
    assert found[1] == (None,)
    larger = parquet(tmp_path / "b.parquet", {"a": pa.array([value(1), value(largest + 1), value(2)], type_)})
    error = failure(con, declaration, larger)
    assert error.message == f'row 2 of file "{tmp_path}/b.parquet" of table "t" is malformed'
    assert str(error.detail).startswith(f'Column "a" does not hold a {declaration.columns[0].type}: ')
    skipping = replace(declaration, options={**declaration.options, "parquet.ignore-parse-errors": "true"})
    assert len(rows(con, skipping, larger)) == 2


def test_a_text_that_is_no_json_is_malformed(con: Con, tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"j": pa.array(['{"a": 1}', "{", None])})
    declared = table("parquet", {"j": "JSON"})
    assert failure(con, declared, file).message == f'row 2 of file "{tmp_path}/a.parquet" of table "t" is malformed'
    skipping = replace(declared, options={**declared.options, "parquet.ignore-parse-errors": "true"})
    assert rows(con, skipping, file) == [('{"a": 1}',), (None,)]
