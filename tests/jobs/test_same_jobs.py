"""Which changes of a script make another job of it, and which do not; the words that show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.jobs.difference import difference
from sqlstream.jobs.identity import Identity, planned_identity
from tests.formats.make_kinds import FUNCTION, SCRIPT
from tests.jobs.savepoint_jobs import open_session, planned

SQL = SCRIPT.read_text()
# What is replaced, by what, and words of the line that shows it.
CHANGES = {
    "source option": ("'in/orders', 'format' = 'parquet'", "'in/orders', 'format' = 'json'", "format=json"),
    "where files are": ("'in/rates'", "'in/other'", "path=in/other"),
    "watermark": (
        "rate BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1'",
        "rate BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2'",
        "watermark ts",
    ),
    "window size": ("INTERVAL '10' SECOND) GROUP BY", "INTERVAL '20' SECOND) GROUP BY", "size 20"),
    "aggregate": ("AVG(amount) AS mean", "MAX(amount) AS mean", "max("),
    "distinct": ("COUNT(DISTINCT amount) AS amounts\n", "COUNT(amount) AS amounts\n", 'count("amount")'),
    "filter of a call": ("COUNT(*) AS n, AVG", "COUNT(*) FILTER (WHERE amount > 3) AS n, AVG", "FILTER"),
    "gap of sessions": ("INTERVAL '3' SECOND", "INTERVAL '4' SECOND", "gap 4"),
    "rows of windows": ("DESCRIPTOR(ts), 2)", "DESCRIPTOR(ts), 3)", "size 3 rows"),
    "key of windows": (
        "FROM TUMBLE_ROWS(TABLE orders PARTITION BY customer",
        "FROM TUMBLE_ROWS(TABLE orders PARTITION BY amount",
        "by amount",
    ),
    "key of an aggregate": (
        "FROM orders GROUP BY customer",
        "FROM orders GROUP BY customer, amount",
        '"amount" AS amount',
    ),
    "order of ranks in windows": ("window_end ORDER BY amount DESC", "window_end ORDER BY amount", 'order "amount"'),
    "limit of ranks in windows": (
        "WHERE place <= 2\n) SELECT window_end",
        "WHERE place <= 3\n) SELECT window_end",
        "limit 3",
    ),
    "limit of ranks": ("WHERE place <= 2\n) SELECT customer", "WHERE place <= 1\n) SELECT customer", '"place" <= 1'),
    "key of ranks": (
        "PARTITION BY customer ORDER BY amount DESC",
        "PARTITION BY amount ORDER BY amount DESC",
        "row_number",
    ),
    "frame": ("ROWS BETWEEN 1 PRECEDING", "ROWS BETWEEN 2 PRECEDING", "rows 2 preceding"),
    "call with OVER": ("SUM(amount) OVER", "MAX(amount) OVER", "max("),
    "set operation": ("EXCEPT SELECT", "INTERSECT SELECT", "Intersect"),
    "kind of a join": ("LEFT JOIN payments", "JOIN payments", "Join"),
    "condition of a join": (
        "p ON o.customer = p.customer\n)",
        "p ON o.customer = p.customer AND o.amount > p.paid\n)",
        "where",
    ),
    "key of a join": ("p ON o.customer = p.customer\n)", "p ON o.customer = p.paid\n)", '= "paid'),
    "interval of a join": ("INTERVAL '5' SECOND", "INTERVAL '6' SECOND", "6 s"),
    "kind of a temporal join": ("    LEFT JOIN rates FOR", "    JOIN rates FOR", "TemporalJoin"),
    "key of a table of changes": (
        "name STRING, PRIMARY KEY (customer) NOT ENFORCED) WITH",
        "name STRING, PRIMARY KEY (name) NOT ENFORCED) WITH",
        "by name",
    ),
    "key of a process function": (
        "* FROM running_total(TABLE payments PARTITION BY customer",
        "*, 1 AS customer FROM running_total(TABLE payments PARTITION BY paid",
        "1 AS customer",
    ),
    "time to live of a process function": (
        "SET 'sqlstream.unbounded",
        "SET 'table.exec.state.ttl' = '1 h';\nSET 'sqlstream.unbounded",
        "that expires",
    ),
    "order": ("ORDER BY ts;", "ORDER BY ts, amount;", "Sort"),
    "condition": ("customer, name FROM names", "customer, name FROM names WHERE customer > 1", "Filter"),
    "item": ("customer, amount, ts FROM orders ORDER", "customer, amount + 1, ts FROM orders ORDER", "+ 1"),
    "name of an operator": ("by_customer", "of_customer", "of_customer"),
    "table that is written": ("over_rows", "other_rows", "Sink other_rows"),
    "key of a table that is written": (
        "amounts BIGINT, PRIMARY KEY (customer) NOT ENFORCED",
        "amounts BIGINT, PRIMARY KEY (customer, n) NOT ENFORCED",
        "Key of aggregate: customer, n",
    ),
    "column of a table that is written": (
        "process (customer BIGINT, paid BIGINT",
        "process (customer BIGINT, paid INT",
        "paid INT",
    ),
}
# What may change while a job lives.
FREE = {
    "interval": ("'10 ms'", "'20 ms'"),
    "time to live": (
        "by_customer AS (\n    SELECT customer",
        "by_customer AS (\n    SELECT /*+ STATE_TTL('orders' = '1 h') */ customer",
    ),
    "idle sources": ("'format' = 'parquet',", "'format' = 'parquet', 'scan.watermark.idle-timeout' = '1 s',"),
    "idle timeout": (
        "SET 'sqlstream.unbounded",
        "SET 'table.exec.source.idle-timeout' = '1 s';\nSET 'sqlstream.unbounded",
    ),
    "aliases": (
        "orders AS o LEFT JOIN payments AS p ON o.customer = p.customer",
        "orders AS o LEFT JOIN payments AS p ON (o.customer = p.customer)",
    ),
    "spaces": (" SELECT ", "  select\n"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "udfs").mkdir()
    (folder / "udfs" / "totals.py").write_text(FUNCTION)
    return folder


def identity(folder: Path, script: str) -> Identity:
    with open_session(folder) as session:
        return planned_identity(planned(session, script))


@pytest.fixture(scope="module")
def job(folder: Path) -> Identity:
    return identity(folder, SQL)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_another_job_and_is_shown(folder: Path, job: Identity, change: str) -> None:
    before, after, words = CHANGES[change]
    assert before in SQL
    changed = identity(folder, SQL.replace(before, after))
    assert changed.digests != job.digests
    assert not job.is_same(changed)
    shown = difference(job.text, changed.text).splitlines()
    assert any(line.startswith("+") and words in line for line in shown), shown


@pytest.mark.parametrize("change", FREE)
def test_what_may_change_while_a_job_lives_makes_no_other_job(folder: Path, job: Identity, change: str) -> None:
    before, after = FREE[change]
    assert before in SQL
    changed = identity(folder, SQL.replace(before, after))
    assert changed.digests == job.digests
    assert changed.text == job.text


def test_of_long_lines_of_which_one_begins_the_other_the_end_is_shown() -> None:
    line = "Process " + "x" * 200
    shown = difference(line, f"{line} that expires").splitlines()
    assert shown[-2].endswith("xxx")
    assert shown[-1].endswith("xxx that expires")
