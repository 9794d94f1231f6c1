"""Batch descriptors: what a batch reads, what a restart knows, and how old ones are folded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sqlstream.connectors.filesystem.splits import FileDiscovery
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.physical.plan import CLOCK, ScanStage
from sqlstream.runtime import feed as feeds
from sqlstream.runtime.batch_descriptors import Descriptor, by_slot, from_lines, to_lines
from sqlstream.runtime.feed import Feed
from sqlstream.storage import descriptors
from sqlstream.units import END_OF_INPUT, EPOCH, EventTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem, open_filesystem
from sqlstream.warehouse.records import read_sealed
from tests.kinds import last_job

SLOTS = (3, 0)


def split(name: str, size: int = 10) -> FileSplit:
    return FileSplit(name, size, 1, size)


# -- descriptors


def test_a_descriptor_comes_back_as_work() -> None:
    descriptor = Descriptor(
        7, from_millis(123), {0: [split("x"), split("y", 30)], 2: [split("z")]}, {1: EventTime(-5)}, last=True
    )
    work = from_lines(to_lines(descriptor, SLOTS))
    assert {(w.sequence, w.time, w.last) for w in work} == {(7, from_millis(123), True)}
    assert {(w.scan, w.split[0] if w.split else None, w.tick) for w in work} == {
        (0, "x", None),
        (0, "y", None),
        (2, "z", None),
        (1, None, -5),
    }


def test_a_descriptor_that_was_written_for_more_slots_is_dealt_out_to_those_there_are() -> None:
    splits = [split(f"{n}.parquet") for n in range(5)]
    text = to_lines(Descriptor(7, from_millis(1), {0: splits}, {0: EventTime(9)}, False), range(4))
    for slots in (range(4), range(3), range(1)):
        dealt = by_slot(text, slots)
        assert len(dealt) == len(slots)
        assert sorted(line for lines in dealt for line in lines.splitlines()) == sorted(text.splitlines())


def test_slots_get_equally_many_bytes() -> None:
    splits = [split(str(n), size) for n, size in enumerate((50, 40, 30, 20, 10, 0))]
    load = dict.fromkeys(SLOTS, 0)
    for work in from_lines(to_lines(Descriptor(0, EPOCH, {0: splits}, {}), SLOTS)):
        assert work.split is not None
        load[work.slot] += FileSplit.from_list(work.split).bytes
    assert load == {3: 80, 0: 70}


# -- the feed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for table in ("a", "b", "c"):
        (tmp_path / table).mkdir()
    return tmp_path


def scans(query: str) -> Sequence[ScanStage]:
    with_options = "'connector' = 'filesystem', 'format' = 'json', 'source.max-files-per-batch' = '2'"
    tables = "".join(
        f"CREATE TABLE {t} (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH ({with_options}, 'path' = '{t}'{more});"
        for t, more in (("a", ""), ("b", ""), ("c", ", 'source.monitor-interval' = '0 s'"))
    )
    return last_job(tables + query).physical.scans


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("{}\n")
        os.utime(folder / name, (1_700_000_000, 1_700_000_000))


def open_feed(project: Path, stages: Sequence[ScanStage], *, finish: bool = True, has_clock: bool = False) -> Feed:
    folder = str(project / "feed")
    return Feed(LocalFilesystem(), folder, stages, SLOTS, project=str(project), finish=finish, has_clock=has_clock)


def names(descriptor: Descriptor | None) -> dict[int, list[str]]:
    assert descriptor is not None
    return {
        scan: sorted(os.path.basename(s.path) for s in splits if isinstance(s, FileSplit))
        for scan, splits in descriptor.splits.items()
    }


def run(feed: Feed) -> Descriptor | None:
    descriptor = feed.compose()
    if descriptor is not None:
        feed.write(descriptor)
    return descriptor


BOTH = "SELECT k FROM a UNION ALL SELECT k FROM b"


def test_bounded_input_ends_with_the_watermark_of_each_scan_and_then_for_all(project: Path) -> None:
    put(project / "a", "1", "2", "3")
    put(project / "b", "1")
    feed = open_feed(project, scans(BOTH))
    first, second = run(feed), run(feed)
    assert first is not None
    assert second is not None
    assert (names(first), first.ticks, first.last) == ({0: ["1", "2"], 1: ["1"]}, {1: END_OF_INPUT}, False)
    assert (names(second), second.ticks, second.last) == ({0: ["3"]}, {0: END_OF_INPUT}, True)
    assert run(feed) is None


def test_without_finish_the_input_stays_open(project: Path) -> None:
    put(project / "a", "1")
    feed = open_feed(project, scans("SELECT k FROM a"), finish=False)
    first = run(feed)
    assert first is not None
    assert (first.ticks, first.last) == ({}, False)
    assert run(feed) is None
    put(project / "a", "2")
    later = open_feed(project, scans("SELECT k FROM a"), finish=False)
    assert names(run(later)) == {0: ["2"]}


def test_an_empty_bounded_table_ends_at_once(project: Path) -> None:
    feed = open_feed(project, scans("SELECT k FROM a"))
    only = run(feed)
    assert only is not None
    assert (names(only), only.ticks, only.last) == ({}, {0: END_OF_INPUT}, True)


@pytest.mark.parametrize("finish", [True, False])
def test_a_drained_feed_reads_no_more_and_ends_for_good(project: Path, finish: bool) -> None:
    both = scans("SELECT k FROM a UNION ALL SELECT k FROM c")
    put(project / "a", "1")
    put(project / "c", "1")
    feed = open_feed(project, both, finish=finish)
    assert names(run(feed)) == {0: ["1"], 1: ["1"]}
    put(project / "c", "2")
    feed.drain()
    # A process that dies before the last batch leaves the wish behind.
    later = open_feed(project, both, finish=finish)
    last = run(later)
    assert last is not None
    assert (names(last), last.last) == ({}, True)
    assert last.ticks[1] == END_OF_INPUT
    assert run(later) is None
    again = open_feed(project, both, finish=finish)
    assert (again.drained, again.ended, run(again)) == (True, True, None)


def test_a_monitored_table_has_no_end(project: Path) -> None:
    put(project / "a", "1")
    feed = open_feed(project, scans("SELECT k FROM a UNION ALL SELECT k FROM c"))
    first = run(feed)
    assert first is not None
    assert (first.ticks, first.last) == ({0: END_OF_INPUT}, False)
    assert run(feed) is None
    put(project / "c", "1")
    assert names(run(feed)) == {1: ["1"]}
    assert not feed.bounded


def test_a_restart_reads_nothing_twice_and_leaves_nothing_out(project: Path) -> None:
    put(project / "a", "1", "2", "3", "4", "5")
    stages = scans("SELECT k FROM a")
    assert names(run(open_feed(project, stages))) == {0: ["1", "2"]}
    again = open_feed(project, stages)
    assert again.sequence == 0
    assert names(run(again)) == {0: ["3", "4"]}
    last = run(open_feed(project, stages))
    assert last is not None
    assert (names(last), last.sequence, last.last) == ({0: ["5"]}, 2, True)
    ended = open_feed(project, stages)
    assert ended.ended
    assert run(ended) is None


def test_a_source_that_wants_to_know_is_told_of_commits_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project / "a", "1", "2", "3", "4", "5")
    stages = scans("SELECT k FROM a")
    feed = open_feed(project, stages)
    run(feed)
    feed.commit(0)
    assert not feed.has_uncommitted

    told: list[bytes] = []
    monkeypatch.setattr(FileDiscovery, "committed", lambda self, position: told.append(position.to_bytes()))
    # The position after a restart is told once more.
    feed = open_feed(project, stages)
    feed.commit(0)
    [first] = told
    run(feed)
    assert feed.has_uncommitted
    feed.commit(0)
    assert len(told) == 1
    # This process dies before it hears of the commit.
    feed = open_feed(project, stages)
    run(feed)
    feed.commit(1)
    assert len(told) == 2
    assert first != told[1]
    feed.commit(2)
    assert len({*told}) == 3
    assert not feed.has_uncommitted


def test_reminders_go_into_the_batch_that_spark_repeats(project: Path) -> None:
    put(project / "a", "1", "2", "3")
    stages = scans(BOTH)
    feed = open_feed(project, stages, finish=False)
    run(feed)
    run(feed)
    restarted = open_feed(project, stages, finish=False)
    restarted.remind(0, {0: EventTime(111), 1: EventTime(222)})
    work = from_lines(read_sealed(LocalFilesystem(), str(project / "feed" / "next" / "0000000001.json")))
    assert {(w.scan, w.tick) for w in work if w.tick is not None} == {(0, 111), (1, 222)}
    assert [os.path.basename(w.split[0]) for w in work if w.split] == ["3"]
    assert {w.sequence for w in work} == {1}


def test_reminders_wait_for_the_next_batch_when_none_is_repeated(project: Path) -> None:
    put(project / "a", "1")
    stages = scans(BOTH)
    feed = open_feed(project, stages, finish=False)
    run(feed)
    feed.remind(0, {0: EventTime(111)})
    assert run(feed) is None, "a reminder alone is no batch"
    put(project / "b", "1")
    again = open_feed(project, stages, finish=False)
    again.remind(0, {0: EventTime(111)})
    following = run(again)
    assert following is not None
    assert (names(following), following.ticks) == ({1: ["1"]}, {0: 111})
    assert again._reminders == {}


def test_ticks_of_idle_scans_are_worth_a_batch_and_ride_along_with_others(project: Path) -> None:
    put(project / "a", "1")
    feed = open_feed(project, scans(BOTH), finish=False)
    first = feed.compose(idle={1: EventTime(5)})
    assert first is not None
    assert (names(first), first.ticks) == ({0: ["1"]}, {1: 5})
    feed.write(first)
    assert feed.compose(idle={}) is None
    second = feed.compose(idle={1: EventTime(7)})
    assert second is not None
    assert (names(second), second.ticks, second.last) == ({}, {1: 7}, False)
    feed.write(second)
    assert feed.ticked == {1: 7}


def test_operators_that_asked_for_it_are_called_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = open_feed(project, scans(BOTH), finish=False)
    monkeypatch.setattr("sqlstream.runtime.feed.time.time", lambda: 7.0)
    assert feed.compose(processing_timer=from_millis(7001)) is None
    called = feed.compose(processing_timer=from_millis(7000))
    assert called is not None
    assert (called.splits, called.ticks, called.fires_timers) == ({}, {}, True)
    [work] = from_lines(to_lines(called, SLOTS))
    assert (work.fires_timers, work.split, work.tick) == (True, None, None)
    feed.write(called)
    # Until the batch is done, they still ask.
    assert feed.compose(processing_timer=from_millis(7000)) is None


def test_input_that_waits_or_is_given_is_under_way(project: Path) -> None:
    put(project / "a", "1", "2", "3")
    stages = scans(BOTH)
    feed = open_feed(project, stages, finish=False)
    assert feed.under_way(-1) == {0}
    run(feed)
    assert feed.under_way(0) == {0}, "a file waits"
    run(feed)
    for known in (feed, open_feed(project, stages, finish=False)):
        assert known.under_way(0) == {0}, "its batch is not done"
        assert known.under_way(1) == set()


def texts(project: Path, last: int) -> list[str] | None:
    """Return what the descriptors up to one say, also those that were folded."""
    found = descriptors.Descriptors(open_filesystem(str(project))[0], f"{project}/feed").texts(last)
    return None if found is None else list(found)


def test_old_descriptors_are_folded_into_one_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT", 4)
    monkeypatch.setattr(descriptors, "_FAN", 3)
    stages = scans("SELECT k FROM c")
    feed = open_feed(project, stages)
    written = []
    for number in range(30):
        put(project / "c", f"{number:03}")
        assert names(run(feed)) == {0: [f"{number:03}"]}
        written.append(read_sealed(open_filesystem(str(project))[0], f"{project}/feed/next/{number:010d}.json"))
        feed.fold(number)
    listed = os.listdir(project / "feed")
    # What each batch has read is still known, in few files.
    assert texts(project, 29) == written
    assert texts(project, 12) == written[:13]
    assert texts(project, 30) is None
    assert len(os.listdir(project / "feed" / "read")) < 4
    assert len(os.listdir(project / "feed" / "next")) < 10
    assert len([name for name in listed if name.startswith("seen-")]) == 1
    restarted = open_feed(project, stages)
    assert restarted.sequence == 29
    assert run(restarted) is None
    put(project / "c", "new")
    assert names(run(restarted)) == {0: ["new"]}


def test_a_crash_while_folding_loses_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT", 2)
    stages = scans("SELECT k FROM c")
    feed = open_feed(project, stages)
    for number in range(5):
        put(project / "c", str(number))
        run(feed)
    before = {p.name: p.read_text() for p in (project / "feed" / "next").iterdir()}
    feed.fold(4)
    for name, text in before.items():
        (project / "feed" / "next" / name).write_text(text)
    restarted = open_feed(project, stages)
    assert restarted.sequence == 4
    assert run(restarted) is None
    restarted.fold(4)
    assert run(open_feed(project, stages)) is None
    assert [json.loads(text)["sequence"] for text in texts(project, 4) or ()] == [0, 1, 2, 3, 4]


def test_the_clock_is_due_without_a_row_where_operators_go_by_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(project / "a", "1")
    feed = open_feed(project, scans(BOTH), finish=False, has_clock=True)
    monkeypatch.setattr("sqlstream.runtime.feed.time.time", lambda: 7.0)
    first = feed.compose()
    assert first is not None
    assert first.clock == 7_000_000
    feed.write(first)
    assert feed.compose({CLOCK: EventTime(8_000_000)}) is None
    monkeypatch.setattr("sqlstream.runtime.feed.time.time", lambda: 8.0)
    # An event time that is due for a scan is none of the clock.
    assert feed.compose({0: EventTime(8_000_000)}) is None
    due = feed.compose({CLOCK: EventTime(8_000_000)})
    assert due is not None
    assert (due.splits, due.ticks, due.clock) == ({}, {}, 8_000_000)
    feed.write(due)
    assert feed.compose({CLOCK: EventTime(8_000_000)}) is None
    feed.drain()
    last = feed.compose()
    assert last is not None
    assert (last.last, last.clock) == (True, END_OF_INPUT)
