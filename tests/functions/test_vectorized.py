"""Functions over Arrow arrays: what they get, what they may return, and what is said when it is something else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sqlstream import functions
from sqlstream.errors import BindError, JobError, UnsupportedError
from sqlstream.functions import udf


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@udf(vectorized=True)
def added(a: pa.Int64Array, b: pa.Int64Array = 1) -> pa.Int64Array:
    return pc.add(a, b)


def raised(con: duckdb.DuckDBPyConnection, sql: str) -> JobError:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(sql).fetchall()
    error = functions.recover(caught.value)
    assert error is not None
    return error


def test_arrays_in_and_out(con: duckdb.DuckDBPyConnection) -> None:
    functions.register(con, [functions.declare(added)])
    rows = con.execute("SELECT added(i, 1) FROM (SELECT unnest([1, NULL, 3]) AS i)").fetchall()
    assert rows == [(2,), (None,), (4,)]
    [(total,)] = con.execute("SELECT sum(added(i, i)) FROM range(100000) AS r(i)").fetchall()
    assert total == 2 * sum(range(100_000))


def test_nulls_are_its_own_business(con: duckdb.DuckDBPyConnection) -> None:
    @udf(vectorized=True)
    def missing(a: pa.StringArray) -> pa.BooleanArray:
        return pc.is_null(a)

    functions.register(con, [functions.declare(missing)])
    assert con.execute("SELECT missing(v) FROM (VALUES ('x'), (NULL)) AS t(v)").fetchall() == [(False,), (True,)]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("DECIMAL(10,2)", "1.25"),
        ("TIMESTAMP", "2026-01-01 00:00:00"),
        ("TIMESTAMP WITH TIME ZONE", "2026-01-01 00:00:00+00"),
        ("VARCHAR[]", "[a, b]"),
        ("STRUCT(a INTEGER, b VARCHAR)", "{'a': 1, 'b': x}"),
        ("MAP(VARCHAR, BIGINT)", "{a=1}"),
        ("DATE", "2026-01-01"),
        ("BLOB", "ab"),
    ],
)
def test_types_by_name(con: duckdb.DuckDBPyConnection, sql: str, value: str) -> None:
    def same(v):  # type: ignore[no-untyped-def]
        return pa.chunked_array([v])

    con.execute("SET TimeZone = 'UTC'")
    functions.register(con, [functions.declare(same, vectorized=True, returns=sql, parameters={"v": sql})])
    [(text,)] = con.execute(f"SELECT CAST(same(CAST(? AS {sql})) AS VARCHAR)", [value]).fetchall()
    assert text == con.execute(f"SELECT CAST(CAST(? AS {sql}) AS VARCHAR)", [value]).fetchall()[0][0]


def test_results_are_cast_to_the_declared_type(con: duckdb.DuckDBPyConnection) -> None:
    @udf(vectorized=True, returns="SMALLINT")
    def narrowed(a: pa.Int64Array):  # type: ignore[no-untyped-def]
        return a

    functions.register(con, [functions.declare(narrowed)])
    assert con.execute("SELECT narrowed(7)").fetchall() == [(7,)]
    error = raised(con, "SELECT narrowed(70000)")
    assert error.message.startswith('function "narrowed" returned an array of int64, which is no SMALLINT')


def test_errors_name_function_and_line(con: duckdb.DuckDBPyConnection) -> None:
    def short(a: pa.Int64Array) -> pa.Int64Array:
        return a[:1]

    def number(a: pa.Int64Array) -> pa.Int64Array:
        return 5

    def broken(a: pa.Int64Array) -> pa.Int64Array:
        raise ValueError("no")

    made = [functions.declare(f, vectorized=True) for f in (short, number, broken)]
    functions.register(con, made)
    line = broken.__code__.co_firstlineno
    assert (
        raised(con, "SELECT short(i) FROM range(3) AS r(i)").message == 'function "short" returned 1 values for 3 rows'
    )
    assert raised(con, "SELECT number(1)").message == 'function "number" returned a int, not an Arrow array'
    error = raised(con, "SELECT broken(1)")
    assert error.message == 'function "broken" raised ValueError: no'
    assert error.detail == f" --> tests/functions/test_vectorized.py:{line + 1}"


def test_what_is_refused() -> None:
    def untyped(a: pa.Array) -> pa.Int64Array: ...
    def row_wise(a: int) -> pa.Int64Array: ...
    def constant() -> pa.Int64Array: ...

    with pytest.raises(BindError, match="Array does not say what is in the array"):
        functions.declare(untyped, vectorized=True)
    with pytest.raises(BindError, match="int does not say what is in the array"):
        functions.declare(row_wise, vectorized=True)
    with pytest.raises(UnsupportedError, match="has no parameters"):
        functions.declare(constant, vectorized=True)
    with pytest.raises(BindError, match="has no SQL type"):
        functions.declare(untyped)


@pytest.mark.slow
def test_it_is_much_faster_than_row_by_row(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    def rows(a: int, b: int) -> int:
        return a + b

    functions.register(con, [functions.declare(added), functions.declare(rows)])

    def seconds(function: str) -> float:
        start = time.perf_counter()
        con.execute(f"SELECT sum({function}(i, i)) FROM range(1000000) AS r(i)").fetchall()
        return time.perf_counter() - start

    assert min(seconds("added") for _ in range(3)) * 2 < min(seconds("rows") for _ in range(3))
