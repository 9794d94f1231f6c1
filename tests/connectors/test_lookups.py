"""Joins with what tables outside have at the moment."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.lookup import CachedLookup, open_lookup
from sqlstream.connectors.mysql import lookup as mysql_lookup
from sqlstream.errors import DataError, JobError, SqlStreamError
from sqlstream.testing import Stream
from tests.mariadb_server import MariaDBServer
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

USERS = "SELECT * FROM (VALUES (1, 'ann', 'rome'), (2, 'bob', NULL)) AS t(id, name, city)"
SCRIPT = """
CREATE TABLE clicks (n BIGINT, u BIGINT, p AS PROCTIME());
CREATE TABLE users (id INT, name STRING, city STRING) WITH ({options});
CREATE TABLE out (n BIGINT, name STRING, city STRING);
INSERT INTO out SELECT n, name, city FROM clicks {join} users FOR SYSTEM_TIME AS OF clicks.p ON clicks.u = users.id{more}
"""
CLICKS = [(1, 1), (2, 2), (3, 1), (4, 7), (5, None), (6, 2**40)]


@pytest.fixture
def server(postgres: PostgresServer) -> str:
    return postgres.database().url


def files(form: str) -> Callable[[Path], str]:
    def make(tmp_path: Path) -> str:
        duckdb.sql(f"COPY ({USERS}) TO '{tmp_path}/users.{form}' (FORMAT {form}{', HEADER false' * (form == 'csv')})")
        return f"'connector' = 'filesystem', 'format' = '{form}', 'path' = '{tmp_path}/users.{form}'"

    return make


def database(tmp_path: Path) -> str:
    with duckdb.connect(str(tmp_path / "users.duckdb")) as con:
        con.execute(f"CREATE SCHEMA people; CREATE TABLE people.users AS {USERS}")
    return f"'connector' = 'duckdb', 'path' = '{tmp_path}/users.duckdb', 'table' = 'people.users'"


def sqlite_file(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "users.db", isolation_level=None)) as con:
        con.executescript(
            "CREATE TABLE users (ID integer, name varchar, city); "
            "INSERT INTO users VALUES (1, 'ann', 'rome'), (2, 'bob', NULL)"
        )
    return f"'connector' = 'sqlite', 'path' = '{tmp_path}/users.db', 'table' = 'users'"


def python(name: str) -> Callable[[Path], str]:
    return lambda tmp_path: f"'connector' = 'python', 'function' = 'tests.connectors.own_lookups.{name}'"


def answering(tmp_path: Path) -> str:
    return f"'connector' = 'python', 'function' = 'tests.connectors.own_lookups.Users', 'log' = '{tmp_path}/log'"


def result(options: str, join: str = "JOIN", more: str = "") -> list[tuple[Any, ...]]:
    with Stream(SCRIPT.format(options=options, join=join, more=more), parallelism=2) as stream:
        stream.batch("clicks", CLICKS[:3])
        stream.restart()
        stream.batch("clicks", CLICKS[3:])
        return sorted(stream.rows("out"), key=str)


KINDS = {
    **{form: files(form) for form in ("parquet", "csv", "json")},
    "duckdb": database,
    "sqlite": sqlite_file,
    "function": python("user"),
    "async": python("user_later"),
    "class": answering,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("cache", ["", ", 'lookup.cache' = 'PARTIAL'"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_find_what_is_there(kind: str, cache: str, tmp_path: Path) -> None:
    options = KINDS[kind](tmp_path) + cache
    inner = [(1, "ann", "rome"), (2, "bob", None), (3, "ann", "rome")]
    assert result(options) == inner
    none = [(n, None, None) for n in (4, 5, 6)]
    assert result(options, "LEFT JOIN") == [*inner, *none]
    # A condition on what was found leaves a row of a left join alone.
    assert result(options, "LEFT JOIN", " AND users.city = 'rome'")[1] == (2, None, None)
    assert result(options, "JOIN", " WHERE users.city = 'rome' AND n > 1") == [(3, "ann", "rome")]


def test_what_changes_outside_is_found(tmp_path: Path) -> None:
    with Stream(SCRIPT.format(options=database(tmp_path), join="JOIN", more="")) as stream:
        stream.batch("clicks", [(1, 1)])
        with duckdb.connect(str(tmp_path / "users.duckdb")) as con:
            con.execute("UPDATE people.users SET name = 'eve' WHERE id = 1")
        stream.batch("clicks", [(2, 1)])
        assert sorted(stream.rows("out")) == [(1, "ann", "rome"), (2, "eve", "rome")]


def test_several_rows_of_a_key_by_a_constant_and_by_two_keys(tmp_path: Path) -> None:
    script = """
    CREATE TABLE clicks (n BIGINT, u BIGINT, p AS PROCTIME());
    CREATE TABLE orders (user BIGINT, item STRING{key})
    WITH ('connector' = 'python', 'function' = 'tests.connectors.own_lookups.orders');
    CREATE TABLE out (n BIGINT, item STRING, upper STRING);
    INSERT INTO out SELECT c.n, a.item, UPPER(b.item) FROM clicks c
      LEFT JOIN orders FOR SYSTEM_TIME AS OF c.p AS a ON a.user = c.u
      JOIN orders FOR SYSTEM_TIME AS OF c.p AS b ON b.user = 1 AND b.item = a.item"""
    # The key of a table says what is looked up; without one it is all that rows give.
    raised = r'function "tests.connectors.own_lookups.orders" of table "orders" raised TypeError'
    with Stream(script.format(key="")) as stream, pytest.raises(JobError, match=raised):
        stream.batch("clicks", [(1, 1)])
    with Stream(script.format(key=", PRIMARY KEY (user) NOT ENFORCED")) as stream:
        stream.batch("clicks", [(1, 1), (2, 2)])
        assert sorted(stream.rows("out")) == [(1, "ink", "INK"), (1, "pen", "PEN")]


def test_postgresql(server: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS users")
        con.execute("CREATE TABLE users (id integer PRIMARY KEY, name varchar(10), city text)")
        con.execute("INSERT INTO users VALUES (1, 'ann', 'rome'), (2, 'bob', NULL)")
    options = f"'connector' = 'postgresql', 'url' = '{server}', 'table' = 'public.users'"
    expected = [(1, "ann", "rome"), (2, "bob", None), (3, "ann", "rome"), *((n, None, None) for n in (4, 5, 6))]
    assert result(options, "LEFT JOIN") == expected
    missing = options.replace("public.users", "nothing")
    with pytest.raises(DataError, match=r'table "users": relation "nothing" does not exist'):
        result(missing)


def test_postgresql_types_and_a_lost_connection(server: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as con:
        con.execute("DROP TABLE IF EXISTS kinds")
        con.execute(
            "CREATE TABLE kinds (day date, code varchar, at timestamptz, price numeric(10, 2), doc jsonb, ok boolean, id uuid)"
        )
        con.execute(
            "INSERT INTO kinds VALUES ('2026-01-02', 'a', '2026-01-01 10:00:00+02', 1.50, '{\"a\": 1}', true,"
            " '00000000-0000-0000-0000-000000000001')"
        )
    script = f"""
    CREATE TABLE rows (day DATE, code STRING, price DECIMAL(10, 2), p AS PROCTIME());
    CREATE TABLE kinds (day DATE, code STRING, at TIMESTAMP_LTZ(3), price DECIMAL(10, 2), doc STRING, ok BOOLEAN, id UUID)
    WITH ('connector' = 'postgresql', 'url' = '{server}', 'table' = 'kinds');
    CREATE TABLE out (at TIMESTAMP_LTZ(3), price DECIMAL(10, 2), doc STRING, ok BOOLEAN, id UUID);
    INSERT INTO out SELECT k.at, k.price, k.doc, k.ok, k.id FROM rows r
      JOIN kinds FOR SYSTEM_TIME AS OF r.p AS k ON k.day = r.day AND k.code = r.code AND k.price = r.price"""
    with Stream(script) as stream:
        stream.batch("rows", [("2026-01-02", "a", "1.50"), ("2026-01-02", "b", "1.50")])
        with psycopg.connect(server, autocommit=True) as con:
            con.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        stream.batch("rows", [("2026-01-02", "a", "1.50")])
        [row, again] = stream.rows("out")
        assert row == again
        assert (str(row[0])[:19], str(row[1]), json.loads(row[2]), row[3]) == (
            "2026-01-01 08:00:00",
            "1.50",
            {"a": 1},
            True,
        )


def test_mysql(mariadb: MariaDBServer) -> None:
    database = mariadb.database()
    database.run(
        "CREATE TABLE users (id integer PRIMARY KEY, name varchar(10), city text)",
        "INSERT INTO users VALUES (1, 'ann', 'rome'), (2, 'bob', NULL)",
    )
    options = f"'connector' = 'mysql', 'url' = '{database.url}', 'table' = 'users'"
    expected = [(1, "ann", "rome"), (2, "bob", None), (3, "ann", "rome"), *((n, None, None) for n in (4, 5, 6))]
    assert result(options, "LEFT JOIN") == expected
    missing = options.replace("'users'", "'nothing'")
    with pytest.raises(DataError, match=r'table "users": Table .*nothing\' doesn\'t exist'):
        result(missing)


# Of keys: how the table has them, how they are declared, one that is there and one that is not.
MYSQL_KEYS = {
    "text": ("varchar(9) COLLATE utf8mb4_general_ci", "STRING", "it's", "IT'S"),
    "number as text": ("int", "STRING", "7", "07"),
    "float": ("float", "FLOAT", 0.1, 0.2),
    "decimal": ("decimal(9,3)", "DECIMAL(9, 3)", Decimal("-1.500"), Decimal("1.500")),
    "instant": ("timestamp(3)", "TIMESTAMP_LTZ(3)", "2026-03-29 01:30:00+00", "2026-03-29 02:30:00+00"),
    "clock": ("time", "TIME", "10:00:00", "10:00:01"),
    "bit": ("bit(1)", "BOOLEAN", True, False),
    "bytes": ("varbinary(9)", "BYTES", b"\\'\x00", b""),
    "uuid": ("uuid", "UUID", "00000000-0000-0000-0000-000000000007", "00000000-0000-0000-0000-000000000008"),
}


def test_mysql_keys_and_a_server_that_is_away(mariadb: MariaDBServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_lookup, "_CHUNK", 1)
    database = mariadb.database()
    there = ", ".join(f"k{i} {kind}" for i, (kind, *_) in enumerate(MYSQL_KEYS.values()))
    declared = ", ".join(f"k{i} {kind}" for i, (_, kind, *_) in enumerate(MYSQL_KEYS.values()))
    script = f"""
    CREATE TABLE rows (n INT, {declared}, p AS PROCTIME());
    CREATE TABLE kinds ({declared}, doc ROW<a INT, b ARRAY<STRING>>)
    WITH ('connector' = 'mysql', 'url' = '{database.url}', 'table' = 'kinds');
    CREATE TABLE out (n INT, key INT, doc ROW<a INT, b ARRAY<STRING>>);
    """
    for i in range(len(MYSQL_KEYS)):
        script += f"""INSERT INTO out SELECT r.n, {i}, k.doc FROM rows r
        LEFT JOIN kinds FOR SYSTEM_TIME AS OF r.p AS k ON k.k{i} = r.k{i};"""
    # All keys that are there, all that are not, and all that are both.
    known, unknown = [v[2] for v in MYSQL_KEYS.values()], [v[3] for v in MYSQL_KEYS.values()]
    expected = [(n, i, {"a": 1, "b": ["x"]} if n == 1 else None) for n in (1, 2) for i in range(len(MYSQL_KEYS))]
    database.run(f"CREATE TABLE kinds ({there}, doc json)")
    values = ["'it''s'", "7", "0.1", "-1.5", "'2026-03-29 01:30:00'", "'10:00:00'", "1", "X'5C2700'", f"'{known[-1]}'"]
    database.run(
        "SET time_zone = '+00:00'", f'INSERT INTO kinds VALUES ({", ".join(values)}, \'{{"a": 1, "b": ["x"]}}\')'
    )
    with Stream(script) as stream:
        stream.batch("rows", [(1, *known)])
        mariadb.crash()
        stream.batch("rows", [(2, *unknown)])
        assert sorted(stream.rows("out"), key=lambda row: row[:2]) == expected


def test_a_lookup_that_fails_is_tried_again_and_never_loses_a_row(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    options = f"{answering(tmp_path)}, 'broken' = '{broken}', 'lookup.max-retries' = '2'"
    with Stream(SCRIPT.format(options=options, join="JOIN", more="")) as stream:
        broken.write_text("xx")
        stream.batch("clicks", [(1, 1)])
        assert stream.rows("out") == [(1, "ann", "rome")]
        broken.write_text("xxxxx")
        with pytest.raises(JobError) as failed:
            stream.batch("clicks", [(2, 2)])
        assert failed.value.render().startswith(
            'job failed: looking up rows of table "users" failed 3 times: '
            'function "tests.connectors.own_lookups.Users" of table "users" '
            "raised ConnectionError: nobody answers\n  --> "
        )
        assert "users FOR SYSTEM_TIME" in failed.value.render()
        assert stream.rows("out") == [(1, "ann", "rome")]
    assert (tmp_path / "log").read_text().split() == ["1", "1", "1", "2", "2", "2"]


def test_an_answer_with_a_column_that_is_not_declared() -> None:
    options = "'connector' = 'python', 'function' = 'tests.connectors.own_lookups.wrong'"
    with pytest.raises(DataError, match='table "users" has no column "nam"') as failed:
        result(options)
    assert failed.value.hint == 'did you mean "name"?'


def test_keys_of_a_batch_are_asked_for_once_and_an_asynchronous_function_waits_for_many(tmp_path: Path) -> None:
    options = f"'connector' = 'python', 'function' = 'tests.connectors.own_lookups.Later', 'log' = '{tmp_path}/log'"
    with Stream(SCRIPT.format(options=options, join="JOIN", more="")) as stream:
        stream.batch("clicks", [(n, n % 50) for n in range(300)])
        assert len(stream.rows("out")) == 300
    # The last one to begin saw all others waiting.
    assert sorted((tmp_path / "log").read_text().split(), key=int) == [str(n) for n in range(1, 51)]


class Outside:
    """A table outside that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, keys: pa.Table) -> pa.Table:
        self.asked.append(sorted(keys.column("id").to_pylist()))
        found = [i for i in self.asked[-1] if i < 100 for _ in range(2)]
        return pa.table({"id": pa.array(found, pa.int32()), "n": pa.array(found, pa.int32())})


