"""Streams with what projects have around their jobs: files, clocks, jobs that feed each other, catalogs with connectors."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sqlstream.errors import UsageError
from sqlstream.testing import Stream

COPY = "INSERT INTO out SELECT * FROM given"


def test_files_are_read_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n2,b\n")
    table = f"CREATE TABLE given (n INT, s STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv'"
    for interval in ("", ", 'source.monitor-interval' = '1 h'"):
        with Stream(f"{table}{interval}); CREATE TABLE out (n INT, s STRING); {COPY}") as stream:
            assert stream.rows() == []
            stream.finish()
            assert sorted(stream.rows()) == [(1, "a"), (2, "b")]
            stream.restart()
            stream.finish()
            assert len(stream.rows()) == 2


def test_files_are_not_read_of_a_table_that_was_fed(tmp_path: Path) -> None:
    script = f"""CREATE TABLE given (n INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/none', 'format' = 'parquet');
    CREATE TABLE out (n INT); {COPY}"""
    with Stream(script) as stream:
        stream.batch("given", [(1,)])
        stream.finish()
        assert stream.rows() == [(1,)]
    # Files of Parquet might have been fed.
    script = script.replace("parquet", "json")
    with (
        Stream(script) as stream,
        pytest.raises(UsageError, match=r'table "given": no file or directory matches ".*none"'),
    ):
        stream.finish()


def test_what_cannot_be_fed_says_so(tmp_path: Path) -> None:
    script = f"""
    CREATE TABLE given (n INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json');
    CREATE TABLE made (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
    CREATE TABLE out (n INT);
    INSERT INTO out SELECT * FROM given UNION ALL SELECT * FROM made"""
    with Stream(script) as stream:
        with pytest.raises(UsageError, match=r'table "given" cannot be fed \(connector "filesystem", format "json"\)'):
            stream.batch("given", [(1,)])
        with pytest.raises(UsageError, match=r'table "made" cannot be fed \(connector "datagen"\)'):
            stream.batch("made", [(1,)])
        with pytest.raises(UsageError, match='table "out" is written by a job'):
            stream.batch("out", [(1,)])


def test_a_job_may_come_before_the_one_that_feeds_it() -> None:
    script = """
    CREATE TABLE a (x INT); CREATE TABLE b (x INT); CREATE TABLE c (x INT);
    INSERT INTO c SELECT x + 1 FROM b;
    INSERT INTO b SELECT x * 10 FROM a;"""
    with Stream(script) as stream:
        stream.batch("a", [(1,)])
        assert (stream.rows("b"), stream.rows("c")) == ([(10,)], [(11,)])
        stream.restart()
        stream.batch("a", [(2,)])
        assert sorted(stream.rows("c")) == [(11,), (21,)]


def test_the_end_comes_to_a_job_after_those_that_feed_it() -> None:
    script = """
    CREATE TABLE a (ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
    CREATE TABLE minutes (n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
    CREATE TABLE hours (n DECIMAL(38, 0));
    INSERT INTO hours SELECT SUM(n) FROM TUMBLE(TABLE minutes, DESCRIPTOR(ts), INTERVAL '1' HOUR)
    GROUP BY window_start, window_end;
    INSERT INTO minutes SELECT COUNT(*), window_start FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end"""
    with Stream(script) as stream:
        stream.batch("a", [("2026-01-01 10:00:00",), ("2026-01-01 10:00:01",), ("2026-01-01 10:01:00",)])
        stream.finish()
        assert stream.rows("hours") == [(3,)]


def test_jobs_that_feed_each_other_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
    CREATE TABLE a (x INT); CREATE TABLE halves (x INT); CREATE TABLE again (x INT);
    INSERT INTO halves SELECT x // 2 FROM a UNION ALL SELECT x // 2 FROM again;
    INSERT INTO again SELECT x FROM halves WHERE x > {least}"""
    with Stream(script.format(least=0)) as stream:
        stream.batch("a", [(20,)])
        assert sorted(stream.rows("halves")) == [(0,), (1,), (2,), (5,), (10,)]
    monkeypatch.setattr("sqlstream.testing.stream.ROUNDS", 5)
    with (
        Stream(script.format(least=-1)) as stream,
        pytest.raises(UsageError, match="without an end, 5 times for a batch"),
    ):
        stream.batch("a", [(1,)])


def test_a_job_that_would_write_what_another_one_reads_as_fed_is_refused() -> None:
    with Stream("CREATE TABLE a (x INT); CREATE TABLE given (x INT); CREATE TABLE out (x INT);" + COPY) as stream:
        with pytest.raises(UsageError, match='table "given" is fed: job "out", which reads it') as refused:
            stream.script("INSERT INTO given SELECT x FROM a")
        assert "one script" in (refused.value.hint or "")


def test_lookups_find_what_was_fed() -> None:
    script = """
    CREATE TABLE clicks (u INT, p AS PROCTIME()); CREATE TABLE users (id INT, name STRING); CREATE TABLE out (u INT, name STRING);
    INSERT INTO out SELECT c.u, w.name FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS w ON w.id = c.u"""
    with Stream(script) as stream:
        stream.batch("clicks", [(1,)])
        stream.batch("users", [(1, "ann")])
        stream.batch("clicks", [(1,)])
        assert sorted(stream.rows(), key=str) == [(1, "ann"), (1, None)]


def test_the_clock_begins_and_moves_as_it_is_told() -> None:
    script = """
    CREATE TABLE click (p AS PROCTIME(), page STRING); CREATE TABLE late (n BIGINT, at TIMESTAMP(3), p AS PROCTIME());
    CREATE TABLE hourly (n BIGINT, at TIMESTAMP(3)); CREATE TABLE daily (n BIGINT, at TIMESTAMP(3));
    INSERT INTO daily SELECT COUNT(*), window_start FROM TUMBLE(TABLE late, DESCRIPTOR(p), INTERVAL '1' DAY)
    GROUP BY window_start, window_end;
    INSERT INTO late SELECT COUNT(*), window_start FROM TUMBLE(TABLE click, DESCRIPTOR(p), INTERVAL '1' HOUR)
    GROUP BY window_start, window_end"""
    with Stream(script, now="2026-01-01 10:20") as stream:
        stream.batch("click", [("home",)])
        stream.advance(timedelta(minutes=30))
        assert stream.rows("late") == []
        stream.advance("10 min")
        assert [row[:2] for row in stream.rows("late")] == [(1, datetime(2026, 1, 1, 10))]
        stream.advance(13 * 3_600_000)
        assert stream.rows("daily") == [(1, datetime(2026, 1, 1))]
        with pytest.raises(UsageError, match="a duration, such as"):
            stream.advance("ten")
        before = stream.now
        for part in ("500 us", timedelta(microseconds=1), "1500 us"):
            with pytest.raises(UsageError, match=r"the clock moves by whole milliseconds, not by [\d.]+ ms"):
                stream.advance(part)
        for back in (-1, timedelta(days=-1)):
            with pytest.raises(UsageError, match="is negative"):
                stream.advance(back)
        assert stream.now == before


PROJECT = {
    "catalog/tables.sql": """
    CREATE TABLE orders (id BIGINT, customer BIGINT, at TIMESTAMP(3) METADATA FROM 'file.modification-time', p AS PROCTIME())
    WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.watermark.idle-timeout' = '1 min');
    CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'sqlite', 'path' = 'shop.db', 'table' = 'customers');
    CREATE TABLE shown (id BIGINT, name STRING) WITH ('connector' = 'print');
    CREATE TABLE changes (id BIGINT, name STRING)
    WITH ('connector' = 'filesystem', 'path' = 'changes', 'format' = 'debezium-json');
    CREATE VIEW named AS SELECT o.id, shout(c.name) AS name FROM orders AS o
    JOIN customers FOR SYSTEM_TIME AS OF o.p AS c ON c.id = o.customer;
    """,
    "udfs/texts.py": "from sqlstream import udf\n\n\n@udf\ndef shout(text: str) -> str:\n    return text.upper()\n",
    "sqlstream.toml": "[options]\n'table.local-time-zone' = 'Europe/Rome'\n",
}


@pytest.fixture
def project(tmp_path: Path) -> str:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


def test_a_project_with_its_tables_fed(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with Stream.project(".", "INSERT INTO shown SELECT * FROM named") as stream:
        stream.batch("customers", [(7, "ann")])
        stream.batch("orders", [(1, 7, "2026-01-01 10:00"), {"id": 2, "customer": 8}])
        assert stream.rows() == [(1, "ANN")]
        assert stream.compiler.options.text("table.local-time-zone") == "Europe/Rome"
    assert sorted(path.name for path in Path(project).iterdir()) == ["catalog", "sqlstream.toml", "udfs"]


def test_tables_of_a_project_that_are_kept(project: str) -> None:
    (Path(project) / "in").mkdir()
    (Path(project) / "in" / "a.json").write_text('{"id": 1, "customer": 7}\n')
    script = "CREATE TABLE out (id BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO out SELECT id FROM orders"
    with Stream.project(project, script, keep=["ORDERS"]) as stream:
        with pytest.raises(UsageError, match='table "orders" cannot be fed'):
            stream.batch("orders", [(1, 7, None)])
        stream.finish()
        assert stream.rows() == [(1,)]


def test_changes_that_only_a_connector_tells_apart_are_not_fed(project: str) -> None:
    with pytest.raises(UsageError, match='table "changes" has changes, which "filesystem" tells apart') as refused:
        Stream.project(project, "CREATE TABLE out (id BIGINT); INSERT INTO out SELECT id FROM changes")
    assert "keep=[..]" in (refused.value.hint or "")
