"""Tables of a PostgreSQL server as their rows and changes: values, keys, restarts, and what is refused or lost."""

from __future__ import annotations

import datetime
import random
import uuid
from decimal import Decimal
from typing import Any

import pytest

from sqlstream.connectors.postgres_cdc.discovery import SlotDiscovery
from sqlstream.errors import BindError, DataError, OutageError, UsageError
from sqlstream.testing import Stream
from tests.kinds import last_job
from tests.postgres_server import Database, PostgresServer
from tests.processes import SECONDS, wait_until

pytestmark = pytest.mark.slow

SCRIPT = """
CREATE TABLE orders (id BIGINT, item STRING, price DECIMAL(10, 2){key})
WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'table-name' = 'orders', 'source.monitor-interval' = '0 s'{more});
CREATE TABLE copied (id BIGINT, item STRING, price DECIMAL(10, 2){key});
CREATE TABLE sums (item STRING, n BIGINT, total DECIMAL(38, 2));
INSERT INTO copied SELECT * FROM orders;
INSERT INTO sums SELECT item, COUNT(*), SUM(price) FROM orders GROUP BY item
"""
KEY = ", PRIMARY KEY (id) NOT ENFORCED"


@pytest.fixture
def database(postgres: PostgresServer) -> Any:
    database = postgres.database()
    database.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text, price numeric(10, 2), note text)")
    yield database
    database.drop_slots()


def full(database: Database) -> None:
    database.run("ALTER TABLE orders REPLICA IDENTITY FULL")


def script(database: Database, key: str = KEY, more: str = "") -> str:
    return SCRIPT.format(url=database.url, key=key, more=more)


def settles(stream: Stream, database: Database, seconds: float = SECONDS) -> None:
    """What jobs make of the changes becomes what a query over the table gives."""
    rows = database.run("SELECT id, item, price FROM orders")
    sums = database.run("SELECT item, count(*), sum(price) FROM orders GROUP BY item")

    def is_there() -> bool:
        for run in stream.runs.values():
            run.pull()
        same = sorted(stream.rows("copied"), key=str) == sorted(rows, key=str)
        return same and sorted(stream.rows("sums"), key=str) == sorted(sums, key=str)

    wait_until(is_there, seconds)


