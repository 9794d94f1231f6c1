"""Builds one streaming DataFrame from a physical plan."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.packed_processor import PackedProcessor
from sqlstream.spark.scratch import SparkCheckpoint
from sqlstream.spark.worker import EVENT_TIME, FRAME_SCHEMA, OUTPUT_SCHEMA, Processor, ScanTask


def build(job: JobSpec, source: DataFrame, checkpoint: SparkCheckpoint) -> DataFrame:
    """Return the job as a streaming DataFrame, with the outputs of the plan's last level for the driver (OUTPUT_SCHEMA).

    `source`, the only stream, has descriptors (`DescriptorSource.frame`). One descriptor is one micro-batch.
    """
    plan, scans = job.plan, []
    for number in range(len(plan.scans)):
        # Each scan takes its own lines from the same rows. The watermark column must not reach an operator: Spark would drop late
        # frames by it.
        task = ScanTask(job, number, checkpoint)
        frames = source.mapInArrow(task, task.schema)
        if number in plan.watched and not plan.has_several_watermarks:
            frames = frames.withWatermark(EVENT_TIME, "0 seconds")
        scans.append(frames if plan.has_several_watermarks else frames.drop(EVENT_TIME))
    # Only the next level reads a level: Spark would compute a level twice if two read it.
    rows = reduce(DataFrame.union, scans)
    if plan.has_several_watermarks:
        # Its watermark is the greatest of all scans', not the least.
        rows = rows.withWatermark(EVENT_TIME, "0 seconds").drop(EVENT_TIME)
    for level in range(len(job.plan.levels)):
        schema = OUTPUT_SCHEMA if level == len(job.plan.levels) - 1 else FRAME_SCHEMA
        processor = PackedProcessor(Processor(job, level, checkpoint))
        rows = rows.groupBy("bucket").transformWithStateInPandas(processor, schema, "Append", "EventTime")
    return rows
