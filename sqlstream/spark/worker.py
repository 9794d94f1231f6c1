"""The code in Spark's Python workers: scans, and the processor around an operator with the fragment after it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from sqlstream import profiling
from sqlstream.profiling import TASKS
from sqlstream.runtime import tasks as stages
from sqlstream.runtime.batch_descriptors import from_lines
from sqlstream.runtime.frames import WAKE, Frame
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.times import timer_millis, to_spark_micros, to_spark_millis
from sqlstream.runtime.watermarks import BatchTimes, Watermarks
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.carried_errors import carried
from sqlstream.spark.scratch import SparkCheckpoint
from sqlstream.units import EventTime, ProcessingTime, from_millis

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues, ValueState

FRAME_SCHEMA = "bucket INT, port INT, time BIGINT, payload BINARY"
OUTPUT_SCHEMA = "kind STRING, body STRING, sink INT"
# The column of scans' rows from which Spark computes the watermark.
EVENT_TIME = "event_time"
# The property of a batch's tasks that holds the watermarks before it.
MARKS = "sqlstream.watermarks"
_TIMED = f", {EVENT_TIME} TIMESTAMP"
_ARROW_FRAME = pa.schema([("bucket", pa.int32()), ("port", pa.int32()), ("time", pa.int64()), ("payload", pa.binary())])
_ARROW_OUTPUT = pa.schema([("kind", pa.string()), ("body", pa.string()), ("sink", pa.int32())])
_ARROW_TIME = pa.field(EVENT_TIME, pa.timestamp("us", tz="UTC"))


def batch_id() -> int:
    """Return Spark's number of the micro-batch of this task. Raises RuntimeError outside of one."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    if number is None:
        raise RuntimeError("not in a micro-batch")
    return int(number)


def batch_watermarks() -> Watermarks:
    """Return the watermarks before the micro-batch of this task. Raises RuntimeError outside of one."""
    context = TaskContext.get()
    text = context.getLocalProperty(MARKS) if context else None
    if text is None:
        raise RuntimeError("not in a micro-batch")
    return Watermarks.from_json(text)


class ScanTask:
    """Reads the splits of a scan (mapInArrow). Yields frames, or outputs of sinks, each with a time that moves Spark's watermark.

    Usually the time is the watermark of the scan so far. If operators wait for different scans, one watermark of Spark's cannot
    stand for all of them. Then it only tells Spark that some watermark has moved: the time is the next batch's number, see
    `next_stroke`.
    """

    def __init__(self, job: JobSpec, scan: int, checkpoint: SparkCheckpoint):
        self.job, self.scan, self.checkpoint = job, scan, checkpoint
        self.schema = (FRAME_SCHEMA if job.plan.stages else OUTPUT_SCHEMA) + _TIMED

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        profiling.follow(self.job.profile)
        began = time.monotonic()
        texts = [text for b in batches for text in b.column(0).to_pylist()]
        work = [w for text in texts for w in from_lines(text) if w.scan == self.scan]
        if not work:
            return
        plan, batch, watermarks = self.job.plan, batch_id(), batch_watermarks()
        profiling.interval("frames in", TASKS, began, job=self.job.name, batch=self.checkpoint.base + batch)
        clock = max((w.clock for w in work if w.clock is not None), default=None)
        is_later = to_spark_millis(clock) > to_spark_millis(watermarks.clock)
        with carried():
            self.checkpoint.check_seen()
        self.job.remember_secrets()
        if plan.stages:
            for frame in self.checkpoint.calls(self.job, batch, work[0].time):
                yield _with_time(_frame_batch(frame), 0)
        with carried():
            for watermark, output in stages.run_scan(
                self.job, self.scan, work, self.checkpoint.base + batch, watermarks
            ):
                if plan.stages:
                    frame = (
                        output if isinstance(output, Frame) else output.framed(self.job.labels[0], ProcessingTime(0))
                    )
                    output_batch = _frame_batch(frame)
                else:
                    assert isinstance(output, Output)
                    output_batch = pa.RecordBatch.from_pylist([asdict(output)], schema=_ARROW_OUTPUT)
                timed = _with_time(output_batch, self._micros(watermark, watermarks, batch, is_later=is_later))
                with profiling.span("frames out", TASKS):
                    yield timed

    def _micros(self, watermark: EventTime | None, watermarks: Watermarks, batch: int, *, is_later: bool) -> int:
        """Return the time that moves Spark's watermark. `is_later`: the clock, for which some operators wait, has moved."""
        if not self.job.plan.has_several_watermarks:
            return to_spark_micros(watermark)
        has_moved = to_spark_millis(watermark) > to_spark_millis(watermarks.scans[self.scan])
        return next_stroke(batch) if has_moved or is_later else 0


def next_stroke(batch: int) -> int:
    """Return the time, in microseconds, that moves Spark's watermark after `batch`, if operators wait for different scans.

    Spark's watermark then counts batches, like a clock that strikes: one millisecond per batch.
    """
    return (batch + 1) * 1000