def change(database: Database, moments: random.Random) -> None:
    """Change some rows in some transactions: insert, update, also the key, delete."""
    for _ in range(moments.randrange(1, 6)):
        statements = []
        for _ in range(moments.randrange(1, 4)):
            key, price = moments.randrange(30), moments.randrange(1000) / 100
            statements.append(
                moments.choice(
                    [
                        f"INSERT INTO orders VALUES ({key}, 'item {key % 3}', {price}) ON CONFLICT (id) DO NOTHING",
                        f"UPDATE orders SET price = {price} WHERE id = {key}",
                        f"UPDATE orders SET item = NULL WHERE id % 7 = {key % 7}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"UPDATE orders SET id = {key + 100} WHERE id = {key}"
                        f" AND NOT EXISTS (SELECT 1 FROM orders WHERE id = {key + 100})",
                    ]
                )
            )
        database.run("; ".join(["BEGIN", *statements, moments.choice(["COMMIT", "COMMIT", "ROLLBACK"])]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("key", ["", KEY], ids=["rows", "keys"])
def test_a_copy_is_what_the_table_is(key: str, database: Database) -> None:
    full(database)
    database.run(
        "INSERT INTO orders SELECT g, 'item ' || g % 3, g FROM generate_series(1, 10) g", "CREATE TABLE other (n int)"
    )
    moments = random.Random(11)
    with Stream(script(database, key, ", 'source.max-rows-per-batch' = '4'")) as stream:
        for round in range(8):
            change(database, moments)
            database.run("INSERT INTO other VALUES (1)")
            if round % 3 == 1:
                stream.restart()
            settles(stream, database)
        # What the jobs have received can be read again.
        assert all(stream.verify(job) for job in stream.runs)


def test_types_and_values(database: Database) -> None:
    columns = {
        "id": ("BIGINT", "bigint", 1),
        "small": ("SMALLINT", "smallint", -1),
        "ratio": ("DOUBLE", "double precision", 0.1),
        "ok": ("BOOLEAN", "boolean", True),
        "price": ("DECIMAL(12, 4)", "numeric(12, 4)", Decimal("-1.2500")),
        "name": ("STRING", "char(6)", "it's  "),
        "empty": ("STRING", "text", ""),
        "text": ("STRING", "text", '"q", \\N\nü'),
        "bytes": ("BYTES", "bytea", b"\x00\xff,\n"),
        "day": ("DATE", "date", datetime.date(1969, 12, 31)),
        "at": ("TIMESTAMP(6)", "timestamp", datetime.datetime(2026, 1, 1, 10, 0, 0, 123456)),
        "clock": ("TIME", "time", datetime.time(23, 59, 59)),
        "code": ("UUID", "uuid", uuid.UUID(int=7)),
        "list": ("ARRAY<INT>", "jsonb", [1, None, 3]),
        "row": ("ROW<a INT, b ARRAY<STRING>>", "json", {"a": 1, "b": ["x,\"y'"]}),
        "range": ("STRING", "int4range", "[1,5)"),
    }
    there = ", ".join(f'"{name}" {kind}' for name, (_, kind, _) in columns.items())
    kinds = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in columns.items())
    database.run(f"CREATE TABLE kinds ({there})", "ALTER TABLE kinds REPLICA IDENTITY FULL")
    import psycopg
    from psycopg.types.json import Jsonb

    row = [value for _, _, value in columns.values()]
    given = [Jsonb(v) if isinstance(v, list | dict) else v for v in row]
    insert = f"INSERT INTO kinds VALUES ({', '.join(['%s'] * len(row))})"
    with psycopg.connect(database.url, autocommit=True) as con:
        con.execute(insert, given)
        con.execute("INSERT INTO kinds (id) VALUES (2)")
        with Stream(
            f"""
            CREATE TABLE kinds ({kinds}) WITH ('connector' = 'postgres-cdc', 'url' = '{database.url}', 'table-name' = 'kinds',
              'scan.bounded.mode' = 'latest-offset', 'source.monitor-interval' = '0 s');
            CREATE TABLE copied ({kinds});
            INSERT INTO copied SELECT * FROM kinds
            """
        ) as stream:
            [run] = stream.runs.values()
            run.pull()
            expected = [tuple(row), (2, *[None] * (len(row) - 1))]
            assert sorted(stream.rows()) == expected
    # A change has the same values as the snapshot: it takes the row away.
    with Stream(COPY_KINDS.format(kinds=kinds, url=database.url)) as stream:
        [run] = stream.runs.values()
        run.pull()
        assert len(stream.rows()) == 2
        database.run("DELETE FROM kinds WHERE id = 1", "UPDATE kinds SET small = 3")
        run.pull()
        assert stream.rows() == [(2, 3, *[None] * (len(row) - 2))]


COPY_KINDS = """
CREATE TABLE kinds ({kinds}) WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'table-name' = 'kinds',
  'source.monitor-interval' = '0 s');
CREATE TABLE copied ({kinds});
INSERT INTO copied SELECT * FROM kinds
"""

ID = "id BIGINT, PRIMARY KEY (id) NOT ENFORCED"
REFUSED = {
    "no table": ("id BIGINT", ", 'schema-name' = 'nowhere'", 'PostgreSQL has no table "nowhere.orders"'),
    "no column": ("id BIGINT, nmae STRING", "", 'has no column "nmae"'),
    "type": ("id INT", "", 'column "id" is bigint in PostgreSQL, which INTEGER does not hold'),
    "decimals": ("price DECIMAL(10, 1)", "", 'column "price" is numeric(10,2) in PostgreSQL'),
    "identity": ("id BIGINT", "", "every change needs the whole row before it"),
    "key": ("id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (price) NOT ENFORCED", "", "does not have the PRIMARY KEY (price)"),
    "large values": ("id BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED", "", "as those of column \"note\" may be"),
    "publication": (ID, ", 'publication.name' = 'none'", 'publication "none" does not exist'),
    "other table": (ID, ", 'publication.name' = 'others'", 'does not have table "public.orders"'),
    "slot": (ID, ", 'slot.name' = 'of_somebody'", 'slot "of_somebody" exists already'),
}  # fmt: skip


def test_what_is_wrong_is_said_at_the_start(database: Database) -> None:
    database.run("CREATE TABLE other (n int)", "CREATE PUBLICATION others FOR TABLE other")
    database.run("SELECT pg_create_logical_replication_slot('of_somebody', 'pgoutput')")
    for columns, more, message in REFUSED.values():
        text = f"""
        CREATE TABLE orders ({columns})
        WITH ('connector' = 'postgres-cdc', 'url' = '{database.url}', 'table-name' = 'orders'{more});
        CREATE TABLE copied ({columns});
        INSERT INTO copied SELECT * FROM orders
        """
        with Stream(text) as stream, pytest.raises((BindError, UsageError)) as refused:
            stream.runs["copied"].pull()
        assert message in refused.value.render()
        assert refused.value.hint or "no table" in message


def test_a_url_beside_its_parts_is_refused() -> None:
    options = "'connector' = 'postgres-cdc', 'url' = 'postgresql://h/d', 'hostname' = 'h', 'table-name' = 'orders'"
    with pytest.raises(BindError, match='table "t" has both "url" and "hostname"'):
        last_job(f"CREATE TABLE t (id BIGINT) WITH ({options}); SELECT * FROM t")


def test_a_table_by_its_key_needs_no_whole_rows_and_its_changes_may_come_alone(database: Database) -> None:
    database.run("CREATE PUBLICATION all_of_it FOR ALL TABLES", "INSERT INTO orders VALUES (1, 'old', 1)")
    socket = database.url.partition("host=")[2]
    text = f"""
    CREATE TABLE orders (id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'postgres-cdc', 'hostname' = '{socket}', 'username' = 'postgres', 'table-name' = 'orders',
      'database-name' = '{database.url.partition("?")[0].rpartition("/")[2]}', 'slot.name' = 'own_slot',
      'publication.name' = 'all_of_it', 'scan.startup.mode' = 'latest-offset', 'source.monitor-interval' = '0 s');
    CREATE TABLE copied (id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED);
    INSERT INTO copied SELECT * FROM orders
    """
    with Stream(text) as stream:
        run = stream.runs["copied"]
        run.pull()
        database.run("INSERT INTO orders VALUES (2, 'x', 2), (3, 'y', 3)")
        run.pull()
        assert sorted(stream.rows()) == [(2, 2), (3, 3)]
        database.run("UPDATE orders SET price = 5 WHERE id = 2", "UPDATE orders SET id = 4 WHERE id = 3")
        database.run("DELETE FROM orders WHERE id = 1")
        run.pull()
        assert sorted(stream.rows()) == [(2, 5), (4, 3)]
        before = database.run("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'own_slot'")
        # Log without a change of the table is not kept for it.
        database.run("CREATE TABLE other AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
        run.pull()
        assert before < database.run(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'own_slot'"
        )
        stream.restart()
        database.run("DELETE FROM orders WHERE id = 2")
        stream.runs["copied"].pull()
        assert stream.rows() == [(4, 3)]


LINES = """
CREATE TABLE lines (`Order` BIGINT, line INT, `Unit Price` DECIMAL(10, 2){key})
WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'schema-name' = 'My Shop', 'table-name' = 'Order "Lines"',
  'source.monitor-interval' = '0 s');
CREATE TABLE copied (`Order` BIGINT, line INT, `Unit Price` DECIMAL(10, 2){key});
INSERT INTO copied SELECT * FROM lines
"""


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (line, `Order`) NOT ENFORCED"], ids=["rows", "keys"])
def test_keys_of_several_columns_names_that_need_quotes_and_nulls(key: str, database: Database) -> None:
    table = '"My Shop"."Order ""Lines"""'
    database.run(
        'CREATE SCHEMA "My Shop"',
        f'CREATE TABLE {table} ("Order" bigint, line int, "Unit Price" numeric(10, 2), PRIMARY KEY ("Order", line))',
        f"INSERT INTO {table} VALUES (1, 1, 5), (1, 2, NULL), (2, 1, 7)",
        *([] if key else [f"ALTER TABLE {table} REPLICA IDENTITY FULL"]),
    )
    with Stream(LINES.format(url=database.url, key=key)) as stream:
        for changes in (
            [],
            [f'UPDATE {table} SET "Unit Price" = NULL WHERE line = 1', f"INSERT INTO {table} VALUES (2, 2, NULL)"],
            [f'UPDATE {table} SET line = 3 WHERE "Order" = 1 AND line = 2', f'DELETE FROM {table} WHERE "Order" = 2'],
        ):
            database.run(*changes, "SELECT 1")
            stream.runs["copied"].pull()
            rows = database.run(f"SELECT * FROM {table}")
            assert sorted(stream.rows("copied"), key=str) == sorted(rows, key=str)
    assert len(rows) == 2


LOST = {
    "dropped": ("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots", "does not exist any more"),
    "moved": (
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots",
        "somebody has moved replication slot",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_changes_that_are_lost_are_an_error(case: str, database: Database) -> None:
    full(database)
    statement, message = LOST[case]
    with Stream(script(database)) as stream:
        settles(stream, database)
        database.run("INSERT INTO orders VALUES (1, 'x', 1)")
        database.run(f"{statement} WHERE database = current_database()")
        for restart in (False, True):
            if restart:
                stream.restart()
            with pytest.raises(DataError, match=message) as lost:
                stream.runs["copied"].pull()
            assert lost.value.message.startswith('changes of table "orders" are lost')


def test_a_log_that_the_server_has_thrown_away(database: Database) -> None:
    full(database)
    with Stream(script(database)) as stream:
        settles(stream, database)
        database.run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
        try:
            for number in range(3):
                database.run(f"INSERT INTO orders VALUES ({number}, 'x', 1)", "SELECT pg_switch_wal()")
            database.run("CHECKPOINT")
        finally:
            database.run("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
        with pytest.raises(DataError, match="the server has thrown away the log of replication slot") as lost:
            stream.runs["copied"].pull()
        assert "max_slot_wal_keep_size says how much log the server keeps" in str(lost.value.hint)


def test_truncate_and_changes_of_columns(database: Database) -> None:
    full(database)
    database.run("INSERT INTO orders VALUES (1, 'x', 1)")
    with Stream(script(database)) as stream:
        settles(stream, database)
        database.run("ALTER TABLE orders ADD COLUMN more int DEFAULT 7", "INSERT INTO orders VALUES (2, 'y', 2)")
        settles(stream, database)
        database.run("ALTER TABLE orders ALTER price TYPE numeric(8, 2)", "INSERT INTO orders VALUES (3, 'y', 2)")
        settles(stream, database)
        database.run("TRUNCATE orders")
        with pytest.raises(DataError, match='table "orders" was truncated'):
            stream.runs["copied"].pull()
    with Stream(script(database, more=", 'scan.on-truncate' = 'ignore'")) as stream:
        database.run("INSERT INTO orders VALUES (5, 'x', 1)")
        settles(stream, database)
        database.run("TRUNCATE orders", "INSERT INTO orders VALUES (6, 'x', 1)")
        stream.runs["copied"].pull()
        assert sorted(key for key, *_ in stream.rows("copied")) == [5, 6]
        database.run("ALTER TABLE orders ALTER price TYPE numeric(12, 4)", "INSERT INTO orders VALUES (7, 'x', 1.2345)")
        with pytest.raises(BindError, match=r'column "price" is numeric\(12,4\) in PostgreSQL'):
            stream.runs["copied"].pull()
        database.run("ALTER TABLE orders ALTER price TYPE numeric(10, 2)")
        for _ in range(3):
            stream.runs["copied"].pull()
        assert sorted(key for key, *_ in stream.rows("copied")) == [5, 6, 7]
        database.run("ALTER TABLE orders DROP COLUMN item", "INSERT INTO orders VALUES (8, 1)")
        with pytest.raises(DataError, match='table "orders" has no column "item" any more'):
            stream.runs["copied"].pull()


class Crash(Exception):
    """The job's process ends."""


def test_a_snapshot_that_was_cut_short_is_taken_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    full(database)
    database.run("INSERT INTO orders SELECT g, 'item ' || g % 3, g FROM generate_series(1, 1000) g")
    whole = SlotDiscovery._write_snapshot

    def cut(self: SlotDiscovery, copy: Any) -> Any:
        for size in whole(self, copy):
            yield size
            raise Crash

    with Stream(script(database, "", ", 'source.max-rows-per-batch' = '100'")) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(SlotDiscovery, "_write_snapshot", cut)
            for run in stream.runs.values():
                with pytest.raises(Crash):
                    run.pull()
        database.run("DELETE FROM orders WHERE id < 500", "INSERT INTO orders VALUES (2000, 'x', 1)")
        stream.restart()
        stream.runs["copied"].pull()
        database.run("UPDATE orders SET price = 0 WHERE id % 2 = 0")
        stream.restart()
        database.crash()
        settles(stream, database)
    [(slots,)] = database.run("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()")
    assert slots == 2


def test_a_server_that_is_away(database: Database) -> None:
    full(database)
    with Stream(script(database, more=", 'connect.max-retries' = '2'")) as stream:
        settles(stream, database)
        database.crash()
        database.run("INSERT INTO orders VALUES (1, 'x', 1)")
        settles(stream, database)
    nowhere = script(Database("host=/nowhere password=hunter2"))
    with Stream(nowhere) as stream, pytest.raises(OutageError) as failed:
        stream.runs["copied"].pull()
    assert failed.value.message.startswith('table "orders": the PostgreSQL server cannot be reached: connection')
    assert "hunter2" not in failed.value.render()
