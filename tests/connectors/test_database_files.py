"""Tables in SQLite and DuckDB files that jobs write: types, changes, batches that count once, and what is refused."""

from __future__ import annotations

import datetime
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream.connectors.duckdb.sink import DuckDBTransaction
from sqlstream.connectors.relational.writer import DatabaseWriter
from sqlstream.connectors.sqlite.sink import SQLiteTransaction
from sqlstream.errors import DataError, JobError, SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.database_sinks import COUNTS, copying, write_and_crash

pytestmark = pytest.mark.slow

KINDS = ("sqlite", "duckdb")


def run(kind: str, path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in a file as somebody else does, and let it go."""
    rows: list[tuple[Any, ...]] = []
    if kind == "duckdb":
        with duckdb.connect(str(path)) as con:
            for statement in statements:
                rows = con.execute(statement).fetchall()
        return rows
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for statement in statements:
            rows = other.execute(statement).fetchall()
    return rows


def options(kind: str, path: Path, table: str = "t", more: str = ", 'sink.create-table' = 'true'") -> str:
    return f"'connector' = '{kind}', 'path' = '{path}', 'table' = '{table}'{more}"


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_keys(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.db"
    with Stream(COUNTS.format(options=options(kind, path))) as stream:
        stream.batch("sold", [(1, 10), (1, 20), (2, 30)])
        assert sorted(run(kind, path, "SELECT * FROM t")) == [(1, 2, 30), (2, 1, 30)]
        stream.batch("sold", [(1, 80), (2, 5), (3, 7)])
        stream.restart()
        # A row of somebody else's stays as it is.
        run(kind, path, "INSERT INTO t VALUES (9, 9, 9)")
        stream.batch("sold", [(3, 1)])
        assert sorted(run(kind, path, "SELECT * FROM t")) == [(2, 2, 35), (3, 2, 8), (9, 9, 9)]
    [(sink, batch)] = run(kind, path, "SELECT sink, batch FROM sqlstream_batches")
    assert (sink.startswith("counts-"), batch) == (True, 2)


VALUES: dict[str, tuple[str, Any]] = {
    "id": ("BIGINT", 2**62),
    "tiny": ("TINYINT", -1),
    "ratio": ("DOUBLE", 0.1),
    "ok": ("BOOLEAN", True),
    "price": ("DECIMAL(12, 4)", Decimal("-1.2500")),
    "exact": ("DECIMAL(38, 4)", Decimal("12345678901234567890.1234")),
    "name": ("STRING", "007"),
    "nothing": ("STRING", None),
    "bytes": ("BYTES", b"\x00\xff,\n"),
    "day": ("DATE", datetime.date(1969, 12, 31)),
    "at": ("TIMESTAMP(6)", datetime.datetime(2026, 1, 1, 10, 0, 0, 123456)),
    "list": ("ARRAY<INT>", [1, None, 3]),
    "row": ("ROW<a INT, b ARRAY<STRING>>", {"a": 1, "b": ["x,\"y'"]}),
}
IN_SQLITE: dict[str, Callable[[Any], Any]] = {
    "ok": int,
    "price": float,
    "exact": str,
    "day": str,
    "at": str,
    "list": lambda v: json.dumps(v, separators=(",", ":")),
    "row": lambda v: json.dumps(v, separators=(",", ":")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_types_and_values(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    kinds = ", ".join(f"`{name}` {type}" for name, (type, _) in VALUES.items())
    row = [value for _, value in VALUES.values()]
    with Stream(copying(kinds, options(kind, path))) as stream:
        stream.batch("given", [row, [2, *[None] * (len(row) - 1)]])
    expected = [IN_SQLITE.get(name, lambda v: v)(v) for name, (_, v) in VALUES.items()] if kind == "sqlite" else row
    assert [list(r) for r in run(kind, path, "SELECT * FROM t")] == [expected, [2, *[None] * (len(row) - 1)]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_comes_again_is_not_written_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.db"
    transaction = SQLiteTransaction if kind == "sqlite" else DuckDBTransaction
    with Stream(copying("n BIGINT", options(kind, path))) as stream:
        rows = write_and_crash(stream, transaction, DatabaseWriter, monkeypatch)
        assert run(kind, path, "SELECT n FROM t ORDER BY n") == rows
        # The warehouse is a copy of an older one.
        run(kind, path, "UPDATE sqlstream_batches SET batch = 8")
        with pytest.raises(DataError, match="has batches up to 8 of the job, which has committed 3 only"):
            stream.restart()


REFUSED = {
    "no file": ("", "id BIGINT", "does not exist"),
    "no table": ("CREATE TABLE other (n int)", "id BIGINT", 'has no table "t"'),
    "no column": ("CREATE TABLE t (id BIGINT)", "id BIGINT, nmae STRING", 'has no column "nmae"'),
    "type": ("CREATE TABLE t (id BIGINT, name INTEGER)", "id BIGINT, name STRING", 'column "name" is INTEGER'),
    "not null": ("CREATE TABLE t (id BIGINT, b INT NOT NULL)", "id BIGINT", 'demands a value for column "b"'),
    "generated": ("CREATE TABLE t (id BIGINT, b INT GENERATED ALWAYS AS (id))", "id BIGINT, b INT", ""),
    "index": ("CREATE TABLE t (id BIGINT, b INT)", "id BIGINT, PRIMARY KEY (id) NOT ENFORCED", "has no unique index"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_declared_wrongly_is_said_at_the_start(kind: str, tmp_path: Path) -> None:
    for number, (made, columns, message) in enumerate(REFUSED.values()):
        if kind == "duckdb" and message in ("", "has no unique index"):
            continue
        path = tmp_path / f"{number}.db"
        if made:
            run(kind, path, made)
        script = f"""
        CREATE TABLE kept ({columns}) WITH ({options(kind, path, more="")});
        CREATE TABLE given ({columns.partition(", PRIMARY")[0]});
        INSERT INTO kept SELECT * FROM given
        """
        with pytest.raises(SqlStreamError) as refused:
            Stream(script)
        assert (message or "computes column") in refused.value.message
        assert refused.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_somebody_holds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    hold = f"""
import {kind}3 as db
con = db.connect({str(path)!r}, isolation_level=None)
con.execute("BEGIN EXCLUSIVE")
print("held", flush=True); input()
"""
    if kind == "duckdb":
        hold = f"import duckdb; con = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    one_try = options(kind, path, more=", 'sink.create-table' = 'true', 'sink.max-retries' = '0'")
    with Stream(COUNTS.format(options=one_try)) as stream:
        stream.batch("sold", [(1, 10)])
        with subprocess.Popen(
            [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(JobError, match='writing table "counts" failed: ') as failed:
                stream.batch("sold", [(1, 10)])
            assert failed.value.hint is not None
            other.communicate("\n")
        stream.restart()
        stream.batch("sold", [(1, 10)])
        assert run(kind, path, "SELECT n FROM t") == [(2,)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_the_file_refuses(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    run(kind, path, "CREATE TABLE t (n BIGINT CHECK (n < 10))")
    with Stream(copying("n BIGINT", options(kind, path, more=""))) as stream:
        stream.batch("given", [(1,)])
        with pytest.raises(DataError, match='refuses rows of table "kept"'):
            stream.batch("given", [(2,), (10,)])
    assert run(kind, path, "SELECT n FROM t") == [(1,)]