def cached(**options: str) -> tuple[CachedLookup, Outside, list[float]]:
    now, outside = [0.0], Outside()
    columns = (Column("id", "INTEGER"), Column("n", "INTEGER"))
    table = Table(
        "t", columns, options={"lookup.cache": "PARTIAL", **{k.replace("_", "-"): v for k, v in options.items()}}
    )
    return CachedLookup(table, outside, clock=lambda: now[0]), outside, now


def ask(lookup: CachedLookup, *ids: int) -> list[int]:
    return sorted(lookup.find(pa.table({"id": pa.array(ids, pa.int32())})).column("n").to_pylist())


def test_a_cache_answers_what_it_knows_also_that_there_is_nothing() -> None:
    lookup, outside, _ = cached()
    assert ask(lookup, 1, 2, 100) == [1, 1, 2, 2]
    assert ask(lookup, 2, 3, 100) == [2, 2, 3, 3]
    assert ask(lookup, 100) == []
    assert outside.asked == [[1, 2, 100], [3]]


def test_a_cache_forgets_after_its_time_and_beyond_its_size() -> None:
    lookup, outside, now = cached(**{"lookup.partial-cache.expire-after-write": "10 s"})
    ask(lookup, 1)
    now[0] = 9.9
    ask(lookup, 1, 2)
    now[0] = 10.0
    ask(lookup, 1, 2)
    assert outside.asked == [[1], [2], [1]]
    lookup, outside, _ = cached(**{"lookup.partial-cache.max-rows": "4"})
    ask(lookup, 1, 2)
    ask(lookup, 1)
    # Of 1, 2 and 3, two rows each, the one goes that was not asked for longest.
    assert ask(lookup, 3) == [3, 3]
    ask(lookup, 1)
    ask(lookup, 2)
    assert outside.asked == [[1, 2], [3], [2]]


