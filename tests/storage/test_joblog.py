"""The job log: entries come back in order, few files hold them, and readers never miss one."""

from __future__ import annotations

from pathlib import Path

from sqlstream.storage.joblog import CHUNK, JobLog, LogEntry
from sqlstream.storage.metrics import OperatorMetrics, SourceMetrics
from sqlstream.units import EPOCH, MILLISECOND, NO_TIME, SECOND, Duration, EventTime, ProcessingTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem

FS = LocalFilesystem()


def entry(version: int, rows: int = 0) -> LogEntry:
    return LogEntry(
        version,
        from_millis(version * 1000),
        EventTime(version - 5),
        rows,
        0,
        {"s": SourceMetrics(rows)},
        {"o": OperatorMetrics(late_rows=1)},
    )


def filled(directory: Path, count: int) -> JobLog:
    log = JobLog(FS, str(directory))
    for version in range(count):
        log.append(entry(version))
    return log


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    assert log.entries() == [entry(v) for v in range(5)]
    assert log.entries(up_to=3, since=2) == [entry(2), entry(3)]
    assert log.entry(4) == entry(4)
    assert log.entry(5) is None
    assert JobLog(FS, str(tmp_path / "none")).entries() == []


def test_a_repeated_batch_replaces_its_entry(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    log.append(entry(4, rows=7))
    assert log.entry(4) == entry(4, rows=7)
    assert len(log.entries()) == 5


def test_a_thousand_versions_are_a_few_files(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000)
    assert len(list(tmp_path.iterdir())) <= 1000 // CHUNK + CHUNK + 1
    assert log.entries() == [entry(v) for v in range(1000)]
    assert log.entry(500) == entry(500)


def test_the_newest_entry_is_not_gathered(tmp_path: Path) -> None:
    log = filled(tmp_path, CHUNK + 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0000000000-0000000063.json", "0000000064.json"]
    log.append(entry(CHUNK, rows=9))
    assert log.entries()[-1] == entry(CHUNK, rows=9)


def test_a_crash_between_gathering_and_deleting_does_no_harm(tmp_path: Path) -> None:
    log = filled(tmp_path, CHUNK)
    singles = {p: p.read_text() for p in tmp_path.iterdir()}
    log.append(entry(CHUNK))
    for path, text in singles.items():
        path.write_text(text)
    assert log.entries() == [entry(v) for v in range(CHUNK + 1)]
    log.append(entry(CHUNK + 1))
    assert len(list(tmp_path.iterdir())) <= 4
    assert log.entries() == [entry(v) for v in range(CHUNK + 2)]


def test_pruning_keeps_from_the_oldest_version_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 3 * CHUNK)
    log.prune(100)
    # Version 64 is in one file with version 100.
    assert [e.version for e in log.entries()] == list(range(64, 3 * CHUNK))
    log.prune(3 * CHUNK - 1)
    assert [e.version for e in log.entries()] == [3 * CHUNK - 1]


def test_the_oldest_version_is_kept_for_a_time_and_a_number_of_versions(tmp_path: Path) -> None:
    log = filled(tmp_path, 150)
    now = from_millis(149_000)
    assert log.oldest_retained(149, now, retention=Duration(10 * SECOND), retention_batches=100) == 49
    assert log.oldest_retained(149, now, retention=Duration(120 * SECOND), retention_batches=100) == 29
    assert log.oldest_retained(149, now, retention=Duration(500 * SECOND), retention_batches=100) == 0
    assert (
        log.oldest_retained(
            149, ProcessingTime(now + 1_500 * MILLISECOND), retention=Duration(120 * SECOND), retention_batches=100
        )
        == 30
    )
    assert JobLog(FS, str(tmp_path / "none")).oldest_retained(0, EPOCH, NO_TIME) == 0


def test_a_single_entry_counts_before_a_gathered_one(tmp_path: Path) -> None:
    log = filled(tmp_path, CHUNK + 1)
    log.append(entry(3, rows=9))
    assert log.entry(3) == entry(3, rows=9)


def test_a_reader_sees_every_entry_while_they_are_gathered(tmp_path: Path) -> None:
    log = filled(tmp_path, CHUNK)

    class Slow(LocalFilesystem):
        """Lets the writer gather the entries between a reader's listing and its reading."""

        def list(self, directory: str) -> list[str]:
            names = super().list(directory)
            if log.entry(CHUNK) is None:
                log.append(entry(CHUNK))
            return names

    assert JobLog(Slow(), str(tmp_path)).entries() == [entry(v) for v in range(CHUNK + 1)]


class Counted(LocalFilesystem):
    """Counts the files that are read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def read_text(self, path: str) -> str:
        self.read.append(path)
        return super().read_text(path)


def test_no_entry_is_read_twice_to_find_the_oldest_version(tmp_path: Path) -> None:
    filled(tmp_path, 400)
    fs, now = Counted(), from_millis(400_000)
    log = JobLog(fs, str(tmp_path))

    def oldest(retention: int) -> int:
        return log.oldest_retained(399, now, Duration(retention * SECOND), 100)

    # A second between two versions.
    assert [oldest(seconds) for seconds in (10, 200, 1000)] == [299, 200, 0]
    assert len(fs.read) == len(set(fs.read)) <= 400 // CHUNK + 1
    fs.read.clear()
    for version in range(400, 400 + CHUNK):
        log.append(entry(version))
    assert log.oldest_retained(399 + CHUNK, now, Duration(10 * SECOND), 0) == 390
    log.prune(300)
    fs.read.clear()
    # What was written by this process, or read before, is known.
    assert log.oldest_retained(399 + CHUNK, now, Duration(1000 * SECOND), 100) == 256
    assert not fs.read
    assert log.last() == entry(399 + CHUNK)


def test_a_damaged_entry_is_no_oldest_version(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    Path(log.path(0)).write_text("cut")
    Path(log.path(2)).write_text("cut")
    again = JobLog(FS, str(tmp_path))
    for _ in range(2):
        assert again.oldest_retained(2, from_millis(5000), Duration(1000 * SECOND), 0) == 1
    assert again.last() == entry(1)
