"""What the server says of state and results over time: versions, differences, explanations, and the changes of tables."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from sqlstream.errors import DamageError
from sqlstream.queries.query import open_query
from sqlstream.server.overview import Overview
from sqlstream.server.problems import HttpError
from sqlstream.server.table_tails import TableWatcher
from sqlstream.session.session import Session
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import read_status, write_status
from tests.server.serving import serving, settings_of

pytestmark = pytest.mark.slow

SQL = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE bid (auction BIGINT, who STRING, ts TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR ts AS ts);
CREATE TABLE totals (auction BIGINT, who STRING, n BIGINT, top DECIMAL(10, 2), PRIMARY KEY (auction, who) NOT ENFORCED);
INSERT INTO totals SELECT auction, who, COUNT(*), MAX(price) FROM bid GROUP BY auction, who;
CREATE TABLE newest (auction BIGINT, who STRING, price DECIMAL(10, 2), PRIMARY KEY (auction) NOT ENFORCED);
INSERT INTO newest SELECT auction, who, price FROM bid;
CREATE TABLE ranked (auction BIGINT, price DECIMAL(10, 2));
INSERT INTO ranked SELECT auction, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction % 4 ORDER BY price DESC, auction) AS r FROM bid
) WHERE r <= 2;
CREATE TABLE windows (auction BIGINT, n BIGINT);
INSERT INTO windows
WITH w AS (
    SELECT auction, window_start, window_end, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
)
SELECT auction, n FROM w
"""
TABLES = ("totals", "newest", "ranked", "windows")
# Segments of changes are merged by eight.
BATCHES = 10
LARGE = 9007199254740993


def rows(batch: int) -> list[dict[str, object]]:
    time = f"2026-01-01 00:00:{batch * 4:02d}"
    return [
        {"auction": LARGE + a, "who": None if a == 3 else f"w{a % 2}", "ts": time, "price": f"{a * batch % 7}.5"}
        for a in range(12)
        if (a + batch) % 3
    ]


@pytest.fixture(scope="module")
def stream() -> Iterator[Stream]:
    with Stream(SQL, parallelism=1) as found:
        for batch in range(BATCHES):
            found.advance(1000)
            found.batch("bid", rows(batch))
        yield found


