"""Point lookups: one key of a state, at any version, as a state query has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sqlstream.errors import QueryError
from sqlstream.queries.lookup import Lookups
from sqlstream.queries.query import open_query
from sqlstream.storage.key_index import forget_indexes
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from tests.server.serving import serving, settings_of

pytestmark = pytest.mark.slow

SQL = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE bid (auction INT, who STRING, ts TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR ts AS ts);
CREATE TABLE totals (auction INT, who STRING, n BIGINT, top DECIMAL(10, 2), PRIMARY KEY (auction, who) NOT ENFORCED);
INSERT INTO totals SELECT auction, who, COUNT(*), MAX(price) FROM bid GROUP BY auction, who;
CREATE TABLE windows (auction INT, n BIGINT);
INSERT INTO windows SELECT auction, COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end
"""
BATCHES = 8


def rows(batch: int) -> list[dict[str, object]]:
    """Return the bids of a batch: each key comes in some batches, and not in others."""
    time = f"2026-01-01 00:00:{batch:02d}"
    return [
        {"auction": a, "who": None if a == 3 else f"w{a % 2}", "ts": time, "price": f"{a * batch % 7}.5"}
        for a in range(20)
        if (a + batch) % 3
    ]


@pytest.fixture(scope="module")
def stream() -> Iterator[Stream]:
    with Stream(SQL, parallelism=2) as found:
        for batch in range(BATCHES):
            found.advance(1000)
            found.batch("bid", rows(batch))
        yield found


@pytest.fixture
def lookups(stream: Stream) -> Iterator[Lookups]:
    found = Lookups(Warehouse(stream.warehouse), 1 << 30, lambda connection: None)
    yield found
    found.close()


def asked(stream: Stream, name: str, version: int, condition: str) -> list[tuple[object, ...]]:
    sql = f"FROM state.{name} AT (VERSION => {version}) WHERE {condition} ORDER BY ALL"
    return open_query(Warehouse(stream.warehouse), sql).fetchall()


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["indexed", "no room"])
def test_every_key_at_every_version_is_what_a_query_finds(stream: Stream, memory: int) -> None:
    forget_indexes()
    lookups = Lookups(Warehouse(stream.warehouse), memory, lambda connection: None)
    for auction in (0, 1, 2, 19, 77):
        for version in range(0, BATCHES, 4):
            who = f"w{auction % 2}"
            found = lookups.find("totals", "aggregate_1", [str(auction), who], version)
            wanted = asked(stream, "totals.aggregate_1", version, f"auction = {auction} AND who = '{who}'")
            assert (sorted(map(tuple, found.rows)), found.version.version) == (wanted, version)
            windows = lookups.find("windows", "window_aggregate_1", [str(auction)], version)
            assert sorted(map(tuple, windows.rows)) == asked(
                stream, "windows.window_aggregate_1", version, f"auction = {auction}"
            )
    lookups.close()


def test_a_null_in_a_key_is_a_value(stream: Stream, lookups: Lookups) -> None:
    newest = lookups.find("totals", "aggregate_1", ["3", None])
    wanted = asked(stream, "totals.aggregate_1", newest.version.version, "auction = 3 AND who IS NULL")
    assert list(newest.rows) == wanted
    assert len(wanted) == 1


@pytest.mark.parametrize(
    ("job", "operator", "key", "version", "message"),
    [
        ("nope", "aggregate_1", ["1"], None, 'job "nope" does not exist'),
        ("totals", "nope", ["1"], None, 'job "totals" has no operator "nope"'),
        ("totals", "aggregate_1", ["1"], None, 'the key of "totals.aggregate_1" has 2 columns, not 1'),
        (
            "totals",
            "aggregate_1",
            ["1.5", "w1"],
            None,
            '"1.5" is no value of key column "auction", whose type is INTEGER',
        ),
        ("totals", "aggregate_1", ["1", "w1"], 999, 'job "totals" keeps no version 999'),
    ],
)
def test_what_is_not_there_is_said(
    lookups: Lookups, job: str, operator: str, key: list[str | None], version: int | None, message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        lookups.find(job, operator, key, version)
    assert caught.value.message == message


def test_over_http(stream: Stream) -> None:
    folder = Path(stream.warehouse).parent
    with serving(settings_of(folder)) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        found = client.get("/v1/state/totals/aggregate_1", params={"key": ["2", "w0"], "version": "5"})
        assert found.status_code == 200, found.text
        answer = found.json()
        [wanted] = asked(stream, "totals.aggregate_1", 5, "auction = 2 AND who = 'w0'")
        assert answer["version"] == 5
        assert answer["rows"][0][:2] == list(wanted[:2])
        assert [c["name"] for c in answer["columns"]][:2] == ["auction", "who"]
        assert client.get("/v1/state/totals/nope?key=1").status_code == 404
        assert client.get("/v1/state/totals/aggregate_1?key=1&key=w1&version=99").status_code == 404
        assert client.get("/v1/state/totals/aggregate_1").json()["detail"].startswith('the parameter "key" is needed')
        metrics = client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert 'sqlstream_job_up{job_name="totals"}' in metrics.text
