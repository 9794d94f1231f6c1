"""Jobs and servers killed at any moment: databases have what a query over all input gives, and readers see whole batches."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.forked import Forked, start_python
from tests.mariadb_server import MariaDBServer, MySQLDatabase
from tests.postgres_server import Database, PostgresServer
from tests.processes import SECONDS

FILES, ROWS = 24, 50
# The jobs over files take 12 batches; runs that are killed do at most 3 each, and the first two hardly any.
KILLS, ROUNDS = 4, 3

SCRIPT = """
CREATE TABLE given (k BIGINT, part BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '2');

CREATE TABLE pg_rows (k BIGINT, part BIGINT)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'pg_rows', 'sink.create-table' = 'true');
INSERT INTO pg_rows SELECT k, part FROM given;

CREATE TABLE pg_counts (part BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (part) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'pg_counts', 'sink.create-table' = 'true');
INSERT INTO pg_counts SELECT part, COUNT(*), SUM(k) FROM given GROUP BY part HAVING SUM(k) % 3 > 0;

CREATE TABLE orders (id BIGINT, item STRING, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'table-name' = 'orders', 'source.monitor-interval' = '0 s',
  'source.max-rows-per-batch' = '300');
CREATE TABLE pg_copy (id BIGINT, item STRING, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'pg_copy', 'sink.create-table' = 'true');
INSERT INTO pg_copy SELECT * FROM orders;

CREATE TABLE my_rows (k BIGINT, part BIGINT)
WITH ('connector' = 'mysql', 'url' = '{mysql}', 'table' = 'my_rows', 'sink.create-table' = 'true');
INSERT INTO my_rows SELECT k, part FROM given;

CREATE TABLE my_counts (part BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (part) NOT ENFORCED)
WITH ('connector' = 'mysql', 'url' = '{mysql}', 'table' = 'my_counts', 'sink.create-table' = 'true');
INSERT INTO my_counts SELECT part, COUNT(*), SUM(k) FROM given GROUP BY part HAVING SUM(k) % 3 > 0;

CREATE TABLE my_orders (id BIGINT, item STRING, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'mysql-cdc', 'url' = '{mysql}', 'table-name' = 'orders', 'source.monitor-interval' = '0 s',
  'source.max-rows-per-batch' = '300');
CREATE TABLE my_copy (id BIGINT, item STRING, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'mysql', 'url' = '{mysql}', 'table' = 'my_copy', 'sink.create-table' = 'true');
INSERT INTO my_copy SELECT * FROM my_orders;

CREATE TABLE lite_counts (part BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (part) NOT ENFORCED)
WITH ('connector' = 'sqlite', 'path' = 'out.sqlite', 'table' = 'counts', 'sink.create-table' = 'true');
INSERT INTO lite_counts SELECT part, COUNT(*), SUM(k) FROM given GROUP BY part HAVING SUM(k) % 3 > 0;

