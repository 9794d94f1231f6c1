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
    arriving: dict[int | None, list[DataFrame]] = {}
    for number, scan in enumerate(job.plan.scans):
        work = source.filter(F.col("scan") == number)
        exchange = scan.fragment.exchange
        if exchange is None:
            arriving.setdefault(None, []).append(work.mapInArrow(ScanTask(job, number), OUTPUT_SCHEMA))
            continue
        frames = work.mapInArrow(ScanTask(job, number), SCAN_SCHEMA)
        # The watermark column must not reach the operator: Spark would drop frames by it.
        frames = frames.withWatermark("event_time", "0 seconds").select(*_FRAME)
        arriving.setdefault(exchange.stage, []).append(frames)
    for number, stage in enumerate(job.plan.stages):
        frames = reduce(DataFrame.union, arriving.pop(number))
        exchange = stage.fragment.exchange
        after = frames.groupBy("bucket").transformWithStateInPandas(
            Processor(job, number), FRAME_SCHEMA if exchange else OUTPUT_SCHEMA, "Append", "EventTime"
        )
        arriving.setdefault(exchange.stage if exchange else None, []).append(after)
    return reduce(DataFrame.union, arriving[None])