class Processor:
    """Runs the operators of one level of the plan, for one bucket of keys at a time. Spark's state store has their manifests.

    Frames for later levels, and outputs for the driver, pass through.
    """

    def __init__(self, job: JobSpec, level: int, checkpoint: SparkCheckpoint):
        self.job, self.level, self.checkpoint = job, level, checkpoint
        self.stages = job.plan.levels[level]
        self.is_last = level == len(job.plan.levels) - 1

    def open(self, handle: StatefulProcessorHandle, manifests: ValueState) -> None:
        """Store Spark's handle, for timers, and the state variable that holds the manifests. Raises CarriedError."""
        self.handle, self.manifests = handle, manifests
        with carried():
            self.checkpoint.check_seen()
        self.job.remember_secrets()

    def handle_rows(self, key: tuple[int], rows: Iterator[Any], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Run the operators that have frames among the rows of a bucket, or are due; yield rows for the next level."""
        profiling.follow(self.job.profile)
        with profiling.span("task", TASKS, job=self.job.name, batch=self.checkpoint.base + batch_id()):
            yield from self._handle_rows(key, rows, timer_values)

    def _handle_rows(self, key: tuple[int], rows: Iterator[Any], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        arrived: dict[int, list[Frame]] = {}
        passing: list[Frame] = []
        is_woken = False
        for chunk in _timed(rows):
            for row in chunk.itertuples(index=False):
                frame = Frame(row.bucket, row.port, ProcessingTime(row.time), bytes(row.payload))
                if frame.port == WAKE:
                    is_woken = True
                elif not frame.is_control and frame.stage in self.stages:
                    arrived.setdefault(frame.stage, []).append(frame)
                else:
                    passing.append(frame)
        if is_woken and not self.is_last:
            passing.append(Frame(key[0], WAKE, ProcessingTime(0), b""))
        if arrived or is_woken:
            yield from self._advance(key[0], arrived, timer_values)
        if passing:
            yield self._rows(passing)

    def handle_timer(self, key: tuple[int], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Run the operators of a bucket whose timers are due; yield rows for the next level."""
        profiling.follow(self.job.profile)
        with profiling.span("task", TASKS, job=self.job.name, batch=self.checkpoint.base + batch_id()):
            yield from self._advance(key[0], {}, timer_values)

    def _advance(
        self, bucket: int, arrived: dict[int, list[Frame]], timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        times = BatchTimes(
            batch=self.checkpoint.base + batch_id(),
            time=from_millis(timer_values.getCurrentProcessingTimeInMs()),
            watermarks=batch_watermarks(),
        )
        with profiling.span("read state store", TASKS):
            stored = self.manifests.get()
        entries: dict[str, tuple[str, EventTime | None]] = {}
        # The timers that Spark has.
        woken: list[int] = []
        if stored:
            entries, woken = json.loads(stored[0])
        else:
            before = {stage: self.checkpoint.stored(self.job, stage, bucket) for stage in self.stages}
            entries = {str(stage): entry for stage, entry in before.items() if entry is not None}
        for stage in self.stages:
            manifest, due = entries.get(str(stage), (None, None))
            watermark = times.watermarks.operators[stage]
            is_due = due is not None and watermark is not None and due <= watermark
            if stage not in arrived and not is_due:
                continue
            with carried():
                advance = stages.Advance(self.job, stage, bucket, manifest, times)
                for output in advance.run(arrived.get(stage, [])):
                    sent = self._rows([output])
                    with profiling.span("frames out", TASKS):
                        yield sent
            entries[str(stage)] = (advance.manifest, advance.event_timer)
        wake = self._due_millis(
            [at for _, at in entries.values() if at is not None], timer_values.getCurrentWatermarkInMs()
        )
        with profiling.span("write state store", TASKS):
            self.manifests.update((json.dumps((entries, sorted(wake))),))
            for at in set(woken) - wake:
                self.handle.deleteTimer(at)
            for at in wake - set(woken):
                self.handle.registerTimer(at)

    def _due_millis(self, due: Sequence[EventTime], reached: int) -> set[int]:
        """Return the times of Spark's timers for a bucket, from the times `due`. `reached` is Spark's watermark in milliseconds.

        If operators wait for different scans, a timer right after Spark's watermark calls the bucket when any scan has moved.
        """
        if self.job.plan.has_several_watermarks:
            return {reached + 1} if due else set()
        return {timer_millis(at) for at in due}

    def _rows(self, outputs: Sequence[Frame | Output]) -> pd.DataFrame:
        """Return frames and outputs as a DataFrame in the schema of the next level, or of the driver."""
        if self.is_last:
            records = [asdict(Output.of(o) if isinstance(o, Frame) else o) for o in outputs]
        else:
            records = [
                asdict(o if isinstance(o, Frame) else o.framed(self.job.labels[0], ProcessingTime(0))) for o in outputs
            ]
        return pd.DataFrame(records)


def _timed(rows: Iterator[Any]) -> Iterator[Any]:
    """Yield the chunks of rows that Spark sends to a bucket."""
    while True:
        with profiling.span("frames in", TASKS):
            chunk = next(rows, None)
        if chunk is None:
            return
        yield chunk


def _with_time(batch: pa.RecordBatch, micros: int) -> pa.RecordBatch:
    return batch.append_column(_ARROW_TIME, pa.array([micros] * batch.num_rows, _ARROW_TIME.type))


def _frame_batch(frame: Frame) -> pa.RecordBatch:
    values = (frame.bucket, frame.port, frame.time, frame.payload)
    arrays = [pa.array([v], f.type) for v, f in zip(values, _ARROW_FRAME, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_FRAME)
