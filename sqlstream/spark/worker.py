"""What runs in Spark's Python workers: scans, and the processor around an operator with the fragment after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from sqlstream.errors import SqlStreamError
from sqlstream.operators.step import Clock
from sqlstream.runtime import stages
from sqlstream.runtime.batches import from_rows
from sqlstream.runtime.frames import Frame
from sqlstream.runtime.stages import Output
from sqlstream.runtime.times import from_spark_millis, timer_millis, to_spark_micros
from sqlstream.runtime.worker import Job
from sqlstream.spark.carried_errors import carry

FRAME_SCHEMA = "bucket INT, port INT, time BIGINT, payload BINARY"
SCAN_SCHEMA = FRAME_SCHEMA + ", event_time TIMESTAMP"
OUTPUT_SCHEMA = "kind STRING, body STRING"
_ARROW_FRAME = pa.schema([("bucket", pa.int32()), ("port", pa.int32()), ("time", pa.int64()), ("payload", pa.binary())])
_ARROW_SCAN = _ARROW_FRAME.append(pa.field("event_time", pa.timestamp("us", tz="UTC")))
_ARROW_OUTPUT = pa.schema([("kind", pa.string()), ("body", pa.string())])


def batch_id() -> int:
    """Return the micro-batch that this task belongs to."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    if number is None:
        raise RuntimeError("not in a micro-batch")
    return int(number)


class ScanTask:
    """Reads the splits of a scan (mapInArrow): frames with the watermark column, or what the sink stored."""

    def __init__(self, job: Job, scan: int):
        self.job, self.scan = job, scan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [(r["slot"], r["scan"], r["body"]) for b in batches for r in b.to_pylist()]
        if not rows:
            return
        try:
            for watermark, output in stages.run_scan(self.job, self.scan, from_rows(rows), batch_id()):
                if isinstance(output, Frame):
                    time = pa.array([to_spark_micros(watermark)], _ARROW_SCAN.field(4).type)
                    yield pa.RecordBatch.from_arrays([*_frame_columns(output), time], schema=_ARROW_SCAN)
                else:
                    yield _output_batch(output)
        except SqlStreamError as e:
            raise carry(e) from None


class Processor(StatefulProcessor):
    """Moves manifests in and out of Spark's state store and calls the operator, one bucket at a time."""

    def __init__(self, job: Job, stage: int):
        self.job, self.stage = job, stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.manifest = handle.getValueState("manifest", "json STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        passing: list[Frame] = []
        frames = _data_frames(rows, passing)
        first = next(frames, None)
        if first is not None:
            yield from self._advance(key[0], chain([first], frames), timerValues)
        if passing:
            yield _rows([stages.passed(f, self.job.plan.stages[self.stage]) for f in passing])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield from self._advance(key[0], [], timerValues)

    def close(self) -> None:
        pass

    def _advance(self, bucket: int, arrived: Iterable[Frame], times: Any) -> Iterator[pd.DataFrame]:
        clock = Clock(
            batch=batch_id(),
            watermark=from_spark_millis(times.getCurrentWatermarkInMs()),
            time=times.getCurrentProcessingTimeInMs(),
        )
        stored = self.manifest.get()
        try:
            advance = stages.Advance(self.job, self.stage, bucket, stored[0] if stored else None, clock)
            for output in advance.run(arrived):
                yield _rows([output])
        except SqlStreamError as e:
            raise carry(e) from None
        self.manifest.update((advance.manifest,))
        if advance.woken_at is not None and advance.woken_at != advance.wake_at:
            self.handle.deleteTimer(timer_millis(advance.woken_at))
        if advance.wake_at is not None and advance.wake_at != advance.woken_at:
            self.handle.registerTimer(timer_millis(advance.wake_at))


def _data_frames(chunks: Iterator[Any], passing: list[Frame]) -> Iterator[Frame]:
    """Yield the frames with rows one by one, as Spark hands them over; put the others aside."""
    for chunk in chunks:
        for row in chunk.itertuples(index=False):
            frame = Frame(row.bucket, row.port, row.time, bytes(row.payload))
            if frame.is_control:
                passing.append(frame)
            else:
                yield frame


def _frame_columns(frame: Frame) -> list[pa.Array]:
    values = (frame.bucket, frame.port, frame.time, frame.payload)
    return [pa.array([v], f.type) for v, f in zip(values, _ARROW_FRAME, strict=True)]


def _rows(outputs: Sequence[Frame | Output]) -> pd.DataFrame:
    """Return frames, or what is for the driver, as pandas: one of the two, as the stage's schema says."""
    return pd.DataFrame([asdict(output) for output in outputs])


def _output_batch(output: Output) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"kind": [output.kind], "body": [output.body]}, schema=_ARROW_OUTPUT)
