"""Tables of a MariaDB server as their rows and changes: values, keys, restarts, transactions, and what is refused or lost."""

from __future__ import annotations

import datetime
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sqlstream.connectors.mysql_cdc.discovery import BinlogDiscovery
from sqlstream.connectors.mysql_cdc.options import BinlogSettings
from sqlstream.connectors.mysql_cdc.server import BinlogServer
from sqlstream.errors import BindError, DataError, OutageError, UsageError
from sqlstream.testing import Stream
from tests.kinds import last_job
from tests.mariadb_server import MariaDBServer, MySQLDatabase
from tests.processes import SECONDS, wait_until

pytestmark = pytest.mark.slow

SCRIPT = """
CREATE TABLE orders (id BIGINT, item STRING, price DECIMAL(10, 2){key})
WITH ('connector' = 'mysql-cdc', 'url' = '{url}', 'table-name' = 'orders', 'source.monitor-interval' = '0 s'{more});
CREATE TABLE copied (id BIGINT, item STRING, price DECIMAL(10, 2){key});
CREATE TABLE sums (item STRING, n BIGINT, total DECIMAL(38, 2));
INSERT INTO copied SELECT * FROM orders;
INSERT INTO sums SELECT item, COUNT(*), SUM(price) FROM orders GROUP BY item
"""
KEY = ", PRIMARY KEY (id) NOT ENFORCED"
ROWS = "INSERT INTO orders SELECT seq, concat('item ', seq % 3), seq, NULL FROM seq_1_to_{}"


@pytest.fixture
def database(mariadb: MariaDBServer) -> MySQLDatabase:
    database = mariadb.database()
    database.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item varchar(40) CHARACTER SET utf8mb4, price decimal(10, 2), note text)"
    )
    return database


def script(database: MySQLDatabase, key: str = KEY, more: str = "") -> str:
    return SCRIPT.format(url=database.url, key=key, more=more)


def settles(stream: Stream, database: MySQLDatabase, seconds: float = SECONDS) -> None:
    """What jobs make of the changes becomes what a query over the table gives."""
    rows = database.run("SELECT id, item, price FROM orders")
    sums = database.run("SELECT item, count(*), sum(price) FROM orders GROUP BY item")

    def is_there() -> bool:
        for run in stream.runs.values():
            run.pull()
        same = sorted(stream.rows("copied"), key=str) == sorted(rows, key=str)
        return same and sorted(stream.rows("sums"), key=str) == sorted(sums, key=str)

    wait_until(is_there, seconds)