def test_threads_of_a_process_ask_one_after_the_other() -> None:
    """A connection to a database is for one thread at a time, and so is the cache."""
    lookup, outside, _ = cached(**{"lookup.partial-cache.max-rows": "20"})
    asking = threading.Semaphore(1)

    def alone(keys: pa.Table) -> pa.Table:
        assert asking.acquire(blocking=False)
        time.sleep(0.001)
        asking.release()
        return outside(keys)

    lookup._look_up = alone
    wanted = [tuple(random.Random(n).sample(range(100), 8)) for n in range(100)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda ids: ask(lookup, *ids), wanted))
    assert found == [sorted([*ids, *ids]) for ids in wanted]


def test_a_cache_keeps_times_that_python_lacks() -> None:
    times = ["2026-01-01", "infinity", "12000-01-01", "0044-03-15 (BC)"]
    listed = ", ".join(
        f"({n}, TIMESTAMP '{time}', DATE '{time}', TIMESTAMP_NS '2026-01-01')" for n, time in enumerate(times)
    )
    rows = duckdb.connect().sql(f"FROM (VALUES {listed}) AS t(id, moment, day, ns)").to_arrow_table()
    table = Table("t", (Column("id", "INTEGER"),), options={"lookup.cache": "PARTIAL"})
    lookup = CachedLookup(table, lambda keys: rows)
    for _ in range(2):
        assert lookup.find(rows.select(["id"])) == rows
        assert lookup.find(rows.select(["moment"])) == rows


