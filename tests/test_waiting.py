"""What a job that is silent says of itself: one line, with the numbers of a job in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from sqlstream import running
from sqlstream.jobs.job import Job
from sqlstream.running import Progress
from sqlstream.runtime.commits import Totals
from sqlstream.testing import Stream
from sqlstream.waiting import SILENCE, Hint, Silence, awaited, dropped, held

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


def put(stream: Stream, table: str, *times: str | None) -> Totals:
    stream.batch(table, [(1, time and f"2026-01-01 {time}") for time in times])
    return totals(stream)


def totals(stream: Stream) -> Totals:
    return stream.runs["counts"].commits.totals


def windows(stream: Stream) -> int:
    [(count,)] = stream.query("SELECT open_windows FROM sqlstream.operators")
    return int(count)


Start = Callable[[str], Stream]


def test_rows_without_an_event_time(start: Start) -> None:
    stream = start(ONE)
    found = dropped(put(stream, "a", None, None), Totals())
    assert found == Hint(
        "null a",
        'all 2 rows of source "a" were dropped, because their event time is NULL.'
        " Check the column that WATERMARK FOR names: its name in the data, its format, its cast.",
    )
    assert dropped(put(stream, "a", "10:00:01", None), Totals()) is None


def test_rows_that_are_all_late(start: Start) -> None:
    stream = start(ONE)
    put(stream, "a", "10:00:50")
    stream.tick("a", "2026-01-01 10:01:00")
    before = totals(stream)
    assert dropped(before, Totals()) is None
    found = dropped(put(stream, "a", "10:00:51", "10:00:59"), before)
    assert found == Hint(
        "late",
        "all 2 rows that came were dropped as late: the watermark is at 2026-01-01 10:01:00, and their windows had closed."
        " Let WATERMARK FOR subtract more than rows may be late by.",
    )
    # One that is not late waits in its window.
    assert dropped(put(stream, "a", "10:00:58", "10:01:01"), before) is None


def test_a_source_that_holds_the_watermark(start: Start) -> None:
    stream = start(TWO.format(more=""))
    put(stream, "b", "10:00:50", "10:03:54")
    advice = "If its rows may stay away for long, set 'scan.watermark.idle-timeout' on its table."
    waits = "2 windows wait, the next one closes at 2026-01-01 10:01:00."
    found = held(totals(stream), windows(stream))
    assert found is not None
    assert found.text == (
        f'source "a" has had no row with an event time, and without one there is no watermark. {waits} {advice}'
    )
    found = held(put(stream, "a", "10:00:34"), windows(stream))
    assert found == Hint(
        "held a",
        'source "a" holds the watermark at 2026-01-01 10:00:30, 3 min 24 s behind the newest row of "b".'
        f" {waits} {advice}",
    )
    assert held(totals(stream), 0) is None, "nothing waits"


def test_a_source_that_may_be_idle_says_when(start: Start) -> None:
    stream = start(TWO.format(more=" WITH ('scan.watermark.idle-timeout' = '90 s')"))
    put(stream, "b", "10:00:50", "10:03:54")
    found = held(put(stream, "a", "10:00:34"), windows(stream))
    assert found is not None
    assert found.text.endswith("When it has had no row for 1 min 30 s it no longer does.")
    stream.advance(90_000)
    assert held(totals(stream), windows(stream)) is None


def test_a_source_is_not_to_blame_while_the_others_are_not_further_than_the_window(start: Start) -> None:
    stream = start(TWO.format(more=""))
    put(stream, "a", "10:00:34")
    # With its watermark at 10:00:59 b holds the window, too.
    assert held(put(stream, "b", "10:01:03"), windows(stream)) is None
    assert held(put(stream, "b", "10:01:04"), windows(stream)) is not None


def test_windows_that_wait_for_rows(start: Start) -> None:
    stream = start(ONE)
    found = awaited(totals(stream), 0)
    assert found == Hint("nothing", 'no row has come from "a" yet.')
    found = awaited(put(stream, "a", "10:00:34"), windows(stream))
    assert found == Hint(
        "awaited",
        "1 window waits, the next one closes at 2026-01-01 10:01:00, when a row has come that is as late as"
        " 2026-01-01 10:01:04; the newest so far is of 2026-01-01 10:00:34.",
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
    advice = "If its rows may stay away for long, set 'scan.watermark.idle-timeout' on its table."
    found = held(put(stream, "a", "10:00:34"), no_windows(stream))
    assert found == Hint(
        "held a",
        'source "a" holds the watermark at 2026-01-01 10:00:30, 3 min 24 s behind the newest row of "b".'
        f" Rows wait until the watermark has passed them, the next one leaves at 2026-01-01 10:00:34. {advice}",
    )
    found = awaited(put(stream, "a", "10:04:34"), no_windows(stream))
    assert found == Hint(
        "awaited",
        "rows wait until the watermark has passed them, the next one leaves at 2026-01-01 10:03:54, when a row has come"
        " that is as late as 2026-01-01 10:03:58; the newest so far is of 2026-01-01 10:03:54.",
    )


def test_rows_that_wait_for_later_ones(start: Start) -> None:
    stream = start(in_order("LEAD(k)"))
    put(stream, "b", "10:00:50")
    put(stream, "a", "10:00:34")
    stream.tick("a", "2026-01-01 10:00:55")
    stream.tick("b", "2026-01-01 10:00:55")
    found = awaited(totals(stream), no_windows(stream))
    assert found == Hint("awaited", "rows wait for those after them: LEAD and FOLLOWING need as many of the same key.")


def test_silence_is_told_once_until_it_is_another(start: Start) -> None:
    stream = start(TWO.format(more=""))
    looks = 0

    def count() -> int:
        nonlocal looks
        looks += 1
        return windows(stream)

    silence = Silence(count)
    assert silence.news(put(stream, "b", "10:00:50", "10:03:54"), 0.0, waits=True) is None
    assert silence.news(totals(stream), SILENCE - 0.1, waits=True) is None
    assert looks == 0
    first = silence.news(totals(stream), SILENCE, waits=True)
    assert first is not None
    assert first.subject == "held a"
    assert silence.news(totals(stream), SILENCE + 1, waits=True) is None
    assert silence.look(totals(stream), SILENCE + 1, waits=True) == first
    put(stream, "a", "10:00:34")
    assert silence.look(totals(stream), SILENCE + 2, waits=True) == first, "not each batch asks how many windows wait"
    later = silence.look(totals(stream), 2 * SILENCE, waits=True)
    assert later is not None
    assert later.text.startswith('source "a" holds the watermark at 2026-01-01 10:00:30')
    assert looks == 2
    # Output ends it.
    put(stream, "a", "10:01:34")
    assert silence.look(totals(stream), 2 * SILENCE + 1, waits=True) is None


def test_one_long_batch_is_no_silence(start: Start) -> None:
    stream = start(TWO.format(more=""))
    before = put(stream, "b", "10:00:50", "10:03:54")
    silence = Silence(lambda: 2)
    assert silence.look(before, 0.0, waits=False) is None
    assert silence.look(replace(before, version=before.version + 1), 3 * SILENCE, waits=False) is None
    assert silence.look(replace(before, version=before.version + 2), 3 * SILENCE, waits=False) is not None


def test_a_job_that_ends_without_output_says_what_was_dropped(start: Start) -> None:
    stream = start(ONE)
    put(stream, "a", None, None)
    stream.finish()
    console = Console(record=True, width=500)
    run = SimpleNamespace(state="FINISHED", totals=totals(stream), is_waiting=False)
    Progress(console, None).ended(Job("counts", run))
    told, hint = console.export_text().splitlines()
    assert told.startswith("counts: finished after batch")
    assert told.endswith("2 rows in, 0 rows out, 2 rows without a time dropped")
    assert hint.startswith('hint: counts: all 2 rows of source "a" were dropped, because their event time is NULL.')


@pytest.mark.parametrize("terminal", [False, True])
def test_the_line_is_shown_while_a_job_runs(start: Start, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    now = [100.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: now[0])
    stream = start(TWO.format(more=""))
    console = Console(record=True, width=500, force_terminal=terminal)
    live = Live(console=console, auto_refresh=False) if terminal else None
    progress = Progress(console, live)
    run = SimpleNamespace(state="RUNNING", totals=put(stream, "b", "10:00:50", "10:03:54"), is_waiting=True)
    job = Job("counts", run)
    progress.wait_for(job, lambda: windows(stream))
    with live or nullcontext():
        progress.update([job])
        now[0] += SILENCE
        progress.update([job])
    [hint] = [line for line in console.export_text().splitlines() if line.startswith("hint")]
    assert hint.startswith('hint: counts: source "a" has had no row with an event time')
