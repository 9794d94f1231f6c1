"""The watermarks of operators: what they are made of, where those of jobs of earlier versions begin, and idle sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sqlstream.runtime.watermarks import Watermarks
from sqlstream.storage.joblog import JobLog
from sqlstream.testing import Stream
from sqlstream.units import EventTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse

TABLE = "CREATE TABLE {} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);"
WINDOW = (
    "SELECT window_end, COUNT(*) AS n FROM TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    " GROUP BY window_start, window_end"
)
SINKS = "".join(f"CREATE TABLE {name} (e TIMESTAMP(3), n BIGINT);" for name in ("oa", "ob", "oab"))
SET = f"""{TABLE.format("a")} {TABLE.format("b")} {SINKS}
EXECUTE STATEMENT SET BEGIN
INSERT INTO oa WITH wa AS ({WINDOW.format("a")}) SELECT * FROM wa;
INSERT INTO ob WITH wb AS ({WINDOW.format("b")}) SELECT * FROM wb;
{{more}}
END;"""
BOTH = f"INSERT INTO oab WITH u AS (FROM a UNION ALL FROM b), wab AS ({WINDOW.format('u')}) SELECT * FROM wab;"
OPERATORS = "SELECT operator, (watermark::VARCHAR)[12:16] FROM sqlstream.operators ORDER BY ALL"
HELD = "SELECT source, operators, holds_minimum FROM sqlstream.watermarks ORDER BY ALL"


def at(*minutes: int) -> list[tuple[int, str]]:
    return [(1, f"2026-01-01 10:{minute:02}") for minute in minutes]


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(SET.format(more=BOTH)) as one:
        yield one


def test_tables_say_which_operator_waits_for_which_source(stream: Stream) -> None:
    stream.batch("a", at(5))
    assert stream.query(OPERATORS) == [("wa", "10:05"), ("wab", None), ("wb", None)]
    stream.batch("b", at(3))
    assert stream.query(OPERATORS) == [("wa", "10:05"), ("wab", "10:03"), ("wb", "10:03")]
    # Each holds the watermark of its own window, and b that of the window over both.
    assert stream.query(HELD) == [("a", ["wa"], True), ("b", ["wb", "wab"], True)]
    assert stream.query("SELECT operator, waits_for FROM sqlstream.operators ORDER BY ALL") == [
        ("wa", ["a"]),
        ("wab", ["a", "b"]),
        ("wb", ["b"]),
    ]
    assert stream.query("SELECT (watermark::VARCHAR)[12:16] FROM sqlstream.jobs") == [("10:03",)]


def test_state_views_go_by_the_watermark_of_their_operator(stream: Stream) -> None:
    stream.batch("b", at(3))
    stream.batch("a", at(5, 6))
    name = next(iter(stream.runs))
    assert stream.query(f"SELECT count(*) FROM state.{name}.wa") == [(1,)]
    assert stream.query(f"SELECT count(*) FROM state.{name}.wab") == [(3,)]
    assert stream.query("SELECT operator, open_windows FROM sqlstream.operators ORDER BY ALL") == [
        ("wa", 1),
        ("wab", 3),
        ("wb", 1),
    ]


def test_a_job_of_an_earlier_version_goes_on(stream: Stream) -> None:
    """Its log has one watermark for all operators, the least; each begins there, and then goes by its own sources."""
    stream.batch("b", at(3))
    stream.batch("a", at(5, 6))
    [(name, run)] = stream.runs.items()
    warehouse = Warehouse(stream.warehouse)
    log, version = JobLog(warehouse.fs, warehouse.job(name).log), last_committed(warehouse.fs, warehouse.job(name))
    entry = log.entry(version or 0)
    assert entry is not None
    assert entry.watermarks != {}
    log.append(replace(entry, watermarks={}))
    stream.restart()
    run = stream.runs[name]
    assert run.commits.last_watermarks().operators == (entry.watermark,) * 3
    run.batches.catch_up(stream.now)
    assert stream.query(OPERATORS) == [("wa", "10:06"), ("wab", "10:03"), ("wb", "10:03")]
    assert stream.query("SELECT (e::VARCHAR)[12:16], n FROM oa") == [("10:06", 1)]


def test_no_watermark_goes_back(stream: Stream) -> None:
    stream.batch("b", at(3))
    stream.batch("a", at(5))
    [run] = stream.runs.values()
    plan, marks = run.job.plan, run.batches.watermarks
    later = EventTime((marks.job or 0) + 60_000_000)
    ahead = marks.at_least(plan, later)
    assert ahead.job == ahead.after(plan, run.totals.sources).job == later
    assert ahead.after(plan, run.totals.sources).operators == (marks.operators[0], later, later)
    assert Watermarks.from_json(ahead.to_json()) == ahead
    assert marks.own(plan) == {"wa": marks.operators[0]}


def test_an_idle_source_follows_those_that_an_operator_waits_for_with_it() -> None:
    options = {"table.exec.source.idle-timeout": "1 min"}
    with (
        Stream(SET.format(more=""), options=options) as apart,
        Stream(SET.format(more=BOTH), options=options) as joined,
    ):
        for stream in (apart, joined):
            stream.batches({"a": at(1), "b": at(1)})
            stream.advance("50 s")
            stream.batch("a", at(9))
            stream.advance("50 s")
        assert apart.query(OPERATORS) == [("wa", "10:09"), ("wb", "10:01")]
        assert joined.query(OPERATORS) == [("wa", "10:09"), ("wab", "10:09"), ("wb", "10:09")]


def test_rows_are_late_by_the_watermark_of_the_operator_after_a_restart(stream: Stream) -> None:
    stream.batch("b", at(3))
    stream.batch("a", at(5, 6))
    before = stream.query(OPERATORS)
    stream.restart(3)
    assert stream.query(OPERATORS) == before
    stream.batch("a", at(5))
    assert stream.query("SELECT operator, late_rows FROM sqlstream.operators ORDER BY ALL") == [
        ("wa", 1),
        ("wab", 0),
        ("wb", 0),
    ]
    assert stream.verify()
