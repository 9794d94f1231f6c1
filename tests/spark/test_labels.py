"""Labels that Spark spreads evenly: our murmur3 is Spark's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sqlstream.runtime.labels import partition_of, spread_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("partitions", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_labels_are_distinct_and_spread(count: int, partitions: int) -> None:
    labels = spread_labels(count, partitions)
    assert len(set(labels)) == count
    assert [partition_of(label, partitions) for label in labels] == [n % partitions for n in range(count)]
    load = Counter(partition_of(label, partitions) for label in labels)
    assert max(load.values()) - min(load.values() if len(load) == partitions else [0]) <= 1


@pytest.mark.spark
@pytest.mark.slow
def test_a_partition_is_where_spark_puts_it(shared_jvm: Callable[[], SparkSession]) -> None:
    spark = shared_jvm()
    hashes = "id", *(f"pmod(hash(cast(id AS INT)), {n}) AS p{n}" for n in (2, 3, 7, 16))
    for row in spark.range(-50, 300).selectExpr(*hashes).collect():
        for n in (2, 3, 7, 16):
            assert row[f"p{n}"] == partition_of(row["id"], n)
    # HashPartitioning hashes with the same seed.
    placed = (
        spark.range(100)
        .selectExpr("cast(id AS INT) AS id")
        .repartition(7, "id")
        .selectExpr("id", "spark_partition_id() AS p")
    )
    assert all(row["p"] == partition_of(row["id"], 7) for row in placed.collect())
