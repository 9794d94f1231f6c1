"""Tables of a PostgreSQL server that jobs write: types, changes, batches that count once, and what is refused."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sqlstream.errors import DataError, JobError, UsageError
from sqlstream.testing import Stream
from tests.connectors.database_sinks import COUNTS, VALUES, check_refused, copying, looking_up
from tests.postgres_server import Database, PostgresServer
from tests.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    return postgres.database()


def options(database: Database, table: str, more: str = "") -> str:
    return f"'connector' = 'postgresql', 'url' = '{database.url}', 'table' = '{table}'{more}"


def created(database: Database, table: str) -> str:
    return options(database, table, ", 'sink.create-table' = 'true'")


NAMED = """
CREATE TABLE sold (`Shop` STRING, `order` INT, `a "b"` BIGINT, note STRING);
CREATE TABLE last (`Shop` STRING, `order` INT, `a "b"` BIGINT, note STRING, PRIMARY KEY (`order`, `Shop`) NOT ENFORCED)
WITH ({options});
INSERT INTO last SELECT `Shop`, `order`, MAX(`a "b"`), MAX(note) FROM sold GROUP BY `Shop`, `order`
HAVING SUM(`a "b"`) IS NOT NULL OR COUNT(*) = 1
"""


@pytest.mark.parametrize("creates", [True, False], ids=["created", "given"])
def test_keys_of_several_columns_names_that_need_quotes_and_nulls(creates: bool, database: Database) -> None:
    name = "Named" if creates else "My Schema.Named"
    table = name.replace(".", '"."')
    if not creates:
        # Its key is in another order, and it has columns that the job knows nothing of.
        database.run(
            'CREATE SCHEMA "My Schema"',
            f'CREATE TABLE "{table}" (kept int DEFAULT 7, note text, "a ""b""" bigint, "order" int, "Shop" text,'
            ' PRIMARY KEY ("Shop", "order"))',
        )
    given = created(database, name) if creates else options(database, name)
    columns = '"Shop", "order", "a ""b""", note'
    rows = f'SELECT {columns} FROM "{table}" ORDER BY 1, 2'
    with Stream(NAMED.format(options=given)) as stream:
        stream.batch("sold", [("b", 1, None, None), ("a", 2, 5, "x"), ("a", 1, 7, None), ("B", 1, 1, "it's")])
        both = [("B", 1, 1, "it's"), ("a", 1, 7, None), ("a", 2, 5, "x"), ("b", 1, None, None)]
        assert sorted(database.run(rows)) == both
        # A NULL becomes a value, a value takes the place of another one, and a key goes: its second row makes all NULL.
        stream.batch("sold", [("a", 1, 9, "y"), ("b", 1, None, "gone"), ("a", 3, None, "")])
        assert sorted(database.run(rows)) == [
            ("B", 1, 1, "it's"),
            ("a", 1, 9, "y"),
            ("a", 2, 5, "x"),
            ("a", 3, None, ""),
        ]
    if not creates:
        assert database.run('SELECT batch FROM "My Schema".sqlstream_batches') == [(1,)]
        assert database.run(f'SELECT DISTINCT kept FROM "{table}"') == [(7,)]


def test_known_rows_stay_on_their_pages(database: Database) -> None:
    """In a table that a job has created, no index is told of a row that changes: there is room beside it."""
    with Stream(COUNTS.format(options=created(database, "roomy"))) as stream:
        stream.batch("sold", [(item, 1) for item in range(2000)])
        for first in (0, 7, 14):
            stream.batch("sold", [(item, 1) for item in range(first, 2000, 20)])
        assert database.run("SELECT count(*) FROM roomy WHERE n = 2") == [(300,)]
    updates = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'roomy'"
    wait_until(lambda: database.run(updates)[0][0] == 300)
    assert database.run(updates) == [(300, 300)]


def test_rows_that_others_have_written_with_the_same_keys(database: Database) -> None:
    """Rows of keys that are new to the job are added as they come; where there are others, they take their places."""
    random_ = random.Random(9)
    sums = Counter[int]()
    database.run("CREATE TABLE shared (item bigint PRIMARY KEY, n bigint, total bigint, kept int DEFAULT 7)")
    with Stream(COUNTS.format(options=options(database, "shared"))) as stream:
        for batch in range(12):
            others = random_.sample(range(30), 3) if batch % 4 == 0 else []
            for item in others:
                database.run(f"INSERT INTO shared VALUES ({item}, -1, -1, 8) ON CONFLICT DO NOTHING")
            rows = [(random_.randrange(batch, 30), 20) for _ in range(8)]
            stream.batch("sold", rows)
            sums.update(item for item, _ in rows)
            found = dict(database.run("SELECT item, n FROM shared WHERE n > 0"))
            assert found == {item: n for item, n in sums.items() if n < 5}, batch
    assert {kept for (kept,) in database.run("SELECT DISTINCT kept FROM shared WHERE n > 0")} == {7, 8}


