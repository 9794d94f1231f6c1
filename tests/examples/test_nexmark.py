"""The queries of examples/nexmark: the sum of what they emit is what DuckDB says about all events at once."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.nexmark.source import COLUMNS, Settings, events
from sqlstream.duck.sql import quote_name
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "nexmark"
OPTIONS = {"first-event.rate": "250", "events.num": "10000", "base-time": "2026-01-01 00:00:00"}
ENVIRONMENT = {"NEXMARK_EVENTS": OPTIONS["events.num"], "NEXMARK_RATE": OPTIONS["first-event.rate"]}
QUERIES = [f"q{number}" for number in range(24)]

_MINE = "bid.auction = auction.id AND bid.dateTime BETWEEN auction.dateTime AND auction.expires"
_RANGES = ("true", "price < 10000", "price BETWEEN 10000 AND 999999", "price >= 1000000")
_COUNTS = ", ".join(
    f"count({what}) FILTER ({range})" for what in ("*", "DISTINCT bidder", "DISTINCT auction") for range in _RANGES
)
_WINNING = f"SELECT auction.*, max(bid.price) AS final FROM auction JOIN bid ON {_MINE} GROUP BY ALL"
_COUNTED = """
SELECT auction, w AS window_start, count(*) AS bids
FROM (SELECT auction, unnest(range(time_bucket(INTERVAL 2 SECOND, dateTime) - INTERVAL 8 SECOND,
    time_bucket(INTERVAL 2 SECOND, dateTime) + INTERVAL 1 SECOND, INTERVAL 2 SECOND)) AS w FROM bid)
