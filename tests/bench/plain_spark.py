"""Plain Structured Streaming with its built-in operators, at its best settings that we know of."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.bench.data import COLUMNS, DELAY_SECONDS
from tests.bench.work import OUTPUT, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HEAP_STORE, ROCKSDB_STORE = "Spark, heap store", "Spark, RocksDB store"
STORES = (HEAP_STORE, ROCKSDB_STORE)

_STATE = "org.apache.spark.sql.execution.streaming.state"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    # As our segments: faster to write than the default (Snappy, with dictionaries), and than with either alone.
    "spark.sql.parquet.compression.codec": "lz4_raw",
    "spark.hadoop.parquet.enable.dictionary": "false",
    # Rows of a session meet before the shuffle already: measured to be faster for few keys and for many.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
HEAP = {"spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider"}


def session(cores: int, *, rocksdb: bool, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Start Spark on so many cores, with as many shuffle partitions, and with further settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]")
    every = {**SETTINGS, **(ROCKSDB if rocksdb else HEAP), "spark.sql.shuffle.partitions": str(cores), **settings}
    for name, value in every.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, work: Work, data: str, files: int, folder: Path, **trigger: bool) -> StreamingQuery:
    schema = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    bids: DataFrame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(data)
    if work.windowed:
        bids = bids.withWatermark("ts", f"{DELAY_SECONDS} seconds")
    writer = work.frame(bids).writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start(str(folder / OUTPUT))


def run(work: Work, data: str, files_per_batch: int, cores: int, folder: Path, *, rocksdb: bool) -> None:
    """Run the work over all files, `files_per_batch` in a batch, into Parquet files with Spark's exactly-once sink."""
    spark = session(cores, rocksdb=rocksdb)
    _start(spark, work, data, files_per_batch, folder, availableNow=True).awaitTermination()
    spark.stop()


@contextmanager
def running(work: Work, data: str, files_per_batch: int, cores: int, folder: Path, *, rocksdb: bool) -> Iterator[None]:
    """Run the work over files that arrive meanwhile."""
    spark = session(cores, rocksdb=rocksdb)
    query = _start(spark, work, data, files_per_batch, folder)
    yield
    query.stop()
    spark.stop()
