"""Records that say milliseconds, as versions wrote them which had those inside: they are read as microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import UsageError
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.manifests import Manifest, Moment
from sqlstream.storage.metrics import BucketMetrics, SourceMetrics
from sqlstream.units import SECOND, Duration, EventTime, ProcessingTime, from_millis
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import write_sealed
from sqlstream.warehouse.status import RUNNING, Status, read_status

# 2026-01-01 00:00:00, as it was written and as it is said now.
MILLIS = 1_767_225_600_000
THEN = from_millis(MILLIS)

MANIFEST: dict[str, Any] = {
    "format": 4,
    "batch": 9,
    "time": MILLIS,
    "watermark": 5_000_000,
    "tables": {"t": [{"name": "t-9-0.parquet", "rows": 1, "bytes": 2, "first_batch": 9, "last_batch": 9, "low": 7}]},
    "counters": {"late_rows": 3, "swept_at_keys": MILLIS, "swept_at_rows": 0},
    "history": [[8, MILLIS - 1000, None], [9, MILLIS, 5_000_000]],
    "event_timer": 6_000_000,
    "processing_timer": MILLIS + 1000,
}
ENTRY: dict[str, Any] = {
    "format": 1,
    "version": 9,
    "committed_at": MILLIS,
    "watermark": 5_000_000,
    "sources": {
        "bid": {
            "rows": 4,
            "max_event_time": 5_000_001,
            "watermark": 5_000_000,
            "holding_since": MILLIS,
            "idle_timeout": 60_000,
            "idle_since": MILLIS + 60_000,
            "last_row_at": MILLIS,
        },
        "ask": {"idle_timeout": 0},
    },
    "operators": {
        "counts": {
            "state_rows": 2,
            "event_timer": 6_000_000,
            "buckets": {"0": {"manifest": "m", "event_timer": 6_000_000, "processing_timer": MILLIS + 1000}},
        }
    },
}
STATUS = {"format": 1, "state": RUNNING, "pid": 1, "host": "here", "started_at": MILLIS, "updated_at": MILLIS + 1000}
JOB = {
    "format": 7,
    "job": "j",
    "sql": "",
    "plan_fingerprint": "",
    "plan_text": "",
    "created_at": MILLIS,
    "versions": {},
    "bucket_labels": [0],
    "partitions": 1,
    "scans": [],
    "operators": [],
    "sinks": [],
}
LATER = ProcessingTime(THEN + SECOND)


def test_a_manifest() -> None:
    manifest = Manifest.from_json(json.dumps(MANIFEST))
    assert (manifest.time, manifest.watermark) == (THEN, 5_000_000)
    assert (manifest.event_timer, manifest.processing_timer) == (6_000_000, LATER)
    assert manifest.history == (Moment(8, ProcessingTime(THEN - SECOND), None), Moment(9, THEN, EventTime(5_000_000)))
    assert manifest.counters == {"late_rows": 3, "swept_at_keys": THEN, "swept_at_rows": 0}
    assert manifest.tables["t"][0].low == 7
    # What is written of it is of today's format, and not upgraded once more.
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_manifest_of_an_operator_without_timers() -> None:
    bare = {name: MANIFEST[name] for name in ("format", "batch", "time", "watermark", "tables")}
    manifest = Manifest.from_json(json.dumps(bare))
    assert (manifest.time, manifest.history, manifest.counters) == (THEN, (), {})
    assert (manifest.event_timer, manifest.processing_timer) == (None, None)


def test_an_entry_of_the_log() -> None:
    entry = LogEntry.from_json(json.dumps(ENTRY))
    assert (entry.committed_at, entry.watermark) == (THEN, 5_000_000)
    assert entry.sources == {
        "bid": SourceMetrics(
            rows=4,
            max_event_time=EventTime(5_000_001),
            watermark=EventTime(5_000_000),
            holding_since=THEN,
            idle_timeout=Duration(60 * SECOND),
            idle_since=ProcessingTime(THEN + 60 * SECOND),
            last_row_at=THEN,
        ),
        "ask": SourceMetrics(idle_timeout=Duration(0)),
    }
    counts = entry.operators["counts"]
    assert (counts.state_rows, counts.event_timer) == (2, 6_000_000)
    assert counts.buckets == {0: BucketMetrics("m", event_timer=EventTime(6_000_000), processing_timer=LATER)}
    assert LogEntry.from_json(entry.to_json()) == entry


def test_a_status(tmp_path: Path) -> None:
    job = JobPaths(str(tmp_path))
    write_sealed(LocalFilesystem(), job.status, json.dumps(STATUS))
    assert read_status(LocalFilesystem(), job) == Status(RUNNING, 1, "here", THEN, LATER)


def test_a_job() -> None:
    record = JobRecord.from_json(json.dumps(JOB))
    assert record.created_at == THEN
    assert JobRecord.from_json(record.to_json()) == record


def test_formats_that_were_never_released_are_refused() -> None:
    with pytest.raises(UsageError, match=r"before 0\.1\.0"):
        Manifest.from_json(json.dumps({**MANIFEST, "format": 3}))