GROUP BY ALL"""
_SESSIONS = """
SELECT bidder, dateTime, sum(starts) OVER (PARTITION BY bidder ORDER BY dateTime, n) AS session
FROM (SELECT *, row_number() OVER () AS n, coalesce(dateTime > lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
    + INTERVAL 10 SECOND, true)::INT AS starts FROM bid)"""
# DuckDB's batch answers.
ANSWERS = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": "SELECT name, city, state, auction.id FROM auction JOIN person ON seller = person.id "
    "WHERE category = 10 AND state IN ('OR', 'ID', 'CA')",
    "q4": f"SELECT category, avg(final) FROM ({_WINNING}) GROUP BY category",
    "q5": f"WITH c AS ({_COUNTED}) SELECT auction, bids, window_start, window_start + INTERVAL 10 SECOND FROM c "
    "QUALIFY bids = max(bids) OVER (PARTITION BY window_start)",
    "q6": f"SELECT seller, avg(final) FROM (FROM ({_WINNING}) QUALIFY row_number() "
    "OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10) GROUP BY seller",
    "q7": "SELECT auction, bidder, price, dateTime, extra FROM bid "
    "QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECOND, dateTime))",
    "q8": "SELECT DISTINCT person.id, name, time_bucket(INTERVAL 10 SECOND, person.dateTime) FROM person JOIN auction ON "
    "person.id = seller "
    "AND time_bucket(INTERVAL 10 SECOND, person.dateTime) = time_bucket(INTERVAL 10 SECOND, auction.dateTime)",
    "q9": "SELECT auction.*, bidder, price, bid.dateTime, bid.extra "
    f"FROM auction JOIN bid ON {_MINE} QUALIFY row_number() "
    "OVER (PARTITION BY auction.id ORDER BY price DESC, bid.dateTime, bidder) = 1",
    "q11": f"SELECT bidder, count(*), min(dateTime), max(dateTime) + INTERVAL 10 SECOND FROM ({_SESSIONS}) "
    "GROUP BY bidder, session",
    "q14": "SELECT auction, bidder, 0.908 * price, CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime' "
    "WHEN hour(dateTime) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END, dateTime, extra, "
    "length(extra) - length(replace(extra, 'c', '')) "
    "FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT strftime(dateTime, '%Y-%m-%d') AS day, {_COUNTS} FROM bid GROUP BY day",
    "q16": "SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, max(strftime(dateTime, '%H:%M')), "
    f"{_COUNTS} FROM bid GROUP BY channel, day",
    "q17": "SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, "
    + ", ".join(f"count(*) FILTER ({range})" for range in _RANGES)
    + ", min(price), max(price), avg(price), sum(price)::BIGINT FROM bid GROUP BY auction, day",
    "q18": "SELECT * FROM bid "
    "QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC) = 1",
    "q19": "SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS place "
    "FROM bid QUALIFY place <= 10",
    "q20": "SELECT bid.*, itemName, description, initialBid, reserve, auction.dateTime, expires, seller, category, "
    "auction.extra FROM bid JOIN auction ON auction = id WHERE category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
    "WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE regexp_extract(url, 'channel_id=([^&]*)', 1) END AS id "
    "FROM bid WHERE id <> ''",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), "
    "split_part(url, '/', 6) FROM bid",
    "q23": "SELECT bidder, price, channel, url, bid.extra, name, emailAddress, creditCard, city, state, person.extra, "
    "itemName, description, initialBid, reserve, auction.dateTime, expires, category, auction.extra "
    "FROM bid JOIN person ON bidder = person.id JOIN auction ON seller = bidder",
}


@pytest.fixture(scope="module")
def batch() -> Iterator[duckdb.DuckDBPyConnection]:
    """All events as `nexmark`, and the views of the example as DuckDB reads them."""
    settings = Settings.of(Table("nexmark", COLUMNS, options={"connector": "nexmark", **OPTIONS}))
    assert settings.total is not None
    assert settings.base is not None
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("made", pa.Table.from_batches(events(settings, 0, settings.total, settings.base)))
        con.execute("CREATE TABLE nexmark AS FROM made")
        for kind, name in enumerate(("person", "auction", "bid")):
            con.execute(f"CREATE VIEW {name} AS SELECT unnest({name}) FROM nexmark WHERE event_type = {kind}")
        yield con


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {**ENVIRONMENT, "NEXMARK_OUT": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def stream(batch: duckdb.DuckDBPyConnection) -> Iterator[Stream]:
    """The example's tables, with events that are fed."""
    columns = ", ".join(f"{quote_name(c.name)} {c.type}" for c in COLUMNS)
    declared = (
        (EXAMPLE / "tables.sql").read_text().replace("CREATE TABLE nexmark (", f"CREATE TABLE nexmark ({columns},")
    )
    fed = re.sub(r"\) WITH \(.*?\n\);", ");", declared, count=1, flags=re.DOTALL)
    count_char = runpy.run_path(str(ROOT / "udfs" / "nexmark.py"))["count_char"]
    with Stream(fed, functions=[count_char]) as made:
        yield made


def feed(stream: Stream, batch: duckdb.DuckDBPyConnection) -> None:
    """Give all events in four batches, with a restart; they are out of order by as much as the watermark allows."""
    late = "INTERVAL 1 MILLISECOND * (hash(bid, auction, person) % 3900)"
    for quarter in range(4):
        rows = f"SELECT * FROM nexmark QUALIFY ntile(4) OVER (ORDER BY dateTime + {late}) = {quarter + 1}"
        stream.advance(3000)
        stream.batch("nexmark", batch.sql(rows).to_arrow_table())
        if quarter == 1:
            stream.restart()
    stream.finish()


def run(stream: Stream, query: str) -> None:
    stream.script((EXAMPLE / f"{query}.sql").read_text(), query)