def change(database: MySQLDatabase, moments: random.Random) -> None:
    """Change some rows in some transactions: insert, update, also the key, delete; and other tables, without transactions."""
    for _ in range(moments.randrange(1, 6)):
        statements = []
        for _ in range(moments.randrange(1, 4)):
            key, price = moments.randrange(30), moments.randrange(1000) / 100
            statements += moments.choice(
                [
                    [f"INSERT IGNORE INTO orders VALUES ({key}, 'item {key % 3}', {price}, NULL)"],
                    [f"UPDATE orders SET price = {price} WHERE id = {key}"],
                    [f"UPDATE orders SET item = NULL WHERE id % 7 = {key % 7}"],
                    [f"DELETE FROM orders WHERE id = {key}"],
                    [f"UPDATE IGNORE orders SET id = {key + 100} WHERE id = {key}"],
                    ["INSERT INTO loose VALUES (1)"],
                    ["SAVEPOINT a", f"DELETE FROM orders WHERE id > {key}", "ROLLBACK TO a"],
                    [f"REPLACE INTO orders VALUES ({key}, 'new', {price}, NULL)"],
                ]
            )
        database.run("BEGIN", *statements, moments.choice(["COMMIT", "COMMIT", "ROLLBACK"]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("key", ["", KEY], ids=["rows", "keys"])
def test_a_copy_is_what_the_table_is(key: str, database: MySQLDatabase) -> None:
    database.run(ROWS.format(10), "CREATE TABLE loose (n int) ENGINE = MyISAM")
    moments = random.Random(11)
    with Stream(script(database, key, ", 'source.max-rows-per-batch' = '4'")) as stream:
        for round in range(10):
            change(database, moments)
            if round % 4 == 2:
                database.server.administration().run("FLUSH BINARY LOGS")
            if round % 3 == 1:
                stream.restart()
            settles(stream, database)
        # What the jobs have received can be read again.
        assert all(stream.verify(job) for job in stream.runs)


INSTANT = datetime.datetime(2026, 1, 1, 8, 0, 0, 123000, datetime.UTC)
KINDS: dict[str, tuple[str, str, Any, Any]] = {
    # By column: the declared type, that of MariaDB, the SQL of a value, and what is read.
    "id": ("BIGINT", "bigint", "1", 1),
    "tiny": ("TINYINT", "tinyint", "-5", -5),
    "small": ("INT", "smallint unsigned zerofill", "7", 7),
    "medium": ("INT", "mediumint", "-70000", -70000),
    "large": ("DECIMAL(20, 0)", "bigint unsigned", "18446744073709551615", Decimal(18446744073709551615)),
    "ok": ("BOOLEAN", "boolean", "true", True),
    "bit": ("BOOLEAN", "bit(1)", "b'1'", True),
    "bits": ("BYTES", "bit(10)", "b'1000000001'", b"\x02\x01"),
    "single": ("DOUBLE", "float", "0.1", 0.10000000149011612),
    "ratio": ("DOUBLE", "double", "0.1", 0.1),
    "price": ("DECIMAL(12, 4)", "decimal(12, 4)", "-0.0001", Decimal("-0.0001")),
    "digits": ("DECIMAL(30, 12)", "decimal(30, 12)", "-123456789012345678.5", Decimal("-123456789012345678.5")),
    "name": ("STRING", "char(6) CHARACTER SET latin1", "'öl€  '", "öl€"),
    "face": ("STRING", "text CHARACTER SET utf8mb4", "'😀 \"q\" \\\\ \n'", '😀 "q" \\ \n'),
    "empty": ("STRING", "varchar(300)", "''", ""),
    "kind": ("STRING", "enum('a', 'ü') CHARACTER SET utf8mb4", "'ü'", "ü"),
    "tags": ("STRING", "set('z', 'y', 'x')", "'x,z'", "z,x"),
    "none": ("STRING", "set('z', 'y', 'x')", "''", ""),
    "bytes": ("BYTES", "blob", "x'00ff2c0a00'", b"\x00\xff,\n\x00"),
    "fixed": ("BYTES", "binary(4)", "x'01000000'", b"\x01\0\0\0"),
    "varied": ("BYTES", "varbinary(9)", "x'0100'", b"\x01\0"),
    "day": ("DATE", "date", "'1969-12-31'", datetime.date(1969, 12, 31)),
    "zero": ("DATE", "date", "'2026-01-00'", None),
    "at": ("TIMESTAMP(6)", "datetime(6)", "'2026-01-01 10:00:00.123456'", datetime.datetime(2026, 1, 1, 10, 0, 0, 123456)),
    "text": ("STRING", "datetime(3)", "'2026-01-01 10:00:00.12'", "2026-01-01 10:00:00.120"),
    "never": ("TIMESTAMP(3)", "datetime", "'0000-00-00 00:00:00'", None),
    "instant": ("TIMESTAMP_LTZ(3)", "timestamp(3) NULL", "'2026-01-01 10:00:00.123'", INSTANT),
    "local": ("TIMESTAMP(3)", "timestamp NULL", "'2026-07-01 10:00:00'", datetime.datetime(2026, 7, 1, 10)),
    "no_time": ("TIMESTAMP(3)", "timestamp NULL", "0", None),
    "clock": ("TIME", "time(6)", "'23:59:59.5'", datetime.time(23, 59, 59, 500000)),
    "made": ("INT", "year", "2026", 2026),
    "old": ("INT", "year", "0", 0),
    "code": ("UUID", "uuid", "'123e4567-e89b-12d3-a456-426655440000'", uuid.UUID("123e4567-e89b-12d3-a456-426655440000")),
    "code4": ("STRING", "uuid", "'f47ac10b-58cc-4372-a567-0e02b2c3d400'", "f47ac10b-58cc-4372-a567-0e02b2c3d400"),
    "code7": ("STRING", "uuid", "'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
    "list": ("ARRAY<INT>", "json", "'[1, null, 3]'", [1, None, 3]),
    "row": ("ROW<a INT, b ARRAY<STRING>>", "json", "'{\"a\": 1, \"b\": [\"x\"]}'", {"a": 1, "b": ["x"]}),
    "next": ("INT", "int AS (medium + 1) VIRTUAL", "DEFAULT", -69999),
}  # fmt: skip
COPY_KINDS = """
CREATE TABLE kinds ({kinds}) WITH ('connector' = 'mysql-cdc', 'url' = '{url}', 'table-name' = 'kinds',
  'source.monitor-interval' = '0 s', 'server-time-zone' = 'Europe/Berlin'{more});
CREATE TABLE copied ({kinds});
INSERT INTO copied SELECT * FROM kinds
"""


def test_types_and_values(database: MySQLDatabase) -> None:
    kinds = ", ".join(f"`{name}` {kind}" for name, (kind, *_) in KINDS.items())
    there = ", ".join(f"`{name}` {kind}" for name, (_, kind, *_) in KINDS.items())
    # Two columns that are not read.
    odd = "odd varchar(9) CHARACTER SET ucs2 COLLATE ucs2_uca1400_ai_ci"
    database.run(f"CREATE TABLE kinds (shape point, {odd}, {there})")
    row = tuple(value for *_, value in KINDS.values())
    insert = f"INSERT INTO kinds VALUES (POINT(1, 2), 'ü', {', '.join(sql for *_, sql, _ in KINDS.values())})"
    second = "INSERT INTO kinds (id, old) VALUES (2, NULL)"
    session = ["SET time_zone = 'SYSTEM', sql_mode = ''", "SET time_zone = '+02:00'"]
    database.run(*session, insert, second)
    text = COPY_KINDS.format(kinds=kinds, url=database.url, more="")
    with Stream(text) as snapshot:
        [run] = snapshot.runs.values()
        run.pull()
        expected = [row, (2, *[None] * (len(row) - 1))]
        assert sorted(snapshot.rows(), key=str) == sorted(expected, key=str)
        # A change has the same values as the snapshot: it takes the row away.
        database.run("UPDATE kinds SET tiny = 3")
        run.pull()
        assert sorted(r[:2] for r in snapshot.rows()) == [(1, 3), (2, 3)]
        database.run("DELETE FROM kinds")
        run.pull()
        assert snapshot.rows() == []
        database.run(*session, insert)
        run.pull()
        assert snapshot.rows() == [row]
    offset = text.replace("Europe/Berlin", "+05:30")
    with Stream(offset) as stream:
        [run] = stream.runs.values()
        run.pull()
        local = list(KINDS).index("local")
        assert [r[local] for r in stream.rows()] == [datetime.datetime(2026, 7, 1, 13, 30)]


ID = "id BIGINT, PRIMARY KEY (id) NOT ENFORCED"
SPECIFIC = {"scan.startup.mode": "specific-offset", "scan.startup.specific-offset.file": "binlog.000001"}
REFUSED = {
    "no table": ("id BIGINT", {"table-name": "nowhere"}, "has no table"),
    "a pattern": ("id BIGINT", {"table-name": "orders_.*"}, "has no table"),
    "a view": ("id BIGINT", {"table-name": "seen"}, "it is no table but a view"),
    "no transactions": ("n INT", {"table-name": "loose"}, "its engine MyISAM has no transactions"),
    "no column": ("id BIGINT, nmae STRING", {}, 'has no column "nmae"'),
    "type": ("id INT", {}, 'column "id" is bigint(20) in MariaDB, which INTEGER does not hold'),
    "decimals": ("price DECIMAL(10, 1)", {}, 'column "price" is decimal(10,2) in MariaDB'),
    "characters": ("t STRING", {"table-name": "greek"}, 'the texts of column "t" are greek'),
    "a list": ("e STRING", {"table-name": "greek"}, 'the texts of column "e" are latin1'),
    "compressed": ("n INT", {"table-name": "packed"}, "its log cannot be read with column"),
    "no file": (ID, SPECIFIC | {"scan.startup.specific-offset.file": "log.1"}, 'the server has no log file "log.1"'),
    "too far": (ID, SPECIFIC | {"scan.startup.specific-offset.pos": "999999999"}, "the server's log is another one at"),
}


def test_what_is_wrong_is_said_at_the_start(database: MySQLDatabase) -> None:
    database.run(
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE TABLE loose (n int) ENGINE = MyISAM",
        "CREATE TABLE greek (t varchar(9) CHARACTER SET greek, e enum('ü') CHARACTER SET latin1)",
        "CREATE TABLE packed (n int, t text COMPRESSED)",
    )
    for columns, more, message in REFUSED.values():
        options = {"connector": "mysql-cdc", "url": database.url, "table-name": "orders"} | more
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        text = f"""
        CREATE TABLE orders ({columns}) WITH ({listed});
        CREATE TABLE copied ({columns});
        INSERT INTO copied SELECT * FROM orders
        """
        with Stream(text) as stream, pytest.raises((BindError, UsageError, DataError)) as refused:
            stream.runs["copied"].pull()
        assert message in refused.value.render()


SETTINGS = {
    "binlog_format": ("MIXED", "ROW"),
    "binlog_row_image": ("MINIMAL", "FULL"),
    "binlog_row_metadata": ("NO_LOG", "FULL"),
    "log_bin_compress": ("ON", "OFF"),
}


def test_a_log_that_lacks_what_changes_need(database: MySQLDatabase, tmp_path: Path) -> None:
    admin = database.server.administration()
    for name, (value, needed) in SETTINGS.items():
        admin.run(f"SET GLOBAL {name} = '{value}'")
        try:
            with (
                Stream(script(database)) as stream,
                pytest.raises(UsageError, match=f"its {name} is {value}") as refused,
            ):
                stream.runs["copied"].pull()
        finally:
            admin.run(f"SET GLOBAL {name} = '{needed}'")
        assert f"SET GLOBAL {name} = '{needed}'" in str(refused.value.hint)
    user = f"{database.name}@'127.0.0.1'"
    admin.run(f"REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM {user}")
    with (
        Stream(script(database)) as stream,
        pytest.raises(UsageError, match="may not read the server's log") as refused,
    ):
        stream.runs["copied"].pull()
    assert "GRANT REPLICATION SLAVE" in str(refused.value.hint)
    admin.run(
        f"GRANT REPLICATION CLIENT ON *.* TO {user}", f"INSERT INTO {database.name}.orders VALUES (1, 'x', 1, NULL)"
    )
    with Stream(script(database)) as stream:
        stream.runs["copied"].pull()
        database.run("DELETE FROM orders")
        with pytest.raises(UsageError, match="REPLICATION SLAVE") as refused:
            stream.runs["copied"].pull()
    assert "GRANT REPLICATION SLAVE" in str(refused.value.hint)
    silent = MariaDBServer(tmp_path, has_log=False)
    silent.start()
    try:
        other = silent.database()
        other.run("CREATE TABLE orders (id bigint)")
        with Stream(script(other)) as stream, pytest.raises(UsageError, match="log_bin is OFF"):
            stream.runs["copied"].pull()
    finally:
        silent.stop()


def parts(database: MySQLDatabase) -> str:
    """The options of a database as Flink's connector has them."""
    return f"""'hostname' = '127.0.0.1', 'port' = '{database.server.port}', 'username' = '{database.name}',
      'password' = 's/e:cret', 'database-name' = '{database.name}'"""


STARTS = {
    "latest-offset": ("'scan.startup.mode' = 'latest-offset'", [2, 3]),
    "earliest-offset": ("'scan.startup.mode' = 'earliest-offset'", [1, 2, 3]),
    "specific-offset": (
        "'scan.startup.mode' = 'specific-offset', 'scan.startup.specific-offset.file' = '{}', "
        "'scan.startup.specific-offset.pos' = '{}'",
        [2, 3],
    ),
    "snapshot": ("'scan.startup.mode' = 'snapshot', 'server-id' = '5400-5404'", [1]),
    "bounded": ("'scan.bounded.mode' = 'latest-offset', 'server-id' = '5400'", [1]),
}


@pytest.mark.parametrize("mode", STARTS)
def test_where_a_table_begins_and_ends(mode: str, database: MySQLDatabase) -> None:
    database.run("INSERT INTO orders VALUES (1, 'old', 1, NULL)")
    [[file, position, *_]] = database.run("SHOW MASTER STATUS")
    options, expected = STARTS[mode]
    text = f"""
    CREATE TABLE orders (id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'mysql-cdc', {parts(database)}, 'table-name' = 'orders', 'source.monitor-interval' = '0 s',
      {options.format(file, position)});
    CREATE TABLE copied (id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED);
    INSERT INTO copied SELECT * FROM orders
    """
    with Stream(text) as stream:
        run = stream.runs["copied"]
        run.pull()
        database.run("INSERT INTO orders VALUES (2, 'x', 2, NULL), (3, 'y', 3, NULL)")
        run.pull()
        assert sorted(key for key, _ in stream.rows()) == expected
        stream.restart()
        stream.runs["copied"].pull()
        assert sorted(key for key, _ in stream.rows()) == expected


LINES = """
CREATE TABLE lines (`Order` BIGINT, line INT, `Unit Price` DECIMAL(10, 2){key})
WITH ('connector' = 'mysql-cdc', 'url' = '{url}', 'table-name' = 'Order "Lines"', 'source.monitor-interval' = '0 s');
CREATE TABLE copied (`Order` BIGINT, line INT, `Unit Price` DECIMAL(10, 2){key});
INSERT INTO copied SELECT * FROM lines
"""


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (line, `Order`) NOT ENFORCED"], ids=["rows", "keys"])
def test_keys_of_several_columns_names_that_need_quotes_and_nulls(key: str, database: MySQLDatabase) -> None:
    table = '`Order "Lines"`'
    database.run(
        f"CREATE TABLE {table} (`Order` bigint, line int, `Unit Price` decimal(10, 2), PRIMARY KEY (`Order`, line))",
        f"INSERT INTO {table} VALUES (1, 1, 5), (1, 2, NULL), (2, 1, 7)",
    )
    with Stream(LINES.format(url=database.url, key=key)) as stream:
        for changes in (
            [],
            [f"UPDATE {table} SET `Unit Price` = NULL WHERE line = 1", f"INSERT INTO {table} VALUES (2, 2, NULL)"],
            [f"UPDATE {table} SET line = 3 WHERE `Order` = 1 AND line = 2", f"DELETE FROM {table} WHERE `Order` = 2"],
        ):
            database.run(*changes, "SELECT 1")
            stream.runs["copied"].pull()
            rows = database.run(f"SELECT * FROM {table}")
            assert sorted(stream.rows("copied"), key=str) == sorted(rows, key=str)
    assert len(rows) == 2


def test_log_that_is_purged(database: MySQLDatabase) -> None:
    admin = database.server.administration()
    with Stream(script(database)) as stream:
        settles(stream, database)
        # Log without changes of the table is not missed, also after a restart.
        database.run("CREATE TABLE other SELECT repeat('x', 100) FROM seq_1_to_20000")
        admin.run("FLUSH BINARY LOGS")
        for run in stream.runs.values():
            run.pull()
        database.server.purge_log()
        stream.restart()
        database.run("INSERT INTO orders VALUES (1, 'x', 1, NULL)")
        settles(stream, database)
        database.run("INSERT INTO orders VALUES (2, 'x', 1, NULL)")
        admin.run("FLUSH BINARY LOGS")
        database.server.purge_log()
        for restart in (False, True):
            if restart:
                stream.restart()
            with pytest.raises(DataError, match=r"the server has purged its log file binlog\.0") as lost:
                stream.runs["copied"].pull()
            assert lost.value.message.startswith('changes of table "orders" are lost')
            assert "binlog_expire_logs_seconds" in str(lost.value.hint)


def test_another_log_at_the_same_address(tmp_path: Path) -> None:
    server = MariaDBServer(tmp_path)
    server.start()
    try:
        database = server.database()
        database.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text, price decimal(10, 2), note text)")
        with Stream(script(database)) as stream:
            settles(stream, database)
            server.administration().run("RESET MASTER")
            with pytest.raises(DataError, match="it is another server, or its log was reset"):
                stream.runs["copied"].pull()
            # As long as before, with other changes.
            while database.run("SHOW MASTER STATUS")[0][1] < 5000:
                database.run(
                    "INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 'x', 1, NULL FROM orders", "DELETE FROM orders"
                )
            stream.restart()
            with pytest.raises(DataError, match="it is another server, or its log was reset"):
                stream.runs["copied"].pull()
    finally:
        server.stop()


GONE = {
    "TRUNCATE orders": "was truncated",
    "DROP TABLE orders": "was dropped",
    "CREATE OR REPLACE TABLE orders LIKE orders_2": "was replaced by another one",
    "RENAME TABLE orders TO orders_1, orders_2 TO orders": "was renamed, or another one has its name",
    "ALTER TABLE orders RENAME orders_1": "was renamed, or another one has its name",
    "ALTER TABLE orders DROP COLUMN item": 'has no column "item" any more',
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("statement", GONE)
def test_rows_that_go_without_changes(statement: str, database: MySQLDatabase) -> None:
    database.run("INSERT INTO orders VALUES (1, 'x', 1, NULL)", "CREATE TABLE orders_2 LIKE orders")
    with Stream(script(database)) as stream:
        settles(stream, database)
        database.run(statement, "CREATE TABLE IF NOT EXISTS orders LIKE orders_2", "INSERT INTO orders (id) VALUES (9)")
        with pytest.raises(DataError, match=f'table "orders" {GONE[statement]}'):
            stream.runs["copied"].pull()


def test_truncate_that_is_ignored_and_changes_of_columns(database: MySQLDatabase) -> None:
    database.run("INSERT INTO orders VALUES (1, 'x', 1, NULL)")
    with Stream(script(database, more=", 'scan.on-truncate' = 'ignore'")) as stream:
        settles(stream, database)
        database.run(
            "ALTER TABLE orders ADD COLUMN more int DEFAULT 7 FIRST", "INSERT INTO orders VALUES (7, 2, 'y', 2, '')"
        )
        settles(stream, database)
        database.run("ALTER TABLE orders MODIFY price decimal(8, 2)", "UPDATE orders SET price = 3")
        settles(stream, database)
        database.run("TRUNCATE orders", "INSERT INTO orders (id, item, price) VALUES (6, 'x', 1)")
        stream.runs["copied"].pull()
        assert sorted(key for key, *_ in stream.rows("copied")) == [1, 2, 6]
        database.run("ALTER TABLE orders MODIFY price decimal(12, 4)", "UPDATE orders SET price = 1.2345")
        with pytest.raises(BindError, match=r'column "price" is decimal\(12,4\) in MariaDB'):
            stream.runs["copied"].pull()


PREPARED = ("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")


def test_changes_that_the_log_has_as_something_else(database: MySQLDatabase) -> None:
    admin, name = database.server.administration(), database.name
    statements = {
        "by statements": (
            [f"USE {name}", "SET binlog_format = 'STATEMENT'", "INSERT INTO orders (id) VALUES (1)"],
            "it has the statement that changed them: INSERT INTO orders",
        ),
        "XA": (
            [f"USE {name}", "XA START 'x'", "INSERT INTO orders (id) VALUES (2)", *PREPARED],
            "has changes of an XA transaction",
        ),
        "parts": (
            ["SET binlog_row_image = 'MINIMAL'", f"UPDATE {name}.orders SET price = 1"],
            "the log does not hold all columns",
        ),
    }  # fmt: skip
    for changes, message in statements.values():
        with Stream(script(database)) as stream:
            settles(stream, database)
            admin.run(*changes)
            with pytest.raises(DataError, match=message):
                stream.runs["copied"].pull()


def test_a_value_that_is_none(database: MySQLDatabase) -> None:
    database.run("ALTER TABLE orders ADD COLUMN day date")
    with Stream(script(database)) as stream:
        settles(stream, database)
        database.run("SET sql_mode = 'ALLOW_INVALID_DATES'", "INSERT INTO orders (id, day) VALUES (1, '2026-02-31')")
        with pytest.raises(DataError, match='table "orders" has a value that cannot be read: day is out of range'):
            stream.runs["copied"].pull()


def test_rows_that_a_foreign_key_changes_are_told_of(database: MySQLDatabase) -> None:
    database.run(
        "CREATE TABLE customers (id bigint PRIMARY KEY)",
        "ALTER TABLE orders ADD CONSTRAINT of_customer FOREIGN KEY (id) REFERENCES customers (id) ON DELETE CASCADE",
    )
    with Stream(script(database)) as stream:
        stream.runs["copied"].pull()
        assert stream.rows("copied") == []
    table = last_job(script(database)).physical.scans[0].table
    [notice] = BinlogServer(table, BinlogSettings.of(table)).notices()
    assert "by the foreign key of_customer are not in its log" in notice


class Crash(Exception):
    """The job's process ends."""


@pytest.mark.parametrize("product", ["MariaDB", "MySQL"])
def test_a_snapshot_that_was_cut_short_is_taken_again(
    product: str, database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MySQL's way to a consistent snapshot works with MariaDB, too.
    monkeypatch.setattr(BinlogServer, "product", product)
    monkeypatch.setattr(BinlogServer, "log_identity", lambda self, position: None)
    database.run(ROWS.format(1000))
    whole = BinlogDiscovery._write_snapshot

    def cut(self: BinlogDiscovery, rows: Any) -> Any:
        for size in whole(self, rows):
            yield size
            raise Crash

    with Stream(script(database, "", ", 'source.max-rows-per-batch' = '100'")) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(BinlogDiscovery, "_write_snapshot", cut)
            for run in stream.runs.values():
                with pytest.raises(Crash):
                    run.pull()
        database.run("DELETE FROM orders WHERE id < 500", "INSERT INTO orders VALUES (2000, 'x', 1, NULL)")
        stream.restart()
        stream.runs["copied"].pull()
        database.run("UPDATE orders SET price = 0 WHERE id % 2 = 0")
        stream.restart()
        database.server.crash()
        settles(stream, database)


def test_a_server_that_is_away(database: MySQLDatabase) -> None:
    with Stream(script(database, more=", 'connect.max-retries' = '2'")) as stream:
        settles(stream, database)
        database.server.crash()
        database.run("INSERT INTO orders VALUES (1, 'x', 1, NULL)")
        settles(stream, database)
        # The server numbers its tables, and begins to count anew.
        more = [f"CREATE TABLE other_{number} (a text, b text, c text)" for number in range(20)]
        database.run(*more, "UPDATE orders SET price = 2")
        database.server.crash()
        database.run(*(f"INSERT INTO other_{number} VALUES (repeat('x', 200), '', '')" for number in range(20)))
        database.run("INSERT INTO orders VALUES (2, 'y', 1, NULL)")
        settles(stream, database)
    nowhere = SCRIPT.format(url="mysql://a:hunter2@127.0.0.1:1/shop", key=KEY, more="")
    with Stream(nowhere) as stream, pytest.raises(OutageError) as failed:
        stream.runs["copied"].pull()
    assert failed.value.message.startswith('table "orders": the server cannot be reached: ')
    assert "hunter2" not in failed.value.render()
