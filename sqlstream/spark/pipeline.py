"""From a physical plan to one streaming DataFrame."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sqlstream.runtime.worker import Job
from sqlstream.spark.worker import EVENT_TIME, FRAME_SCHEMA, OUTPUT_SCHEMA, Processor, ScanTask

DESCRIPTOR_SCHEMA = "slot INT, scan INT, body STRING"


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
    for number in range(len(job.plan.scans)):
        work = source.filter(F.col("scan") == number)
        task = ScanTask(job, number)
        frames = work.mapInArrow(task, task.schema)
        if number in job.plan.watched:
            frames = frames.withWatermark(EVENT_TIME, "0 seconds")
        # The watermark column must not reach the operator: Spark would drop frames by it.
        scans.append(frames.drop(EVENT_TIME))
    # Each level is read by the next one alone: Spark would compute again what two of them read.
    rows = reduce(DataFrame.union, scans)
    for level in range(len(job.plan.levels)):
        schema = OUTPUT_SCHEMA if level == len(job.plan.levels) - 1 else FRAME_SCHEMA
        processor = Processor(job, level)
        rows = rows.groupBy("bucket").transformWithStateInPandas(processor, schema, "Append", "EventTime")
    return rows