def test_a_cache_may_ask_again_for_what_was_not_there() -> None:
    lookup, outside, _ = cached(**{"lookup.partial-cache.cache-missing-key": "false"})
    ask(lookup, 1, 100)
    assert ask(lookup, 1, 100) == [1, 1]
    assert outside.asked == [[1, 100], [100]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'connector' = 'duckdb', 'path' = 'x'", 'table "users" needs the option "table"'),
        ("'connector' = 'duckdb', 'path' = 'x', 'table' = 't', 'mode' = 'r'", 'option "mode" does not exist'),
        ("'connector' = 'postgresql', 'table' = 't'", 'table "users" needs the option "url"'),
        ("'lookup.cache' = 'FULL'", 'option "lookup.cache": "FULL" is neither NONE nor PARTIAL'),
        ("'lookup.max-retries' = 'x'", 'option "lookup.max-retries"'),
        ("'connector' = 'python', 'function' = 'tests.connectors.own_lookups.nobody'", 'has no function "nobody"'),
        (
            "'connector' = 'python', 'function' = 'tests.connectors.own_lookups.USERS'",
            '"tests.connectors.own_lookups.USERS" cannot be called',
        ),
    ],
)
def test_options_that_do_not_fit(options: str, message: str) -> None:
    with pytest.raises(SqlStreamError) as failed:
        result(options)
    assert message in str(failed.value)