@pytest.fixture(scope="module")
def client(stream: Stream) -> Iterator[httpx.Client]:
    with (
        serving(settings_of(Path(stream.warehouse).parent)) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def newest_of(stream: Stream, job: str) -> int:
    return int(stream.query(f"SELECT max(version) FROM sqlstream.snapshots WHERE job = '{job}'")[0][0])


def at(stream: Stream, name: str, version: int) -> Counter[tuple[object, ...]]:
    """Return the rows of a relation at a version, as texts; none before the first."""
    if version < 0:
        return Counter()
    found = open_query(Warehouse(stream.warehouse), f"FROM {name} AT (VERSION => {version})")
    texts = ", ".join(f'CAST("{column}" AS VARCHAR)' for column in found.columns)
    return Counter(found.project(texts).fetchall())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("table", TABLES)
def test_changes_are_what_makes_one_version_of_another(stream: Stream, table: str) -> None:
    newest = newest_of(stream, table)
    oldest = newest - 20
    known = [at(stream, table, version) for version in range(oldest, newest + 1)]
    told = 0
    for base in range(oldest, newest, 3):
        watcher = TableWatcher(Warehouse(stream.warehouse), table)
        watcher._seen[table] = watcher.writers()[0][0].created_at, base
        heard = {event.data["version"]: event.data for event in watcher.look()}
        for version in range(base + 1, newest + 1):
            changes = heard.get(version, {"rows": [], "count": 0})
            assert changes["count"] == len(changes["rows"])
            net = Counter(known[version - oldest])
            net.subtract(known[version - oldest - 1])
            found: Counter[tuple[object, ...]] = Counter()
            for kind, *row in changes["rows"]:
                found[tuple(row)] += 1 if kind.startswith("+") else -1
            assert {row: n for row, n in found.items() if n} == {row: n for row, n in net.items() if n}, (base, version)
        told += len(heard)
    assert told > 10


def test_an_update_is_told_from_an_insert(stream: Stream) -> None:
    for table, keys in (("totals", 2), ("newest", 1)):
        seen = set()
        for event in TableWatcher(Warehouse(stream.warehouse), table).look():
            known = {row[:keys] for row in at(stream, table, event.data["version"] - 1)}
            for kind, *row in event.data["rows"]:
                assert (kind == "+I") == (tuple(row[:keys]) not in known), event.data
                seen.add(kind)
        assert seen == {"+I", "-U", "+U"}
    assert {
        kind for e in TableWatcher(Warehouse(stream.warehouse), "windows").look() for kind, *_ in e.data["rows"]
    } == {"+I"}


def test_who_has_fallen_behind_is_told(stream: Stream) -> None:
    newest = newest_of(stream, "totals")
    watcher = TableWatcher(Warehouse(stream.warehouse), "totals")
    assert watcher.look() != watcher.look() == []
    watcher._seen["totals"] = watcher.writers()[0][0].created_at, newest - 30
    first, *rest = watcher.look()
    assert (first.kind, first.data["versions"]) == ("skipped", 10)
    assert {event.kind for event in rest} == {"changes"}
    with pytest.raises(HttpError, match='no job writes a table "nope"'):
        TableWatcher(Warehouse(stream.warehouse), "nope").look()


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with Session(str(tmp_path), notice=lambda text: None) as session:
        session.sql('CREATE TABLE "a.b" (a INT); INSERT INTO "a.b" VALUES (1)')
        warehouse = session.warehouse
        [file] = Path(warehouse.root).glob("tables/**/*.parquet")
        whole = file.read_bytes()
        file.write_bytes(b"PAR1 nothing")
        watcher = TableWatcher(warehouse, "a.b")
        looks = [watcher.look() for _ in range(5)]
        assert [[event.kind for event in look] for look in looks] == [[], [], ["unreadable"], [], []]
        assert file.name in looks[2][0].data["error"]
        file.write_bytes(whole)
        assert [event.kind for event in watcher.look()] == ["changes"]
        overview = Overview(warehouse, lambda job: "process 1")
        assert [one.path for one in overview.relations().relations if one.name == "a.b"] == [["a.b"]]
        # As a process leaves it that is killed, and that the server starts again.
        paths = warehouse.job("a.b_values")
        found = read_status(warehouse.fs, paths)
        assert found is not None
        write_status(warehouse.fs, paths, replace(found, state="RUNNING"))
        [job] = overview.jobs().jobs
        assert job.status == "RESTARTING"
        assert [job.status for job in Overview(warehouse, lambda job: None).jobs().jobs] == ["LOST"]
        overview.close()


def test_why_has_all_digits_of_a_decimal() -> None:
    script = """
    SET 'sqlstream.unbounded-state' = 'allow';
    CREATE TABLE t (k STRING, v DECIMAL(30, 10), few DECIMAL(10, 2));
    CREATE TABLE sums (k STRING, v DECIMAL(38, 10), few DECIMAL(10, 2), PRIMARY KEY (k) NOT ENFORCED);
    INSERT INTO sums WITH o AS (SELECT k, SUM(v) AS v, MAX(few) AS few FROM t GROUP BY k) SELECT * FROM o
    """
    with Stream(script) as stream:
        stream.batch("t", [("a", "12345678901234567890.1234567891", "1.50")])
        [(content,)] = stream.query(
            "SELECT content::VARCHAR FROM sqlstream.why('sums.o', k := 'a') WHERE part = 'state'"
        )
    found = json.loads(content)
    assert (found["k"], found["v"], found["few"]) == ("a", "12345678901234567890.1234567891", 1.5)


def test_changes_come_over_http_as_they_are_committed(stream: Stream, client: httpx.Client) -> None:
    with client.stream("GET", "/v1/tables/TOTALS/changes") as events:
        assert events.headers["content-type"] == "text/event-stream"
        lines = events.iter_lines()

        def heard() -> tuple[str, dict[str, object]]:
            kind = next(line for line in lines if line.startswith("event: ")).removeprefix("event: ")
            return kind, json.loads(next(lines).removeprefix("data: "))

        kind, table = heard()
        assert (kind, table["table"], table["key"], table["jobs"]) == (
            "table",
            "totals",
            ["auction", "who"],
            ["totals"],
        )
        assert [c["name"] for c in table["columns"]] == ["auction", "who", "n", "top"]  # type: ignore[attr-defined]
        stream.advance(1000)
        stream.batch("bid", [{"auction": 1, "who": "late comer", "ts": "2026-01-01 00:01:00", "price": "1.5"}])
        while True:
            kind, data = heard()
            if ["+I", "1", "late comer", "1", "1.50"] in data["rows"]:  # type: ignore[operator]
                break
        assert (kind, data["job"], data["count"]) == ("changes", "totals", 1)
    assert client.get("/v1/tables/nope/changes").json()["detail"] == 'no job writes a table "nope" of the warehouse'


def test_versions_are_those_of_the_log(stream: Stream, client: httpx.Client) -> None:
    found = client.get("/v1/jobs/WINDOWS/versions", params={"state": "w"}).json()
    known = stream.query(
        "SELECT version, epoch_us(committed_at), epoch_us(watermark) FROM sqlstream.snapshots WHERE job = 'windows' ORDER BY 1"
    )
    assert [(v["version"], v["committed_at"], v["watermark"]) for v in found["versions"]] == known
    assert found["job"] == "windows"
    stored = stream.query("SELECT state_rows FROM sqlstream.operators WHERE job = 'windows' AND operator = 'w'")
    assert found["versions"][-1]["state_rows"] == stored[0][0]
    last = client.get("/v1/jobs/windows/versions", params={"since": str(known[-1][0])}).json()["versions"]
    assert [(v["version"], v["state_rows"]) for v in last] == [(known[-1][0], None)]
    [window] = [state["window"] for state in client.get("/v1/jobs/windows").json()["states"]]
    assert window == {"start": "window_start", "end": "window_end", "lateness": 0, "delay": 0, "grows": False}
    for path, status in (
        ("nope/versions", 404),
        ("windows/versions?state=nope", 404),
        ("windows/versions?since=x", 400),
        (f"windows/versions?since={'9' * 5000}", 400),
    ):
        assert client.get(f"/v1/jobs/{path}").status_code == status


def test_a_difference_is_that_of_the_rows(stream: Stream, client: httpx.Client) -> None:
    asked = {"state": "totals.aggregate_1", "older": 3, "newer": 9, "text": True}
    found = client.post("/v1/diff", json=asked).json()
    assert [c["name"] for c in found["columns"]] == ["change", "reason", "before", "after"]
    net = at(stream, "state.totals.aggregate_1", 9)
    net.subtract(at(stream, "state.totals.aggregate_1", 3))
    sides: Counter[tuple[object, ...]] = Counter()
    for _, _, before, after in found["rows"]:
        sides.update({tuple(after.values()): 1} if after else {})
        sides.subtract({tuple(before.values()): 1} if before else {})
    assert {k: n for k, n in sides.items() if n} == {k: n for k, n in net.items() if n}
    assert {row[0] for row in found["rows"]} <= {"added", "changed"}
    assert client.post("/v1/diff", json={**asked, "limit": 1}).json()["truncated"]
    assert client.post("/v1/diff", json={**asked, "limit": (1 << 63) - 1}).json() == found
    problem = client.post("/v1/diff", json={**asked, "older": 10}).json()
    assert (problem["detail"], "position" in problem) == ("version 9 is older than version 10", False)
    assert client.post("/v1/diff", json={**asked, "older": 999}).status_code == 404


def test_why_is_what_sqlstream_why_says(stream: Stream, client: httpx.Client) -> None:
    key = {"auction": str(LARGE + 4), "who": "w0"}
    found = client.post("/v1/why", json={"state": "totals.aggregate_1", "key": key, "version": 5}).json()
    sql = f"FROM sqlstream.why('totals.aggregate_1', 5, auction := '{LARGE + 4}', who := 'w0')"
    wanted = open_query(Warehouse(stream.warehouse), sql)
    assert [c["name"] for c in found["columns"]] == wanted.columns
    said = [(part, text, content) for part, _, text, _, content in wanted.fetchall()]
    assert [(row[0], row[2], row[4]) for row in found["rows"]] == said
    null = client.post("/v1/why", json={"state": "totals.aggregate_1", "key": {"auction": LARGE + 3, "who": None}})
    assert any(row[0] == "state" for row in null.json()["rows"])
    problem = client.post("/v1/why", json={"state": "totals.aggregate_1", "key": {"who": "x"}}).json()
    assert problem["detail"] == 'there is no value for key column "auction"'


def test_a_job_is_shown_whatever_is_wrong_with_others() -> None:
    with Stream(SQL, parallelism=1) as stream:
        stream.batch("bid", rows(1))
        warehouse = Warehouse(stream.warehouse)
        shutil.rmtree(warehouse.job("windows").state)
        overview = Overview(warehouse, lambda job: None)
        try:
            assert [o["operator"] for o in overview.job("TOTALS").operators] == ["aggregate_1"]
            with pytest.raises(DamageError):
                overview.job("windows")
        finally:
            overview.close()


def test_as_texts_no_digit_is_lost(client: httpx.Client) -> None:
    struct = "{'x': 1.50::DECIMAL(4, 2), 'y': NULL}"
    sql = f"SELECT {LARGE}::BIGINT AS a, TIMESTAMP '2026-01-01 10:00:00' AS t, {struct} AS s, NULL AS n"
    found = client.post("/v1/query", json={"sql": sql, "text": True}).json()
    assert found["rows"] == [[str(LARGE), "2026-01-01 10:00:00", {"x": "1.50", "y": None}, None]]
    assert [c["type"] for c in found["columns"]][:2] == ["BIGINT", "TIMESTAMP"]
    same = client.post("/v1/query", json={"sql": 'SELECT 1 AS a, 2 AS a, 3 AS "A"', "text": True}).json()
    assert (same["rows"], [c["name"] for c in same["columns"]]) == ([["1", "2", "3"]], ["a", "a", "A"])
    inside = client.post("/v1/query", json={"sql": "SELECT ['nan'::DOUBLE, 1.5] AS l, MAP {'a': 'inf'::DOUBLE} AS m"})
    assert json.loads(inside.text, parse_constant=lambda text: pytest.fail(text))["rows"] == [
        [["nan", 1.5], [["a", "inf"]]]
    ]
