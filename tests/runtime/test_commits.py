"""Totals that other threads look at: they are those before a batch or after it, nothing in between."""

from __future__ import annotations

import pytest

from sqlstream.runtime.commits import Commits, Totals
from sqlstream.storage.joblog import JobLog
from sqlstream.storage.metrics import (
    BucketMetrics,
    BucketReport,
    PartitionMetrics,
    PartitionReport,
    ScanReport,
    SourceMetrics,
)
from sqlstream.testing import Stream
from sqlstream.units import Duration, EventTime, ProcessingTime

SCRIPT = "CREATE TABLE t (x BIGINT); CREATE TABLE kept (x BIGINT); INSERT INTO kept SELECT x FROM t"


def test_totals_change_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int, bool]] = []
    with Stream(SCRIPT) as stream:
        stream.batch("t", [(1,), (2,)])
        commits = stream.runs["kept"].commits
        append = JobLog.append

        def watched(log: JobLog, entry: object) -> None:
            look(commits.totals)
            append(log, entry)  # type: ignore[arg-type]

        def look(totals: Totals) -> None:
            seen.append((totals.version, totals.sequence, totals.rows_in, totals.ended))

        monkeypatch.setattr(JobLog, "append", watched)
        store = Commits._store

        def stored(self: Commits, sink: int, batch: int, segments: list[object], time: int) -> None:
            look(self.totals)
            store(self, sink, batch, segments, time)  # type: ignore[arg-type]

        monkeypatch.setattr(Commits, "_store", stored)
        stream.batch("t", [(3,)])
        look(commits.totals)
    assert seen == [(0, 0, 2, False), (0, 0, 2, False), (1, 1, 3, False)]


def test_a_copy_of_totals_changes_alone() -> None:
    bucket = BucketMetrics("first", state_rows=1)
    partitions = {"p": PartitionMetrics(rows=1)}
    totals = Totals(
        sources={"s": SourceMetrics(1, partitions=partitions)}, buckets={"o": {0: bucket}}, spent={}, sinks={}
    )
    copied = totals.copy()
    assert copied == totals
    report = {"p": PartitionReport(4, None, None)}
    copied.add(ScanReport("s", 3, True, 4, 0, 0, None, EventTime(9), partitions=report), ProcessingTime(1))
    copied.add(BucketReport("o", 1, bucket, rows_out=3), ProcessingTime(1))
    copied.wrote("t", 4, 100)
    copied.spent["commit"] = Duration(5)
    assert (copied.rows_in, copied.sources["s"].partitions["p"].rows, len(copied.buckets["o"])) == (4, 5, 2)
    assert copied.operators()["o"].rows_out == 3
    assert totals == Totals(
        sources={"s": SourceMetrics(1, partitions={"p": PartitionMetrics(rows=1)})}, buckets={"o": {0: bucket}}
    )