def alike(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return rows that can be compared: averages may differ in their last digits."""
    return sorted(str([round(v, 6) if isinstance(v, float) else v for v in row]) for row in rows)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("query", ANSWERS)
@pytest.mark.slow
def test_the_stream_gives_the_batch_answer(stream: Stream, batch: duckdb.DuckDBPyConnection, query: str) -> None:
    run(stream, query)
    feed(stream, batch)
    expected = batch.sql(ANSWERS[query]).fetchall()
    assert len(expected) > 0
    assert alike(stream.rows(query)) == alike(expected)
    # So does the batch query that is made from the plan.
    report = stream.verify(query)
    assert report, report


def test_files_by_minute(stream: Stream, batch: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    run(stream, "q10")
    feed(stream, batch)
    written = (
        f"read_csv('{tmp_path}/q10/**/*.csv', hive_partitioning = true, hive_types_autocast = false, header = false)"
    )
    shown = batch.sql(f"SELECT dt, hm, count(*), sum(column0), sum(column2) FROM {written} GROUP BY ALL").fetchall()
    minutes = "strftime(dateTime, '%Y-%m-%d'), strftime(dateTime, '%H-%M')"
    expected = batch.sql(f"SELECT {minutes}, count(*), sum(auction), sum(price) FROM bid GROUP BY ALL").fetchall()
    assert alike(shown) == alike(expected)


def test_windows_by_the_clock_have_every_bid_once(stream: Stream, batch: duckdb.DuckDBPyConnection) -> None:
    run(stream, "q12")
    feed(stream, batch)
    shown = stream.query("SELECT bidder, sum(bids), min(window_start) < max(window_end) FROM q12 GROUP BY bidder")
    assert alike(shown) == alike(batch.sql("SELECT bidder, count(*), true FROM bid GROUP BY bidder").fetchall())
    assert stream.query("SELECT count(DISTINCT window_end) FROM q12") == [(2,)]


def test_bids_with_what_a_file_says(stream: Stream, batch: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    side = "SELECT range AS key, 'value ' || range AS value FROM range(10000)"
    (tmp_path / "side_input").mkdir()
    batch.execute(f"COPY ({side}) TO '{tmp_path}/side_input/part.csv' (HEADER false)")
    script = re.sub(r"INSERT INTO side_input.*?;", "", (EXAMPLE / "q13.sql").read_text(), flags=re.DOTALL)
    stream.script(script, "q13")
    feed(stream, batch)
    expected = batch.sql(
        f"SELECT auction, bidder, price, dateTime, value FROM bid JOIN ({side}) ON key = auction % 10000"
    )
    assert alike(stream.rows("q13")) == alike(expected.fetchall())


@pytest.mark.slow
@pytest.mark.thorough
def test_every_query_runs_on_the_generator() -> None:
    """With the table as it is declared, which makes its own events."""
    tables = (EXAMPLE / "tables.sql").read_text()
    count_char = runpy.run_path(str(ROOT / "udfs" / "nexmark.py"))["count_char"]
    for query in QUERIES:
        with Stream(tables, functions=[count_char]) as stream:
            run(stream, query)
            stream.finish()
            assert query == "q10" or len(stream.rows(query)) > 0


def test_the_lists_have_every_query() -> None:
    listed = re.findall(r"^\| q(\d+) \|", (EXAMPLE / "README.md").read_text(), flags=re.MULTILINE)
    # In the table of what they are, and in that of their speed.
    assert [f"q{number}" for number in dict.fromkeys(listed)] == QUERIES
    assert {path.stem for path in EXAMPLE.glob("q*.sql")} == set(QUERIES)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
def test_on_spark(batch: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A join of windows, one within an interval, and one whose result changes twice."""
    shutil.copytree(ROOT / "udfs", tmp_path / "udfs")
    queries = ("q4", "q5", "q7")
    scripts = [str(EXAMPLE / f"{name}.sql") for name in ("tables", *queries)]
    command = [sys.executable, "-m", "sqlstream", "run", *scripts, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for query in queries:
        shown = open_query(Warehouse(str(tmp_path / "warehouse")), f"SELECT * FROM {query}").fetchall()
        assert alike(shown) == alike(batch.sql(ANSWERS[query]).fetchall())
