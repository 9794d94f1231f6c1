"""Rates of the benchmark: what comes of a log whose rate is known, and which runs are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sqlstream.storage.joblog import LogEntry
from sqlstream.units import ProcessingTime
from tests.bench import rates
from tests.bench.commits import batch_seconds
from tests.bench.flink import FlinkRun
from tests.bench.rates import Point, Rate, UnfitRunError, log_points, passes, warm_rate

BEGUN = 1_790_000_000.0
BATCHES, BATCH_ROWS = 8, 500_000


def _log(*, batches: int = BATCHES) -> list[LogEntry]:
    """Return the log of a job that reads half a million rows every two seconds, first five seconds after its start."""
    return [
        LogEntry(
            version=number,
            committed_at=ProcessingTime(round((BEGUN + 5 + 2 * number) * 1_000_000)),
            watermark=None,
            # As the job writes it: rows since its beginning, so the sum over all entries has most rows several times.
            rows_in=(number + 1) * BATCH_ROWS,
        )
        for number in range(batches)
    ]


def test_the_rate_of_a_log_is_rows_between_two_commits_by_the_time_between_them() -> None:
    total = BATCHES * BATCH_ROWS
    points = passes(log_points(_log(), BEGUN), total)
    rate = warm_rate(points, total, 25.0)
    assert rate == Rate(6 * BATCH_ROWS, 12.0)
    assert rate.per_second == 250_000


@pytest.mark.parametrize("batches", [4, 8, 20, 64])
def test_the_rate_does_not_depend_on_the_number_of_batches(batches: int) -> None:
    total = batches * BATCH_ROWS
    assert warm_rate(log_points(_log(batches=batches), BEGUN), total, 1_000.0).per_second == 250_000


def test_an_entry_without_new_rows_counts_by_its_time_only() -> None:
    run = [Point(500, 1.0), Point(1000, 2.0), Point(1000, 3.0), Point(2000, 5.0), Point(2000, 9.0)]
    assert warm_rate(run, 2000, 10.0) == Rate(1500, 4.0)


@pytest.mark.parametrize(
    ("run", "total", "whole", "reason"),
    [
        ([Point(500, 1.0), Point(1500, 2.0)], 2000, 9.0, "read 1,500 rows of 2,000"),
        ([], 2000, 9.0, "read 0 rows of 2,000"),
        ([Point(500, 1.0), Point(400, 2.0), Point(2000, 3.0)], 2000, 9.0, "goes back"),
        ([Point(500, 3.0), Point(2000, 2.0)], 2000, 9.0, "goes back"),
        ([Point(2000, 2.0)], 2000, 9.0, "nothing was read"),
        ([Point(500, 2.0), Point(2000, 2.0)], 2000, 9.0, "nothing was read"),
        ([Point(500, 1.0), Point(2000, 12.0)], 2000, 9.0, "outside of the run"),
        ([Point(500, -1.0), Point(2000, 2.0)], 2000, 9.0, "outside of the run"),
    ],
)
def test_a_run_whose_numbers_contradict_each_other_is_refused(
    run: list[Point], total: int, whole: float, reason: str
) -> None:
    with pytest.raises(UnfitRunError, match=reason):
        warm_rate(run, total, whole)


def test_rows_that_several_scans_read_count_once() -> None:
    assert passes([Point(600, 1.0), Point(2000, 2.0)], 1000) == [Point(300, 1.0), Point(1000, 2.0)]
    with pytest.raises(UnfitRunError, match="no multiple"):
        passes([Point(600, 1.0), Point(1900, 2.0)], 1000)


def test_flink_is_measured_from_the_same_share_of_its_input() -> None:
    run = FlinkRun((Point(100, 3.0), Point(300, 5.0), Point(900, 8.0)), 8.5, 12.0)
    # It came to its end half a second after somebody last asked.
    assert run.rate(1000) == Rate(700, 3.5)


def test_a_clock_that_is_set_spoils_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1000.0, 1007.5])
    monkeypatch.setattr("tests.bench.rates.time.time", lambda: next(now))
    monkeypatch.setattr("tests.bench.rates.time.monotonic", lambda: 50.0)
    with pytest.raises(UnfitRunError, match=r"moved by 7\.50 s"), rates.steady_clock():
        pass


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.rates.os.getloadavg", lambda: (0.3, 4.0, 4.0))
    assert rates.busy() is None
    monkeypatch.setattr("tests.bench.rates.os.getloadavg", lambda: (0.6, 0.0, 0.0))
    assert "load of 0.6" in str(rates.busy())


def test_batches_take_the_time_between_their_commits(tmp_path: Path) -> None:
    for number, seconds in enumerate([5.0, 7.0, 8.5, 11.0]):
        commit(tmp_path, number, seconds)
    assert batch_seconds(tmp_path, 4, 2) == [1.5, 2.5]
    with pytest.raises(RuntimeError, match=r"without committing batches \[4\] of 5"):
        batch_seconds(tmp_path, 5, 2)
    commit(tmp_path, 4, 10.0)
    with pytest.raises(UnfitRunError, match=r"a batch took -1\.000 s"):
        batch_seconds(tmp_path, 5, 2)


def commit(checkpoint: Path, number: int, seconds: float) -> None:
    """Write the file of a batch that was committed so many seconds after `BEGUN`."""
    (checkpoint / "commits").mkdir(exist_ok=True)
    path = checkpoint / "commits" / str(number)
    path.touch()
    os.utime(path, (BEGUN + seconds,) * 2)
