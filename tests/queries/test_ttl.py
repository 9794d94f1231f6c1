"""`sqlstream.ttl`: it says of a job without a time to live what a job with it keeps."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sqlstream import Context, ListState, MapState, ValueState, process, state
from sqlstream.testing import Stream

pytestmark = pytest.mark.slow

TABLES = """
CREATE TABLE bid (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE ask (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
"""
# Queries by what keeps their state; for each part of it, an operator and a state, the view of it and the keys of a row there.
KINDS: dict[str, tuple[str, dict[tuple[str, str | None], tuple[str, str]]]] = {
    "group": (
        "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM bid GROUP BY k",
        {("aggregate_1", None): ("aggregate_1", "k")},
    ),
    "changing group": (
        "SELECT m, COUNT(*) AS n FROM (SELECT k, MAX(v) AS m FROM bid GROUP BY k) GROUP BY m",
        {("aggregate_2", None): ("aggregate_2", "m")},
    ),
    "top": (
        "SELECT k, v, n FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM bid) WHERE n <= 20",
        {("rank_1", None): ("rank_1", "k")},
    ),
    "set": ("SELECT k FROM bid EXCEPT ALL SELECT v FROM bid WHERE v < 0", {("except_1", None): ("except_1", "k")}),
    "over": (
        "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM bid",
        {("over_1", None): ("over_1 WHERE state = 'total'", "k")},
    ),
    "left join": (
        "SELECT b.k, a.v FROM bid AS b LEFT JOIN ask AS a ON b.k = a.k",
        {("join_1", "b"): ("join_1_b", "k"), ("join_1", "a"): ("join_1_a", "k_1")},
    ),
    "count windows": (
        "SELECT k, window_id, SUM(v) AS s FROM TUMBLE_ROWS(TABLE bid PARTITION BY k, DESCRIPTOR(ts), 1000) "
        "GROUP BY k, window_id",
        {("row_windows_1", None): ("row_windows_1 WHERE window_id IS NOT NULL", "k")},
    ),
    "process": (
        "SELECT * FROM Kept(TABLE bid PARTITION BY k)",
        {
            ("Kept_1", "last"): ("Kept_1", "k"),
            ("Kept_1", "seen"): ("Kept_1_seen", "k, position"),
            ("Kept_1", "best"): ("Kept_1_best", "k, entry"),
        },
    ),
}


@dataclass
class Bid:
    v: int


@dataclass
class Count:
    n: int


@process(name="Kept")
class Kept:
    """Has a state of each kind."""

    last: ValueState[int] = state()
    seen: ListState[int] = state()
    best: MapState[int, int] = state()

    def process(self, ctx: Context, bid: Bid) -> Iterator[Count]:
        self.last.value = (self.last.value or 0) + 1
        self.seen.append(bid.v)
        self.best[bid.v] = self.best.get(bid.v, 0) + 1
        yield Count(bid.v)


def job(query: str, ttl: str) -> Stream:
    return Stream(f"{TABLES}{query};", functions=[Kept], options={"table.exec.state.ttl": ttl}, parallelism=1)


def fed(stream: Stream, *, returning: bool) -> None:
    """Give 5 batches of rows a minute apart, of five keys each; without `returning` none of a key that was gone for 2 minutes."""
    chosen = random.Random(7)
    for minute in range(5):
        keys = [chosen.randrange(12) if returning else minute * 3 + chosen.randrange(5) for _ in range(5)]
        time = f"2026-03-01 10:{minute:02}:00"
        rows = [(key, 100 * minute + i if not returning else chosen.randrange(9), time) for i, key in enumerate(keys)]
        stream.batches({"bid": rows[:3], "ask": rows[3:]} if "ask" in reading(stream) else {"bid": rows})
        stream.advance(60_000)


def reading(stream: Stream) -> set[str]:
    [run] = stream.runs.values()
    return {scan.table.name for scan in run.job.plan.scans}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_time_to_live_keeps_is_what_a_job_with_it_keeps(kind: str) -> None:
    query, parts = KINDS[kind]
    with job(query, "0") as without, job(query, "2 min") as limited:
        for stream in (without, limited):
            fed(stream, returning=False)
        asked = "SELECT operator, state, keys, rows, keys_now, exact FROM sqlstream.ttl('result', '2 min')"
        told = {row[:2]: row[2:] for row in without.query(asked)}
        for part, (view, key) in parts.items():
            found = limited.query(f"SELECT count(DISTINCT ({key},)), count(*) FROM state.result.{view}")
            keys, rows, keys_now, _ = told[part]
            # A count window counts the rows of a key in a row of its own.
            assert [(keys, rows - keys if kind == "count windows" else rows)] == found
            assert keys < keys_now
            # It says the same of the state that is left, though it is kept in another way.
            assert {row[:2]: row[2:4] for row in limited.query(asked)}[part] == (keys, rows)


def test_keys_that_came_back() -> None:
    query, _ = KINDS["group"]
    last: dict[int, int] = {}
    gaps: dict[int, int] = {}
    chosen = random.Random(7)
    for minute in range(5):
        for key in {chosen.randrange(12) for _ in range(5)}:
            if key in last:
                gaps[key] = max(gaps.get(key, 0), minute - last[key])
            last[key] = minute
        for _ in range(5):
            chosen.randrange(9)
    with job(query, "0") as stream:
        fed(stream, returning=True)
        told = stream.query("SELECT returned_keys FROM sqlstream.ttl('result', '1 min', '2 min', '3 min', '4 min')")
    expected = [sum(gap >= limit for gap in gaps.values()) for limit in (1, 2, 3, 4)]
    assert [count for (count,) in told] == expected
    assert expected[0] > expected[-1]