def test_a_table_with_policies_takes_no_copy(database: Database) -> None:
    database.run(
        "CREATE ROLE careful LOGIN",
        "CREATE SCHEMA careful",
        "CREATE TABLE careful.guarded (id bigint PRIMARY KEY, name text)",
        "GRANT ALL ON careful.guarded TO careful",
        "GRANT ALL ON SCHEMA careful TO careful",
        "ALTER TABLE careful.guarded ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY any_row ON careful.guarded USING (true)",
    )
    careful = Database(make_conninfo(database.url, user="careful"))
    given = options(careful, "careful.guarded")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        careful.run("COPY careful.guarded FROM STDIN")
    with Stream(copying("id BIGINT, name STRING", given, key="id")) as stream:
        stream.batch("given", [(1, "a"), (2, "b")])
        stream.batch("given", [(2, "c"), (3, "d")])
    assert database.run("SELECT * FROM careful.guarded ORDER BY 1") == [(1, "a"), (2, "c"), (3, "d")]


def test_types_and_values(database: Database) -> None:
    row = [value for _, value in VALUES.values()]
    with Stream(looking_up(VALUES, created(database, "kinds"))) as stream:
        stream.batch("given", [row, [2, *[None] * (len(row) - 1)]])
        first, second = database.run("SELECT * FROM kinds ORDER BY id")
        assert list(first) == row
        assert second == (2, *[None] * (len(row) - 1))
        # A lookup reads what the sink wrote.
        stream.batch("keys", [(1,), (2,)])
        looked_up = sorted(stream.rows("found"))
        assert [plain(v) for v in looked_up[0]] == [plain(v) for v in row]
        assert looked_up[1] == second
    found = dict(
        database.run("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'kinds'")
    )
    assert (found["price"], found["bytes"], found["row"], found["moment"]) == (
        "numeric", "bytea", "jsonb", "timestamp with time zone",
    )  # fmt: skip


def plain(value: Any) -> Any:
    return str(value)[:19] if isinstance(value, datetime.datetime) else value


REFUSED = {
    "no table": ("nothing", "a INT", "", 'PostgreSQL has no table "nothing"'),
    "no column": ("target", "id INT, nmae STRING", "", 'has no column "nmae"'),
    "type": ("target", "id INT, name INT", "", 'column "name" is text in PostgreSQL, and declared INTEGER'),
    "narrow type": ("target", "id BIGINT, name STRING", "", 'column "id" is integer in PostgreSQL, and declared BIGINT'),
    "decimals": ("target", "id INT, price DECIMAL(10, 3)", "", 'is numeric(10,2) in PostgreSQL, and declared DECIMAL(10,3)'),
    "not null": ("strict", "a INT", "", 'demands a value for column "b" (NOT NULL, without a default)'),
    "generated": ("strict", "a INT, b INT, twice INT", "", 'computes column "twice" itself'),
    "index": ("target", "id INT, name STRING, PRIMARY KEY (name) NOT ENFORCED", "", "has no unique index over"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_declared_wrongly_is_said_at_the_start(case: str, database: Database) -> None:
    database.run(
        "CREATE TABLE IF NOT EXISTS target (id integer PRIMARY KEY, name text, price numeric(10, 2))",
        "CREATE TABLE IF NOT EXISTS strict (a int, b int NOT NULL, c int NOT NULL DEFAULT 1,"
        " twice int GENERATED ALWAYS AS (a * 2) STORED)",
    )
    table, columns, more, message = REFUSED[case]
    check_refused(columns, options(database, table, more), message)


def test_rows_that_the_server_refuses(database: Database) -> None:
    database.run("CREATE TABLE checked (n bigint PRIMARY KEY CHECK (n < 10), short varchar(3) NOT NULL)")
    script = copying("n BIGINT, short STRING", options(database, "checked"))
    for row, said in (((10, "a"), "violates check"), ((1, None), "null value"), ((1, "long"), "value too long")):
        with Stream(script) as stream, pytest.raises(DataError, match=said) as refused:
            stream.batch("given", [row])
        assert 'PostgreSQL refuses rows of table "kept"' in refused.value.message


def test_a_server_that_cannot_be_reached(database: Database) -> None:
    nowhere = (
        "'connector' = 'postgresql', 'url' = 'host=/nowhere password=hunter2', 'table' = 't', 'sink.max-retries' = '1'"
    )
    with pytest.raises(JobError) as failed:
        Stream(COUNTS.format(options=nowhere))
    assert failed.value.message.startswith('writing table "counts" failed 2 times: connection')
    assert "hunter2" not in failed.value.render()
    wrong = created(Database(database.url.replace("/test_", "/no_test_")), "t")
    with pytest.raises(JobError, match=r'writing table "counts" failed: .*does not exist'):
        Stream(COUNTS.format(options=wrong))
    with pytest.raises(UsageError, match='table "counts": the url is not one: missing "="'):
        Stream(COUNTS.format(options=options(Database("nonsense"), "t")))
