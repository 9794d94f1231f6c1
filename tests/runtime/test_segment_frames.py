"""Rows that travel as segments: the same results as rows that travel inline, late ones dropped and counted the same."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from sqlstream.runtime import frames
from sqlstream.runtime.frames import BUCKET
from sqlstream.storage.segments import Segment
from sqlstream.testing import Stream
from sqlstream.units import EventTime, ProcessingTime

SCRIPT = """
CREATE TABLE bid (auction BIGINT, price DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE sums (auction BIGINT, n BIGINT, prices BIGINT, w TIMESTAMP(3));
INSERT INTO sums SELECT auction, COUNT(*), COUNT(DISTINCT price), window_end
FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY auction, window_start, window_end;
"""
BATCHES = [
    [(n % 3, n % 5, f"2026-01-01 10:00:{n % 20:02}") for n in range(60)],
    [(1, 9.0, "2026-01-01 10:00:03"), (1, 9.0, "2026-01-01 10:00:33"), (2, None, "2026-01-01 10:00:08")],
    [(n % 3, n % 5, f"2026-01-01 10:00:{n % 40:02}") for n in range(80)],
]


def run(monkeypatch: pytest.MonkeyPatch, limit: int) -> tuple[list[tuple[object, ...]], int]:
    monkeypatch.setattr(frames, "INLINE_BYTES", limit)
    with Stream(SCRIPT) as stream:
        for number, batch in enumerate(BATCHES):
            stream.batch("bid", batch)
            if number == 1:
                stream.restart()
        stream.finish()
        [(late,)] = stream.query("SELECT late_rows FROM sqlstream.operators")
        return sorted(stream.rows("sums"), key=str), late


def test_segments_and_inline_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    inline, late = run(monkeypatch, 1 << 30)
    assert late == 42
    assert run(monkeypatch, 0) == (inline, late)


def test_many_rows_travel_as_a_segment() -> None:
    written = Segment("partials-0-1.parquet", 5, 900, 0, 0, EventTime(10), EventTime(20), 5, EventTime(10), crc=77)
    frame = frames.Frame(0, 0, ProcessingTime(0), written.to_json().encode())
    segment = frame.rows()
    assert segment.name == "partials-0-1.parquet"
    assert (segment.rows, segment.low, segment.high) == (5, 10, 20)


@pytest.mark.parametrize("buckets", [1, 3, 40])
def test_every_row_is_in_one_frame_of_its_bucket(buckets: int) -> None:
    places = random.Random(buckets)
    batches = [
        pa.record_batch(
            {"x": range(first, first + 50), BUCKET: pa.array(places.choices(range(buckets), k=50), "uint64")}
        )
        for first in (0, 50)
    ]
    batches.insert(1, batches[0].slice(0, 0))
    expected: dict[int, list[int]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            expected.setdefault(100 + row[BUCKET], []).append(row["x"])

    def refused(label: int, rows: pa.Table) -> Segment:
        raise AssertionError("few rows travel inline")

    labels = range(100, 100 + buckets)
    found = list(frames.pack(batches, 5, ProcessingTime(7), labels, refused))
    assert {f.bucket: pa.ipc.open_stream(f.payload).read_all().column("x").to_pylist() for f in found} == expected
    assert len(found) == len(expected)
    assert {(f.port, f.time) for f in found} == {(5, ProcessingTime(7))}
