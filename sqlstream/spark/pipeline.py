"""From a physical plan to one streaming DataFrame."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.packed_processor import PackedProcessor
from sqlstream.spark.scratch import SparkCheckpoint
from sqlstream.spark.worker import EVENT_TIME, FRAME_SCHEMA, OUTPUT_SCHEMA, Processor, ScanTask


def build(job: JobSpec, source: DataFrame, checkpoint: SparkCheckpoint) -> DataFrame:
    """Return the job as a streaming DataFrame of what its last stages tell the driver.

    `source` is the stream of descriptors, the only one: one descriptor is one micro-batch.
    """
    scans = []
    for number in range(len(job.plan.scans)):
        # Each scan takes its lines out of the same rows.
        task = ScanTask(job, number, checkpoint)
        frames = source.mapInArrow(task, task.schema)
        if number in job.plan.watched:
            frames = frames.withWatermark(EVENT_TIME, "0 seconds")
        # The watermark column must not reach the operator: Spark would drop frames by it.
        scans.append(frames.drop(EVENT_TIME))
    # Each level is read by the next one alone: Spark would compute again what two of them read.
    rows = reduce(DataFrame.union, scans)
    for level in range(len(job.plan.levels)):
        schema = OUTPUT_SCHEMA if level == len(job.plan.levels) - 1 else FRAME_SCHEMA
        processor = PackedProcessor(Processor(job, level, checkpoint))
        rows = rows.groupBy("bucket").transformWithStateInPandas(processor, schema, "Append", "EventTime")
    return rows