CREATE TABLE duck_rows (k BIGINT, part BIGINT)
WITH ('connector' = 'duckdb', 'path' = 'out.duckdb', 'table' = 'rows', 'sink.create-table' = 'true');
INSERT INTO duck_rows SELECT k, part FROM given;
"""


def start(project: Path, *arguments: str) -> Forked:
    return start_python("-m", "tests.connectors.database_jobs", str(project), *arguments)


def rows_of(table: str, database: Database | MySQLDatabase) -> list[tuple[Any, ...]]:
    there = database.run(
        f"SELECT table_name FROM information_schema.tables WHERE table_name = '{table}'{own(database)}"
    )
    return database.run(f"SELECT * FROM {table}") if there else []


def own(database: Database | MySQLDatabase) -> str:
    """Return the condition for tables of a database; a PostgreSQL server knows no others."""
    return f" AND table_schema = '{database.name}'" if isinstance(database, MySQLDatabase) else ""


def check_whole(table: str, database: Database | MySQLDatabase) -> None:
    """No row is there twice, and a batch of two files is there wholly or not at all."""
    keys = [k for k, _ in rows_of(table, database)]
    assert len(keys) == len(set(keys)), "a row is there twice"
    assert all(n == 2 * ROWS for n in Counter(k // (2 * ROWS) for k in keys).values()), "half a batch is seen"


def change(database: Database, moments: random.Random) -> None:
    """Change some of the orders, each time by a few transactions."""
    for _ in range(moments.randrange(1, 6)):
        key = moments.randrange(3000)
        database.run(
            f"BEGIN; UPDATE orders SET price = price + 1 WHERE id % 97 = {key % 97}; DELETE FROM orders WHERE id = {key};"
            f" INSERT INTO orders VALUES ({key + 3000}, 'new', 1) ON CONFLICT DO NOTHING; COMMIT"
        )


def change_mysql(database: MySQLDatabase, moments: random.Random) -> None:
    """Change some of the orders there, each time by a few transactions."""
    for _ in range(moments.randrange(1, 6)):
        key = moments.randrange(3000)
        database.run(
            "BEGIN",
            f"UPDATE orders SET price = price + 1 WHERE id % 97 = {key % 97}",
            f"DELETE FROM orders WHERE id = {key}",
            f"INSERT IGNORE INTO orders VALUES ({key + 3000}, 'new', 1)",
            "COMMIT",
        )


@pytest.mark.slow
@pytest.mark.thorough
def test_kills_of_jobs_and_crashes_of_servers_change_nothing(
    tmp_path: Path, postgres: PostgresServer, mariadb: MariaDBServer, request: pytest.FixtureRequest
) -> None:
    database, mysql = postgres.database(), mariadb.database()
    request.addfinalizer(database.drop_slots)
    database.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, price numeric(10, 2))",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT g, 'item ' || g % 7, g % 100 FROM generate_series(1, 3000) g",
    )
    mysql.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item varchar(20), price decimal(10, 2))",
        "INSERT INTO orders SELECT seq, concat('item ', seq % 7), seq % 100 FROM seq_1_to_3000",
    )
    given(tmp_path)
    (tmp_path / "jobs.sql").write_text(SCRIPT.format(url=database.url, mysql=mysql.url))
    moments = random.Random(5)
    for number in range(KILLS):
        run = start(tmp_path, str(ROUNDS))
        assert run.stdout is not None
        # The first two are killed before, or while, they begin.
        if number >= 2:
            line = run.stdout.readline()
            assert line == "batch\n", line + run.stdout.read()
        deadline = time.monotonic() + moments.uniform(0.0, 0.4) + 1.5 * (number < 2)
        while time.monotonic() < deadline:
            change(database, moments)
            change_mysql(mysql, moments)
            check_whole("pg_rows", database)
            check_whole("my_rows", mysql)
        if number == 2:
            database.crash()
            change(database, moments)
        if number >= 2:
            mariadb.crash()
            change_mysql(mysql, moments)
        run.kill()
        run.communicate()
        check_whole("pg_rows", database)
        check_whole("my_rows", mysql)
    run = start(tmp_path)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    check_results(database)
    assert sorted(rows_of("my_copy", mysql)) == sorted(mysql.run("SELECT * FROM orders"))
    assert sorted(rows_of("my_rows", mysql)) == [(k, k % 11) for k in range(FILES * ROWS)]
    assert sorted(rows_of("my_counts", mysql)) == counts()
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as con:
        assert sorted(con.execute("SELECT * FROM counts")) == counts()
    with duckdb.connect(str(tmp_path / "out.duckdb")) as con:
        assert sorted(con.execute("SELECT * FROM rows").fetchall()) == [(k, k % 11) for k in range(FILES * ROWS)]


def given(project: Path) -> None:
    """Write the files that jobs read."""
    (project / "given").mkdir()
    for number in range(FILES):
        keys = list(range(number * ROWS, (number + 1) * ROWS))
        table = pa.table({"k": keys, "part": [k % 11 for k in keys]})
        pq.write_table(table, project / "given" / f"{number:03}.parquet")


def counts() -> list[tuple[int, int, int]]:
    """What is to come out of the rows of the files."""
    parts = [[k for k in range(FILES * ROWS) if k % 11 == part] for part in range(11)]
    return [(part, len(keys), sum(keys)) for part, keys in enumerate(parts) if sum(keys) % 3 > 0]


def check_results(database: Database) -> None:
    assert sorted(rows_of("pg_rows", database)) == [(k, k % 11) for k in range(FILES * ROWS)]
    assert sorted(rows_of("pg_counts", database)) == counts()
    assert sorted(rows_of("pg_copy", database)) == sorted(database.run("SELECT * FROM orders"))
