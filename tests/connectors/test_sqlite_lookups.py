"""Rows of SQLite files that are looked up: what a job has written there, and what others have."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.sqlite.lookup import SQLiteLookup
from sqlstream.errors import DataError, OutageError
from sqlstream.testing import Stream
from tests.connectors.database_sinks import copying

# Columns with their types, and what two rows have there.
VALUES: dict[str, tuple[str, Any, Any]] = {
    "id": ("BIGINT", 2**62, -1),
    "ok": ("BOOLEAN", True, False),
    "tiny": ("TINYINT", -1, 1),
    "ratio": ("DOUBLE", 0.1, 2.0),
    "price": ("DECIMAL(12, 4)", Decimal("-1.2500"), Decimal("3.0000")),
    "exact": ("DECIMAL(38, 4)", Decimal("12345678901234567890.1234"), Decimal("1.0000")),
    "name": ("STRING", "007", "7"),
    "nothing": ("STRING", None, None),
    "bytes": ("BYTES", b"\x00\xff,\n", b"abc"),
    "day": ("DATE", dt.date(1969, 12, 31), dt.date(2026, 1, 1)),
    "clock": ("TIME", dt.time(10, 0, 0, 5), dt.time(0)),
    "at": ("TIMESTAMP(6)", dt.datetime(2026, 1, 1, 10, 0, 0, 123456), dt.datetime(2026, 1, 1)),
    "uuid": ("UUID", UUID(int=1), UUID(int=2**100)),
    "list": ("ARRAY<INT>", [1, None, 3], []),
    "row": ("ROW<a INT, b ARRAY<STRING>>", {"a": 1, "b": ["x,\"y'"]}, {"a": None, "b": None}),
    "map": ("MAP<STRING, INT>", {"x": 1, "y z": None}, {}),
}
KEYS = [name for name in VALUES if name not in ("nothing", "list", "row", "map")]


def options(path: Path, table: str = "t") -> str:
    return f"'connector' = 'sqlite', 'path' = '{path}', 'table' = '{table}'"


def write(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.executescript(script)


def found(path: Path, columns: str, key: str, *values: Any) -> list[tuple[Any, ...]]:
    """Look up rows by one of their columns, which are `name TYPE, ..`."""
    kind = next(c.split(maxsplit=1)[1] for c in columns.split(", ") if c.split()[0] == key)
    script = f"""
    CREATE TABLE asked (wanted {kind}, p AS PROCTIME());
    CREATE TABLE t ({columns}) WITH ({options(path)});
    CREATE TABLE out (wanted {kind}, {columns.replace(f"{key} {kind}", f"own {kind}")});
    INSERT INTO out SELECT asked.wanted, t.* FROM asked JOIN t FOR SYSTEM_TIME AS OF asked.p ON t.{key} = asked.wanted"""
    with Stream(script) as stream:
        stream.batch("asked", [(value,) for value in values])
        return sorted(stream.rows("out"), key=str)


@pytest.mark.parametrize("key", KEYS)
def test_what_a_job_has_written_is_found_by_each_column(key: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    kinds = ", ".join(f"`{name}` {type}" for name, (type, _, _) in VALUES.items())
    first, second = ([values[i] for values in VALUES.values()] for i in (1, 2))
    script = f"""{copying(kinds, options(path) + ", 'sink.create-table' = 'true'")};
    CREATE TABLE asked (x {VALUES[key][0]}, p AS PROCTIME());
    CREATE TABLE rows_of ({kinds}) WITH ({options(path)});
    CREATE TABLE out ({kinds});
    INSERT INTO out SELECT r.* FROM asked AS a JOIN rows_of FOR SYSTEM_TIME AS OF a.p AS r ON r.`{key}` = a.x"""
    with Stream(script) as stream:
        stream.batch("given", [first, second])
        stream.batch("asked", [(VALUES[key][1],)])
        assert stream.rows("out") == [tuple(first)]
        stream.batch("asked", [(VALUES[key][2],), (None,)])
        assert sorted(stream.rows("out"), key=str) == sorted([tuple(first), tuple(second)], key=str)


def test_values_are_compared_as_they_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    write(
        path,
        """CREATE TABLE t (code TEXT COLLATE NOCASE, n TEXT, at TEXT, price NUMERIC, x, i INTEGER);
        INSERT INTO t VALUES ('Ab', '01', '2026-01-01T10:00:00', 1.5, 7, 7), ('ab', '1.0', '2026-01-01', '2', '7', 8);""",
    )
    columns = "code STRING, n INT, at TIMESTAMP(3), price DECIMAL(6,2), x STRING, i STRING"
    first = ("Ab", 1, dt.datetime(2026, 1, 1, 10), Decimal("1.50"), "7", "7")
    second = ("ab", 1, dt.datetime(2026, 1, 1), Decimal("2.00"), "7", "8")
    # A collation that takes two texts as equal gives neither the other's row, nor one twice.
    assert found(path, columns, "code", "ab", "Ab", "AB") == [("Ab", *first), ("ab", *second)]
    assert found(path, columns, "n", 1, 2) == [(1, *first), (1, *second)]
    assert found(path, columns, "at", dt.datetime(2026, 1, 1, 10)) == [(first[2], *first)]
    assert found(path, columns, "price", Decimal("1.50"), Decimal("2.00")) == [
        (Decimal("1.50"), *first),
        (Decimal("2.00"), *second),
    ]
    assert found(path, columns, "x", "7", "8") == [("7", *first), ("7", *second)]
    assert found(path, columns, "i", "7", "07") == [("7", *first)]


def test_many_keys_of_two_columns_are_found_by_an_index(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    write(
        path,
        """CREATE TABLE t (a INTEGER, b TEXT, v INTEGER, PRIMARY KEY (a, b));
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
        INSERT INTO t SELECT i / 2, 'b' || (i % 2), i FROM n;""",
    )
    table = Table(
        "t",
        (Column("a", "BIGINT"), Column("b", "VARCHAR"), Column("v", "BIGINT")),
        options={"path": str(path), "table": "t"},
    )
    look_up = SQLiteLookup(table).function(warehouse="", project=str(tmp_path))
    keys = pa.table({"a": list(range(3000)), "b": ["b1"] * 3000})
    assert sorted(look_up(keys).column("v").to_pylist()) == [2 * i + 1 for i in range(3000)]
    assert look_up(keys.slice(0, 0)).num_rows == 0


def test_what_changes_outside_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    write(path, "PRAGMA journal_mode = WAL; CREATE TABLE t (k TEXT PRIMARY KEY, v INT); INSERT INTO t VALUES ('a', 1);")
    assert found(path, "k STRING, v INT", "k", "a") == [("a", "a", 1)]
    write(path, "UPDATE t SET v = 2")
    assert found(path, "k STRING, v INT", "k", "a") == [("a", "a", 2)]


def test_a_table_that_is_not_as_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with pytest.raises(DataError, match=r'the file ".*file.db" of table "t" does not exist'):
        found(path, "k STRING, v INT", "k", "a")
    write(path, "CREATE TABLE u (k TEXT)")
    with pytest.raises(DataError, match=r'"t": ".*" has no table "t"'):
        found(path, "k STRING, v INT", "k", "a")
    write(path, "CREATE TABLE t (k TEXT, vv TEXT); INSERT INTO t VALUES ('a', 'x')")
    with pytest.raises(DataError, match='it has no column "v"') as missing:
        found(path, "k STRING, v INT", "k", "a")
    assert 'did you mean "vv"' in (missing.value.hint or "").lower()
    with pytest.raises(DataError, match='a row of table "t" does not have the declared types'):
        found(path, "k STRING, vv INT", "k", "a")
    (tmp_path / "other.db").write_text("no database" * 1000)
    with pytest.raises(DataError, match="file is not a database"):
        found(tmp_path / "other.db", "k STRING, v INT", "k", "a")


@pytest.mark.slow
def test_a_file_that_stays_locked_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlstream.connectors.sqlite.lookup._PATIENCE", 0.01)
    path = tmp_path / "file.db"
    write(path, "CREATE TABLE t (k TEXT, v INT); INSERT INTO t VALUES ('a', 1);")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OutageError, match="locked"):
            found(path, "k STRING, v INT", "k", "a")
        other.execute("COMMIT")
    assert found(path, "k STRING, v INT", "k", "a") == [("a", "a", 1)]
