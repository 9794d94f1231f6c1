"""A checkpoint that was moved or copied: Spark's own files in it that name it by its path.

Only the metadata of its stateful operators do: they name the files that hold the schemas of their state.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths


def settle(spark: SparkSession, fs: Filesystem, job: JobPaths) -> None:
    """Make a checkpoint name its own files, wherever it is now, and none of the place that it came from."""
    state = f"{job.checkpoint}/state"
    operators = [f"{state}/{name}" for name in fs.list(state)]
    here = _qualified(spark, state) if operators else ""
    for operator in operators:
        metadata = f"{operator}/_metadata/v2"
        for name in fs.list(metadata):
            path = f"{metadata}/{name}"
            before = fs.read_text(path)
            after = _settled(before, f"{here}/{operator.rpartition('/')[2]}")
            if after != before:
                # Spark would miss the checksum of what it wrote, not one that is not there.
                fs.delete(f"{metadata}/.{name}.crc")
                fs.write_text_atomic(path, after)


def _settled(text: str, operator: str) -> str:
    """Return an operator's metadata with the paths of its schemas below its own folder."""
    version, _, body = text.partition("\n")
    value = json.loads(body)
    for store in value["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = [
            "/".join([operator, *path.rsplit("/", 3)[1:]]) for path in store["stateSchemaFilePaths"]
        ]
    return f"{version}\n{json.dumps(value, separators=(',', ':'))}"


def _qualified(spark: SparkSession, path: str) -> str:
    """Return a path as Spark writes it."""
    assert spark._jvm is not None
    found = spark._jvm.org.apache.hadoop.fs.Path(path)
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    return str(found.getFileSystem(configuration).makeQualified(found).toString())
