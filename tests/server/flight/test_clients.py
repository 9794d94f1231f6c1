"""Real clients of Flight SQL: ADBC's driver, pandas and polars on it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sqlstream.server.flight.parameters import sql_value
from tests.server.flight.conftest import Served, fetch

STATE = [("a", datetime(1970, 1, 1, 0, 0, 10), 1), ("a", datetime(1970, 1, 1, 0, 0, 20), 5)]
STATE += [("b", datetime(1970, 1, 1, 0, 0, 10), 2)]


@pytest.mark.slow
def test_state_tables_and_what_is_known_of_jobs(served: Served) -> None:
    state = "SELECT * FROM {} WHERE k IN ('a', 'b') ORDER BY ALL"
    for name in ("state.hourly.departures", '"state"."hourly"."departures"', '"state.hourly".departures'):
        assert served.rows(state.format(name)) == STATE
    for name in ("counts", "main.counts", '"memory"."main"."counts"'):
        assert served.rows(f"FROM {name} ORDER BY k") == [("a", 1), ("b", 2)]
    assert served.rows("SELECT job FROM memory.sqlstream.jobs") == [("hourly",)]
    assert served.rows("FROM counts AT (VERSION => ?)", [0]) == [("a", 1)]


def test_a_client_sees_what_the_job_has_committed_meanwhile(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        query = "SELECT count(*) FROM state.hourly.departures WHERE k = 'c'"
        cursor.execute(query)
        assert cursor.fetchone() == (0,)
        served.job.batch([("c", 7, 30)], [])
        cursor.execute(query)
        assert cursor.fetchone() == (1,)


VALUES: list[Any] = [
    1,
    -(2**62),
    2.5,
    math.inf,
    True,
    None,
    "it's $1 ?",
    b"\x00\xff'",
    Decimal("-12.340"),
    date(2024, 2, 29),
    time(10, 11, 12, 500_000),
    datetime(1999, 12, 31, 23, 59, 59, 250_000),
    datetime(2024, 1, 1, 8, tzinfo=UTC),
    [1, None, 3],
    ["a", "b'"],
]


def test_values_of_parameters_come_back(served: Served) -> None:
    # `?` in texts and comments are none.
    sql = f"SELECT {', '.join('?' * len(VALUES))}, '?' /* ? */"
    assert served.rows(sql, VALUES) == [(*VALUES, "?")]
    assert served.rows("SELECT $2, $1, $2", [1, "x"]) == [("x", 1, "x")]
    assert served.rows("SELECT ?::INTERVAL = INTERVAL '90 minutes'", [timedelta(minutes=90)]) == [(True,)]
    # A text becomes what it is compared with.
    assert served.rows("SELECT k FROM counts WHERE n = ?", ["2"]) == [("b",)]


def test_a_prepared_statement_runs_again_with_other_parameters(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        schema = cursor.adbc_prepare("SELECT k FROM counts WHERE n = ? OR k = ?")
        assert schema.types == [pa.string(), pa.string()]
        for n, k, found in ((1, "", "a"), (0, "b", "b")):
            cursor.execute("SELECT k FROM counts WHERE n = ? OR k = ?", [n, k])
            assert cursor.fetchall() == [(found,)]
        assert cursor.adbc_execute_schema("SELECT k, n FROM counts") == pa.schema(
            [("k", pa.string()), ("n", pa.int64())]
        )


def test_all_types_are_those_of_duckdb(served: Served) -> None:
    # These three have dictionaries in Arrow, which come as texts; BIGNUM has a type that the driver reads as its bytes.
    enums = {"small_enum", "medium_enum", "large_enum"}
    sql = "SELECT * EXCLUDE (bignum) FROM test_all_types()"
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        expected = con.sql(sql).to_arrow_table()
    found = served.table(sql)
    for name in expected.column_names:
        column = expected[name].cast(pa.string()) if name in enums else expected[name]
        assert found[name].type == column.type, name
        # As texts: NaN is not what it is compared with, and Python has no interval of a million years.
        assert found[name].combine_chunks().to_string() == column.combine_chunks().to_string(), name
    assert found.num_rows == 3
    nested = served.table("SELECT {'e': 'x'::ENUM('x', 'it''s, ENUM(')} AS s, ['y'::ENUM('y')] AS l")
    assert nested.to_pylist() == [{"s": {"e": "x"}, "l": ["y"]}]


@pytest.mark.slow
def test_rows_of_all_sizes(served: Served) -> None:
    sql = "SELECT range AS i, CASE WHEN range = 50000 THEN repeat('x', 12000000) ELSE repeat('y', 200) END AS t"
    found = served.table(f"{sql} FROM range(100000)")
    assert found["i"].to_pylist() == list(range(100_000))
    lengths = found["t"].combine_chunks().to_pylist()
    assert [len(text) for text in lengths[49_999:50_002]] == [200, 12_000_000, 200]
    assert served.table("SELECT 1 AS a WHERE false").to_pydict() == {"a": []}


def test_pandas_and_polars(served: Served) -> None:
    sql = "SELECT k, n FROM counts ORDER BY k"
    with served.connect() as connection:
        assert pl.read_database(sql, connection).rows() == [("a", 1), ("b", 2)]
        frame = pd.read_sql(sql, connection)
        assert frame.to_dict("list") == {"k": ["a", "b"], "n": [1, 2]}


def test_objects_at_all_depths(served: Served) -> None:
    with served.connect() as connection:

        def objects(depth: str, **filters: Any) -> list[Any]:
            found: list[Any] = connection.adbc_get_objects(depth=depth, **filters).read_all().to_pylist()
            return found

        assert [c["catalog_name"] for c in objects("catalogs")] == ["memory", "state"]
        schemas = [
            (c["catalog_name"], [s["db_schema_name"] for s in c["catalog_db_schemas"]]) for c in objects("db_schemas")
        ]
        assert schemas == [("memory", ["main", "sqlstream"]), ("state", ["hourly"])]
        [state] = objects("tables", catalog_filter="state")
        [tables] = [s["db_schema_tables"] for s in state["catalog_db_schemas"]]
        assert [(t["table_name"], t["table_type"]) for t in tables] == [("departures", "VIEW")]
        [memory] = objects("all", catalog_filter="memory", db_schema_filter="ma_n", table_name_filter="count%")
        [table] = memory["catalog_db_schemas"][0]["db_schema_tables"]
        columns = [(c["column_name"], c["ordinal_position"], c["xdbc_type_name"]) for c in table["table_columns"]]
        assert columns == [("k", 1, "VARCHAR"), ("n", 2, "BIGINT")]
        [memory] = objects("tables", catalog_filter="memory", table_types_filter=["VIEW"])
        found = {s["db_schema_name"]: s["db_schema_tables"] for s in memory["catalog_db_schemas"]}
        assert not found.get("main")
        assert "jobs" in [t["table_name"] for t in found["sqlstream"]]


def test_tables_and_what_the_server_says_of_itself(served: Served) -> None:
    with served.connect() as connection:
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
        info = connection.adbc_get_info()
        assert (info["vendor_name"], info["vendor_arrow_version"]) == ("sqlstream", pa.__version__)
        schema = connection.adbc_get_table_schema("departures", catalog_filter="state", db_schema_filter="hourly")
        assert schema.equals(served.table("FROM state.hourly.departures").schema, check_metadata=False)
        operators = connection.adbc_get_table_schema("operators", catalog_filter="memory", db_schema_filter="sqlstream")
        assert operators.equals(served.table("FROM sqlstream.operators").schema, check_metadata=False)


def test_transactions_are_answered(served: Served) -> None:
    # ADBC begins one by itself.
    with adbc_driver_flightsql.dbapi.connect(served.url) as connection, connection.cursor() as cursor:
        for end in (connection.commit, connection.rollback):
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
            end()


ERRORS = [
    ("SELECT total FROM counts", "OperationalError", 'column "total" does not exist\n --> query:1:8\n'),
    (
        "FROM count",
        "OperationalError",
        '--> query:1:6\n   |\n 1 | FROM count\n   |      ^^^^^\nhint: did you mean "counts"?',
    ),
    ("SELECT 1 +", "OperationalError", "syntax error"),
    ("SELECT 'x'::INTEGER FROM counts", "OperationalError", "could not convert string 'x' to INTEGER"),
    ("SELECT error('boom') FROM counts", "OperationalError", "boom"),
    ("INSERT INTO counts VALUES ('x', 1)", "ProgrammingError", "INSERT is not a query"),
    ("WITH x AS (COPY (SELECT 1) TO 'f') FROM x", "ProgrammingError", "COPY"),
    ("FROM read_csv('/etc/passwd')", "ProgrammingError", "outside of what a query may read"),
    ("SELECT 1; SELECT 2", "OperationalError", "one statement"),
    ("SELECT 'abc", "OperationalError", "unterminated"),
    ("SELECT $70000", "OperationalError", "there is no parameter $70000"),
    ("-- nothing", "OperationalError", "there is no query"),
]


@pytest.mark.parametrize(("sql", "kind", "text"), ERRORS)
def test_errors_are_ours(served: Served, sql: str, kind: str, text: str) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(getattr(connection, kind)) as raised:
            fetch(cursor, sql)
        told = str(raised.value)
        assert text.replace("\n -->", "\n  -->") in told
        assert not any(word in told for word in ("Traceback", "duckdb", "Binder Error", ".py"))
        # The connection goes on.
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


@pytest.mark.slow
def test_an_error_behind_a_parameter_has_the_place_that_was_written(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(connection.OperationalError, match=r"query:1:15\n .*\n .*SELECT \?, \? \+ nope FROM counts"):
            cursor.execute("SELECT ?, ? + nope FROM counts", ["a long text", 12345678])
        with pytest.raises(connection.OperationalError, match="0 parameters are given, and 1 are needed"):
            cursor.execute("SELECT ?")
        with pytest.raises(connection.OperationalError, match="one row of parameters, not 2"):
            cursor.execute("SELECT ?", pa.record_batch({"a": [1, 2]}))
        # A message has room for some of a long text.
        with pytest.raises(connection.OperationalError, match=r"could not convert string\s+'[äx]+\.\.\."):
            fetch(cursor, f"SELECT '{'äx' * 20_000}'::INTEGER FROM counts")


def test_what_writes_is_refused(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        with connection.cursor() as other, pytest.raises(connection.Error, match="clients only read"):
            other.adbc_ingest("counts", pa.table({"k": ["x"], "n": [1]}), mode="append")
        cursor.adbc_statement.set_sql_query("DELETE FROM counts")
        with pytest.raises(connection.ProgrammingError, match="DELETE is not a query"):
            cursor.adbc_statement.execute_update()
        cursor.adbc_statement.set_sql_query("SELECT 1")
        with pytest.raises(connection.OperationalError, match="a query changes nothing"):
            cursor.adbc_statement.execute_update()
    assert served.rows("SELECT count(*) FROM counts") == [(2,)]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (253_402_300_800_000_000, pa.timestamp("us"), "10000-01-01 00:00:00"),
        (2_000_000_000_000, pa.timestamp("s"), "65347-06-24 03:33:20"),
        (-62_135_596_801, pa.timestamp("s", "UTC"), "0001-12-31 (BC) 23:59:59+00"),
        (2**63 - 1, pa.timestamp("us"), "infinity"),
        (5_000_000, pa.date32(), "15659-07-15"),
    ],
)
def test_a_parameter_beyond_the_calendar_of_python(served: Served, value: int, kind: pa.DataType, text: str) -> None:
    number = pa.array([value], pa.int32() if pa.types.is_date(kind) else pa.int64())
    sql = sql_value(number.cast(kind)[0])
    assert text in sql
    assert served.rows(f"SELECT CAST({sql} AS VARCHAR)") == [(text,)]
