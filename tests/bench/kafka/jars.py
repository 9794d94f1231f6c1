"""The jars with which Spark and Flink read Kafka, from Maven's repository, kept in the user's cache.

Spark's connector for 4.3 is not there; that of 4.2 works with it.
"""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

from tests.kafka_broker import REPOSITORY, cache_folder

_SPARK = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.2.0/spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)
_FLINK = ("org/apache/flink/flink-sql-connector-kafka/5.0.0-2.2/flink-sql-connector-kafka-5.0.0-2.2.jar",)


def spark_jars() -> list[str]:
    """Return the paths of Spark's jars."""
    return [_fetched(path) for path in _SPARK]


def flink_jars() -> list[str]:
    """Return the paths of Flink's."""
    return [_fetched(path) for path in _FLINK]


def _fetched(path: str) -> str:
    target = cache_folder() / "bench" / Path(path).name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}.tmp")
        urllib.request.urlretrieve(f"{REPOSITORY}/{path}", partial)
        partial.rename(target)
    return str(target)
