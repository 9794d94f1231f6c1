"""Row numbers at a rate, and what generators make of them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.generated_rows import BATCH_ROWS, RowDiscovery, RowRange
from sqlstream.connectors.nexmark import source as nexmark
from sqlstream.warehouse.paths import Warehouse


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def discovery(
    position: Offsets, clock: Clock, *, total: int | None, rate: float | None, tasks: int = 2
) -> RowDiscovery:
    warehouse = Warehouse("/nowhere")
    context = DiscoveryContext("/", warehouse, "", tasks, True, lambda name, value: value, clock=clock)
    return RowDiscovery(position, context, total=total, rate=rate, base=7)


def test_rows_come_at_the_rate_and_end() -> None:
    clock, position = Clock(), Offsets()
    rows = discovery(position, clock, total=1000, rate=100)
    assert (rows.bounded, rows.poll(), rows.next_batch()) == (True, 0, None)
    clock.now += 0.5
    assert rows.poll() == 50
    assert rows.next_batch() == [RowRange(0, 50, 7)]
    assert (rows.poll(), rows.remaining) == (0, 950)
    clock.now += 100
    assert rows.poll() == 950
    assert rows.next_batch() == [RowRange(50, 1000, 7)]
    assert (rows.poll(), rows.remaining) == (0, 0)


def test_a_restart_goes_on_at_the_rate() -> None:
    clock, position = Clock(), Offsets({"": 300})
    clock.now += 1000
    rows = discovery(position, clock, total=None, rate=10)
    assert (rows.bounded, rows.poll()) == (False, 0)
    clock.now += 1
    rows.poll()
    assert rows.next_batch() == [RowRange(300, 310, 7)]


def test_without_a_rate_batches_are_as_large_as_they_may_be_and_shared_out() -> None:
    rows = discovery(Offsets(), Clock(), total=None, rate=None, tasks=3)
    assert rows.poll() == BATCH_ROWS
    splits = rows.next_batch()
    assert splits is not None
    assert [s.first for s in splits[1:]] == [s.end for s in splits[:-1]]
    assert (len(splits), splits[0].first, splits[-1].end) == (3, 0, BATCH_ROWS)


def table(**options: str) -> Table:
    return Table("n", nexmark.COLUMNS, options={"connector": "nexmark", **options})


@pytest.mark.slow
def test_events_do_not_depend_on_how_they_are_divided() -> None:
    columns = "event_type, person, auction, bid, dateTime"
    with duckdb.connect() as con:
        whole = con.execute(
            f"SELECT {columns} FROM {nexmark.read_nexmark(con, [RowRange(0, 3000, 5)], table()).relation}"
        ).fetchall()
        parts = [RowRange(a, a + 100, 5) for a in range(0, 3000, 100)]
        found = con.execute(f"SELECT {columns} FROM {nexmark.read_nexmark(con, parts, table()).relation}").fetchall()
        other = nexmark.read_nexmark(con, [RowRange(0, 3000, 5)], table(seed="1"))
        assert con.execute(f"SELECT {columns} FROM {other.relation}").fetchall() != whole
    assert found == whole


def test_only_the_event_that_it_is_is_there() -> None:
    with duckdb.connect() as con:
        plan = nexmark.read_nexmark(con, [RowRange(0, 5000, 0)], table(**{"bid.proportion": "6"}))
        rows = con.execute(
            "SELECT event_type, bool_and((person IS NOT NULL) = (event_type = 0)),"
            " bool_and((auction IS NOT NULL) = (event_type = 1)), bool_and((bid IS NOT NULL) = (event_type = 2)),"
            " bool_and(coalesce(person.dateTime, auction.dateTime, bid.dateTime) = dateTime), count(*)"
            f" FROM {plan.relation} GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert rows == [
        (0, True, True, True, True, 500),
        (1, True, True, True, True, 1500),
        (2, True, True, True, True, 3000),
    ]


def test_bids_are_for_auctions_that_are_open_or_about_to_be(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        plan = nexmark.read_nexmark(con, [RowRange(0, 50_000, 0)], table())
        [found] = con.execute(
            "SELECT max(bid.auction - newest), max(newest - bid.auction) FROM (SELECT bid, max(auction.id) OVER (ORDER BY"
            f" dateTime, event_type ROWS UNBOUNDED PRECEDING) AS newest FROM {plan.relation}) WHERE bid IS NOT NULL"
        ).fetchall()
    assert found[0] <= 10 + 3
    assert found[1] <= 100 + 3


def test_texts_are_as_long_as_asked_for() -> None:
    options = {"bid.avg-size": "232 b", "person.avg-size": "1 kb"}
    with duckdb.connect() as con:
        plan = nexmark.read_nexmark(con, [RowRange(0, 50_000, 0)], table(**options))
        [(bid, person)] = con.execute(
            f"SELECT avg(length(bid.extra)), avg(length(person.extra)) FROM {plan.relation}"
        ).fetchall()
    assert bid == pytest.approx(200, rel=0.05)
    assert person == pytest.approx(924, rel=0.05)