def test_a_table_that_no_job_has_written(tmp_path: Path) -> None:
    table = Table("nobody", (Column("id", "INTEGER"),), options={"lookup.max-retries": "0"})
    lookup = open_lookup(table, ["id"], warehouse=str(tmp_path), project=str(tmp_path))
    with pytest.raises(JobError, match=r'looking up rows of table "nobody" failed: table "nobody" does not exist'):
        ask(lookup, 1)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    options = f"'connector' = 'duckdb', 'path' = '{tmp_path}/no.duckdb', 'table' = 'users'"
    assert not os.path.exists(tmp_path / "no.duckdb")
    with pytest.raises(DataError, match=r'no.duckdb" of table "users" does not exist'):
        result(options)


def test_a_malformed_row_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('{"id": 1, "name": "ann"}\n{"id": "x", "name": "bob"}\nno object\n')
    script = f"""
    CREATE TABLE clicks (u BIGINT, p AS PROCTIME());
    CREATE TABLE people (id BIGINT, name STRING)
    WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/people.json', 'lookup.max-retries' = '0' {{more}});
    CREATE TABLE out (name STRING);
    INSERT INTO out SELECT w.name FROM clicks c JOIN people FOR SYSTEM_TIME AS OF c.p AS w ON w.id = c.u"""
    with Stream(script.format(more="")) as stream, pytest.raises(JobError) as raised:
        stream.batch("clicks", [(1,)])
    assert "failed: line 2 of file" in raised.value.message
    assert raised.value.detail == 'Column "id" does not hold a BIGINT: {"id": "x", "name": "bob"}'
    assert raised.value.hint == "Set 'json.ignore-parse-errors' = 'true' to leave out such rows."
    with Stream(script.format(more=", 'json.ignore-parse-errors' = 'true'")) as stream:
        stream.batch("clicks", [(1,)])
        assert stream.rows("out") == [("ann",)]


def test_a_column_that_the_database_lacks(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "users.duckdb")) as con:
        con.execute("CREATE TABLE users (number INTEGER)")
    options = f"'connector' = 'duckdb', 'path' = '{tmp_path}/users.duckdb', 'table' = 'users'"
    with pytest.raises(DataError, match='table "users" is not declared as it is in') as failed:
        result(options)
    assert failed.value.span is not None
    assert failed.value.detail is not None
    assert "number" in failed.value.detail


def test_a_key_that_python_does_not_have_is_named() -> None:
    script = """
        CREATE TABLE visits (d DATE, p AS PROCTIME());
        CREATE TABLE days (d DATE, name STRING) WITH (
            'connector' = 'python', 'function' = 'tests.connectors.own_lookups.name_of_day');
        CREATE TABLE out (d DATE, name STRING);
        INSERT INTO out SELECT v.d, days.name FROM visits AS v JOIN days FOR SYSTEM_TIME AS OF v.p ON v.d = days.d;
    """
    with Stream(script) as stream:
        far = pa.table({"d": pa.array([3_700_000], pa.date32())})
        with pytest.raises(
            JobError, match='a key to look up in table "days" is a date or time that Python does not have'
        ):
            stream.batch("visits", far)
