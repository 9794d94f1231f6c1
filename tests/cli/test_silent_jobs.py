"""What a job that is silent says of itself: one line, with the numbers of a job in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from sqlstream.cli import display, silent_jobs
from sqlstream.cli.display import LINE_SECONDS, Display, Rate, StateCounts, count_state
from sqlstream.cli.silent_jobs import SILENCE, Hint, SilenceWatch, awaited, dropped, held
from sqlstream.errors import UnboundedState
from sqlstream.jobs.job import Job
from sqlstream.jobs.progress import Progress, SourceProgress, progress_of
from sqlstream.runtime.commits import Totals
from sqlstream.session.session import Session
from sqlstream.testing import Stream
from tests.kinds import of_type
from tests.processes import SECONDS

TABLE = "CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND){more};"
JOB = """
CREATE TABLE counts (e TIMESTAMP, n BIGINT);
INSERT INTO counts SELECT window_end, COUNT(*) FROM TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;
"""
ONE = TABLE.format(name="a", more="") + JOB.format(table="a")
TWO = (
    TABLE.format(name="a", more="{more}")
    + TABLE.format(name="b", more="")
    + JOB.format(table="(SELECT * FROM a UNION ALL SELECT * FROM b)")
)


@pytest.fixture
def start() -> Iterator[Callable[[str], Stream]]:
    streams: list[Stream] = []

    def start(script: str) -> Stream:
        streams.append(Stream(script))
        return streams[-1]

    yield start
    for stream in streams:
        stream.close()


def put(stream: Stream, table: str, *times: str | None) -> Progress:
    stream.batch(table, [(1, time and f"2026-01-01 {time}") for time in times])
    return progress(stream)


def totals(stream: Stream) -> Totals:
    return stream.runs["counts"].commits.totals


def progress(stream: Stream) -> Progress:
    return progress_of(totals(stream))


def windows(stream: Stream) -> int:
    [(count,)] = stream.query("SELECT open_windows FROM sqlstream.operators")
    return int(count)


Start = Callable[[str], Stream]


def test_rows_without_an_event_time(start: Start) -> None:
    stream = start(ONE)
    found = dropped(put(stream, "a", None, None), Progress())
    assert found == Hint(
        "null a",
        'all 2 rows of source "a" had no event time and were dropped.'
        " Check the column that WATERMARK FOR names: is it called so in the data, and does its format fit?",
    )
    assert dropped(put(stream, "a", "10:00:01", None), Progress()) is None


def test_rows_that_are_all_late(start: Start) -> None:
    stream = start(ONE)
    put(stream, "a", "10:00:50")
    stream.tick("a", "2026-01-01 10:01:00")
    before = progress(stream)
    assert dropped(before, Progress()) is None
    found = dropped(put(stream, "a", "10:00:51", "10:00:59"), before)
    assert found == Hint(
        "late",
        "all 2 rows that came were late and dropped: their windows had closed, because the watermark is at 2026-01-01 10:01:00."
        " Let WATERMARK FOR subtract a longer interval.",
    )
    # One that is not late waits in its window.
    assert dropped(put(stream, "a", "10:00:58", "10:01:01"), before) is None


def test_a_source_that_holds_the_watermark(start: Start) -> None:
    stream = start(TWO.format(more=""))
    put(stream, "b", "10:00:50", "10:03:54")
    advice = "If it may be idle for long, set 'scan.watermark.idle-timeout' on its table."
    waits = "2 windows are open; the next one closes when the watermark reaches 2026-01-01 10:01:00, but"
    found = held(progress(stream), windows(stream))
    assert found is not None
    assert found.text == (f'{waits} source "a" holds it back: no row with an event time has come from it yet. {advice}')
    found = held(put(stream, "a", "10:00:34"), windows(stream))
    assert found == Hint(
        "held a",
        f'{waits} source "a" holds it back at 2026-01-01 10:00:30, 3 min 24 s behind the newest row of "b". {advice}',
    )
    assert held(progress(stream), 0) is None, "nothing waits"


def test_the_operator_that_waits_is_named_where_others_wait_for_other_sources(start: Start) -> None:
    union = "(SELECT * FROM a UNION ALL SELECT * FROM b)"
    alone = "CREATE TABLE alone (e TIMESTAMP, n BIGINT);"
    by_minute = "SELECT window_end, COUNT(*) FROM TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY 1, window_start"
    inserts = f"INSERT INTO counts {by_minute.format(union)}; INSERT INTO alone {by_minute.format('b')};"
    tables = "".join(TABLE.format(name=name, more="") for name in ("a", "b"))
    stream = start(
        f"{tables} {alone} CREATE TABLE counts (e TIMESTAMP, n BIGINT); EXECUTE STATEMENT SET BEGIN {inserts} END;"
    )
    stream.batch("b", [(1, "2026-01-01 10:00:50"), (1, "2026-01-01 10:03:54")])
    [run] = stream.runs.values()
    found = held(progress_of(run.commits.totals), 3)
    assert found is not None
    assert found.text.startswith(
        '3 windows are open; the next one of operator "window_aggregate_1" closes when the watermark reaches'
        ' 2026-01-01 10:01:00, but source "a" holds it back'
    )
    stream.batch("a", [(1, "2026-01-01 10:03:54")])
    assert held(progress_of(run.commits.totals), 2) is None


def test_a_source_that_may_be_idle_says_when(start: Start) -> None:
    stream = start(TWO.format(more=" WITH ('scan.watermark.idle-timeout' = '90 s')"))
    put(stream, "b", "10:00:50", "10:03:54")
    found = held(put(stream, "a", "10:00:34"), windows(stream))
    assert found is not None
    assert found.text.endswith("It does so until it has had no row for 1 min 30 s.")
    stream.advance(90_000)
    assert held(progress(stream), windows(stream)) is None


def test_a_source_is_not_to_blame_while_the_others_are_not_further_than_the_window(start: Start) -> None:
    stream = start(TWO.format(more=""))
    put(stream, "a", "10:00:34")
    # With its watermark at 10:00:59 b holds the window, too.
    assert held(put(stream, "b", "10:01:03"), windows(stream)) is None
    assert held(put(stream, "b", "10:01:04"), windows(stream)) is not None


def test_windows_that_wait_for_rows(start: Start) -> None:
    stream = start(ONE)
    found = awaited(progress(stream), 0)
    assert found == Hint("nothing", 'no row has come from "a" yet.')
    found = awaited(put(stream, "a", "10:00:34"), windows(stream))
    assert found == Hint(
        "awaited",
        "1 window is open; it closes when a row with event time 2026-01-01 10:01:04 or later arrives"
        " (newest: 2026-01-01 10:00:34).",
    )
    assert awaited(put(stream, "a", "10:02:34"), 0) is None


def in_order(call: str) -> str:
    return TWO.format(more="").partition("CREATE TABLE counts")[0] + (
        "CREATE TABLE counts (k INT, n BIGINT);"
        f"INSERT INTO counts SELECT k, {call} OVER (ORDER BY ts) FROM (SELECT * FROM a UNION ALL SELECT * FROM b)"
    )


def no_windows(stream: Stream) -> int | None:
    [(count,)] = stream.query("SELECT sum(open_windows) FROM sqlstream.operators")
    return None if count is None else int(count)


def test_rows_in_the_order_of_time_wait_for_a_source(start: Start) -> None:
    stream = start(in_order("COUNT(*)"))
    put(stream, "b", "10:00:50", "10:03:54")
    advice = "If it may be idle for long, set 'scan.watermark.idle-timeout' on its table."
    found = held(put(stream, "a", "10:00:34"), no_windows(stream))
    assert found == Hint(
        "held a",
        "rows wait for the watermark; the next one is emitted when the watermark is after"
        " 2026-01-01 10:00:34, but"
        f' source "a" holds it back at 2026-01-01 10:00:30, 3 min 24 s behind the newest row of "b". {advice}',
    )
    found = awaited(put(stream, "a", "10:04:34"), no_windows(stream))
    assert found == Hint(
        "awaited",
        "rows wait for the watermark; the next one is emitted when a row with event time after"
        " 2026-01-01 10:03:58 arrives (newest: 2026-01-01 10:03:54).",
    )


def test_rows_that_wait_for_later_ones(start: Start) -> None:
    stream = start(in_order("LEAD(k)"))
    put(stream, "b", "10:00:50")
    put(stream, "a", "10:00:34")
    stream.tick("a", "2026-01-01 10:00:55")
    stream.tick("b", "2026-01-01 10:00:55")
    found = awaited(progress(stream), no_windows(stream))
    assert found == Hint(
        "awaited",
        "each row waits for later rows of its key, which LEAD or FOLLOWING looks at, and none has come yet.",
    )


def test_silence_is_told_once_until_it_is_another(start: Start) -> None:
    stream = start(TWO.format(more=""))
    looks = 0

    def count() -> int:
        nonlocal looks
        looks += 1
        return windows(stream)

    silence = SilenceWatch(count)
    assert silence.news(put(stream, "b", "10:00:50", "10:03:54"), 0.0, waits=True) is None
    assert silence.news(progress(stream), SILENCE - 0.1, waits=True) is None
    assert looks == 0
    first = silence.news(progress(stream), SILENCE, waits=True)
    assert first is not None
    assert first.subject == "held a"
    assert silence.news(progress(stream), SILENCE + 1, waits=True) is None
    assert silence.look(progress(stream), SILENCE + 1, waits=True) == first
    put(stream, "a", "10:00:34")
    assert silence.look(progress(stream), SILENCE + 2, waits=True) == first, "not each batch asks how many windows wait"
    later = silence.look(progress(stream), 2 * SILENCE, waits=True)
    assert later is not None
    assert 'but source "a" holds it back at 2026-01-01 10:00:30' in later.text
    assert looks == 2
    # Output ends it.
    put(stream, "a", "10:01:34")
    assert silence.look(progress(stream), 2 * SILENCE + 1, waits=True) is None


def test_one_long_batch_is_no_silence(start: Start) -> None:
    stream = start(TWO.format(more=""))
    before = put(stream, "b", "10:00:50", "10:03:54")
    first = of_type(int, before.batch)
    silence = SilenceWatch(lambda: 2)
    assert silence.look(before, 0.0, waits=False) is None
    assert silence.look(replace(before, batch=first + 1), 3 * SILENCE, waits=False) is None
    assert silence.look(replace(before, batch=first + 2), 3 * SILENCE, waits=False) is not None


def test_a_job_that_ends_without_output_says_what_was_dropped(start: Start) -> None:
    stream = start(ONE)
    put(stream, "a", None, None)
    stream.finish()
    console = Console(record=True, width=500)
    Display(console, None).ended(Job("counts", running(stream, state="FINISHED", is_waiting=False)))
    told, hint = console.export_text().splitlines()
    assert told.startswith("counts: finished after batch")
    assert told.endswith("2 rows in, 0 rows out, 2 rows without a time dropped")
    assert hint.startswith('counts: No result: all 2 rows of source "a" had no event time and were dropped.')


def running(stream: Stream, **attributes: object) -> SimpleNamespace:
    """Return what a Job looks at while it runs."""
    return SimpleNamespace(**{"state": "RUNNING", "totals": totals(stream), "is_waiting": True, **attributes})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("sqlstream.cli.display.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("terminal", [False, True])
def test_why_a_job_is_silent_is_shown_while_it_runs(start: Start, clock: list[float], terminal: bool) -> None:
    stream = start(TWO.format(more=""))
    console = Console(record=True, width=500, force_terminal=terminal)
    live = Live(console=console, auto_refresh=False) if terminal else None
    shown = Display(console, live)
    put(stream, "b", "10:00:50", "10:03:54")
    job = Job("counts", running(stream))
    shown.wait_for(job, lambda: windows(stream))
    with live or nullcontext():
        shown.update([job])
        clock[0] += SILENCE
        shown.update([job])
    [hint] = [line for line in console.export_text().splitlines() if "No result" in line]
    assert hint.startswith("counts: No result yet: 2 windows are open; the next one closes when the watermark reaches")


def test_after_a_result_it_is_a_new_one_that_does_not_come(start: Start) -> None:
    stream = start(ONE)
    silence = SilenceWatch(lambda: windows(stream))
    after = put(stream, "a", "10:00:34", "10:02:34")
    assert after.rows_out == 1
    assert silence.look(after, 0.0, waits=True) is None
    found = silence.look(after, SILENCE, waits=True)
    assert found is not None
    assert found.text.startswith("No new result: 1 window is open; it closes when a row with event time")


def test_windows_wait_also_where_a_source_always_has_rows(start: Start) -> None:
    stream = start(ONE)
    silence = SilenceWatch(lambda: windows(stream))
    assert silence.look(put(stream, "a", "10:00:34"), 0.0, waits=False) is None
    found = silence.look(put(stream, "a", "10:00:36"), SILENCE, waits=False)
    assert found is not None
    assert found.text.startswith("No result yet: 1 window is open; it closes when a row with event time")


def test_times_of_today_have_no_date(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = start(ONE)
    monkeypatch.setattr(silent_jobs, "today", lambda: date(2026, 1, 1))
    found = awaited(put(stream, "a", "10:00:34.5"), windows(stream))
    assert found is not None
    assert found.text == (
        "1 window is open; it closes when a row with event time 10:01:04 or later arrives (newest: 10:00:34.5)."
    )


def lines_of(console: Console, shown: Display, jobs: list[Job]) -> list[str]:
    """Return the table on a terminal."""
    shown.update(jobs)
    assert shown.live is not None
    with console.capture() as captured:
        console.print(shown.live.get_renderable())
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_fits_80_columns_whatever_the_numbers(start: Start, clock: list[float]) -> None:
    stream = start(ONE)
    put(stream, "a", "10:00:34")
    console = Console(width=80, force_terminal=True, color_system=None)
    shown = Display(console, Live(console=console, auto_refresh=False), lambda job: 987_654_321)
    huge = replace(totals(stream), rows_in=98_765_432_109, rows_out=12_345_678_901)
    names = ["a_job_with_quite_a_long_name_of_its_own", "second"]
    jobs = [Job(name, running(stream, totals=huge)) for name in names]
    assert all(len(line) <= 80 for line in lines_of(console, shown, jobs))
    wait_for(lambda: "988 M" in lines_of(console, shown, jobs)[2])
    head, first, second = lines_of(console, shown, jobs)
    assert head.split() == ["job", "rows", "in", "rows/s", "rows", "out", "watermark", "lag", "state"]
    assert first.startswith("a_job_")
    assert second.split() == [*["second", "98.8", "G", "0", "12.3", "G", "2026-01-01", "10:00", "4", "s", "988", "M"]]
    assert max(map(len, (head, first, second))) <= 80


def wait_for(done: Callable[[], bool]) -> None:
    deadline = monotonic() + SECONDS
    while not done():
        assert monotonic() < deadline


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate()
    # A batch of 1000 rows every 4 seconds: whenever one looks, it is some 250 a second.
    for tenth in range(400):
        rate.add(1000 * (tenth // 40), tenth / 10)
    assert 200 <= rate.per_second(39.9) <= 300
    for tenth in range(400, 600):
        rate.add(9000, tenth / 10)
    assert rate.per_second(59.9) == 0


def test_lost_rows_are_shown_when_there_are_any(start: Start, clock: list[float]) -> None:
    stream = start(ONE)
    put(stream, "a", "10:00:34", None)
    console = Console(width=80, force_terminal=True, color_system=None)
    shown = Display(console, Live(console=console, auto_refresh=False))
    assert lines_of(console, shown, [Job("counts", running(stream))])[2:] == ["counts: 1 row without a time dropped"]
    broken = totals(stream)
    broken.sources["a"].malformed_rows = 1234
    broken.sources["a"].null_rows = 0
    shown_then = lines_of(console, shown, [Job("counts", running(stream, totals=broken))])
    assert shown_then[2:] == ["counts: 1,234 malformed rows skipped"]
    broken.sources["a"].lost_rows = 1
    shown_then = lines_of(console, shown, [Job("counts", running(stream, totals=broken))])
    assert shown_then[2:] == ["counts: 1,234 malformed rows skipped, 1 row lost before being read"]


def test_a_warning_names_its_job() -> None:
    console = Console(record=True, width=200, force_terminal=False)
    shown = Display(console, None)
    shown.warn(
        "counts",
        "a Python worker of Spark's has ended unexpectedly; restart 1 in 1.0 s, after the last committed batch",
    )
    shown.warn("totals", UnboundedState("the state of GROUP BY grows without a bound"))
    assert console.export_text().splitlines() == [
        "counts: warning: a Python worker of Spark's has ended unexpectedly; restart 1 in 1.0 s, after the last committed batch",
        "totals: warning: the state of GROUP BY grows without a bound",
    ]


def test_lines_without_a_terminal_come_now_and_then(start: Start, clock: list[float]) -> None:
    stream = start(ONE)
    console = Console(record=True, width=80, force_terminal=False)
    shown = Display(console, None)
    for second in range(12):
        put(stream, "a", f"10:00:{second:02}")
        shown.update([Job("counts", running(stream))])
        clock[0] += 1
    lines = console.export_text().splitlines()
    assert len(lines) == 1 + int(11 / LINE_SECONDS)
    assert lines[1] == ("counts: batch 11, 6 rows in (1/s), 0 out, watermark 2026-01-01 10:00:01, lag 4 s")


def test_the_lag_is_behind_the_clock_where_rows_are_of_today() -> None:
    source = replace(progress_of(Totals()), watermark=datetime(2026, 1, 1, 10, 0, 30))

    def at(newest: datetime, clock: datetime) -> str:
        found = replace(source, sources={"a": source_of(newest)})
        return display.lag_text(found, clock.replace(tzinfo=UTC))

    newest = datetime(2026, 1, 1, 10, 0, 34)
    assert at(newest, datetime(2026, 1, 1, 10, 1, 40)) == "1 min 10 s"
    assert at(newest, datetime(2031, 5, 1, 10, 1, 40)) == "4 s"
    # The watermark can be a local time.
    source = replace(source, zone="Europe/Berlin")
    assert at(newest, datetime(2026, 1, 1, 9, 1, 40)) == "1 min 10 s"


def source_of(newest: datetime) -> SourceProgress:
    return SourceProgress(1, 0, 0, newest, None, True, None, None)


@pytest.mark.slow
def test_state_is_counted_as_its_view_shows_it(start: Start, tmp_path: Path) -> None:
    stream = start(ONE)
    for second in range(5):
        put(stream, "a", f"10:00:{second:02}")
    assert sum(o.state_rows for o in progress(stream).operators.values()) == 5, "each batch has stored a row"
    with Session(str(tmp_path), stream.warehouse) as session:
        counts = StateCounts(partial(count_state, session))
        assert counts.of("counts", 0.0) is None
        wait_for(lambda: counts.of("counts", 0.0) == 1)
        assert count_state(session, "nothing") is None


def test_a_window_beyond_the_calendar_of_python_is_awaited(start: Start) -> None:
    stream = start(ONE)
    stream.batch("a", [(1, "9999-12-31 23:59:30")])
    found = awaited(progress(stream), windows(stream))
    assert found is not None
    assert found.text.startswith("1 window is open; it closes when a row with event time 9999-12-31 23:59:59")
