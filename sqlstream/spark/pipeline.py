"""From a physical plan to one streaming DataFrame."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sqlstream.runtime.worker import Job
from sqlstream.spark.worker import FRAME_SCHEMA, OUTPUT_SCHEMA, SCAN_SCHEMA, Processor, ScanTask

DESCRIPTOR_SCHEMA = "slot INT, scan INT, body STRING"
_FRAME = ("bucket", "port", "time", "payload")


def build(spark: SparkSession, job: Job, descriptors: str, partitions: int) -> DataFrame:
    """Return the job as a streaming DataFrame of what its last stages tell the driver.

    `descriptors` is the directory of batch descriptors, the only source; one descriptor is one micro-batch.
    """
    source = (
        spark.readStream.schema(DESCRIPTOR_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(descriptors)
        .repartition(partitions, "slot")
    )
    scans = []
    for number, scan in enumerate(job.plan.scans):
        work = source.filter(F.col("scan") == number)
        if not job.plan.stages:
            scans.append(work.mapInArrow(ScanTask(job, number), OUTPUT_SCHEMA))
            continue
        frames = work.mapInArrow(ScanTask(job, number), SCAN_SCHEMA)
        if scan.watermark is not None:
            frames = frames.withWatermark("event_time", "0 seconds")
        # The watermark column must not reach the operator: Spark would drop frames by it.
        scans.append(frames.select(*_FRAME))
    # Each level is read by the next one alone: Spark would compute again what two of them read.
    rows = reduce(DataFrame.union, scans)
    for level in range(len(job.plan.levels)):
        schema = OUTPUT_SCHEMA if level == len(job.plan.levels) - 1 else FRAME_SCHEMA
        processor = Processor(job, level)
        rows = rows.groupBy("bucket").transformWithStateInPandas(processor, schema, "Append", "EventTime")
    return rows
