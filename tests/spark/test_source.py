"""The stream of descriptors on Spark: one to a batch, and nothing that grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sqlstream.spark.offsets import logged_offsets
from sqlstream.spark.source import DescriptorSource

pytestmark = [pytest.mark.spark, pytest.mark.slow]


# As few as Spark may keep, so that a short run shows what stays.
CONF = {"spark.sql.streaming.minBatchesToRetain": "10", "spark.sql.streaming.asyncLogPurge.enabled": "false"}


@pytest.fixture
def spark(shared_jvm: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    session = shared_jvm()
    for name, value in CONF.items():
        session.conf.set(name, value)
    yield session
    for name in CONF:
        session.conf.unset(name)


def tasks(number: int) -> list[str]:
    return [f"{number} for the first", f"{number} for the second"]


class Runs:
    """Runs of a query over the stream; `seen` are its batches: their numbers in all runs, and the rows by partition."""

    def __init__(self, spark: SparkSession, root: Path):
        self.spark, self.root = spark, root
        self.seen: list[tuple[int, list[str]]] = []
        self.checkpoint = ""

    def run(self, last: int, *, dies_in: int | None = None, held_in: int | None = None) -> DescriptorSource:
        """Go on with the descriptors up to the last one, all of which wait from the start."""
        source, base = DescriptorSource(self.spark, 2), len(self.seen)
        self.checkpoint = str(self.root / f"from-{base}-to-{last}-{dies_in}")
        for number in range(base, last + 1):
            source.offer(tasks(number))

        def commit(frame: DataFrame, batch: int) -> None:
            if base + batch == held_in:
                source.hold()
            assert logged_offsets(self.checkpoint, batch).sequence == batch
            source.fix(batch)
            rows = frame.select("value", F.spark_partition_id().alias("place")).collect()
            assert base + batch != dies_in
            self.seen.append((base + batch, [row.value for row in sorted(rows, key=lambda row: row.place)]))

        query = source.frame().writeStream.foreachBatch(commit)
        running = query.option("checkpointLocation", self.checkpoint).start()
        try:
            running.processAllAvailable()
        finally:
            running.stop()
        return source


def test_a_batch_is_one_descriptor_also_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    with pytest.raises(StreamingQueryException):
        runs.run(4, dies_in=2)
    runs.run(4)
    assert runs.seen == [(number, tasks(number)) for number in range(5)]
    # Nothing is new: a restart does nothing, and what comes then goes on in order, also after a stop.
    runs.run(4)
    assert runs.run(40, held_in=7).shown == 2
    assert [batch for batch, _ in runs.seen] == list(range(8))
    source = runs.run(40)
    assert runs.seen == [(number, tasks(number)) for number in range(41)]
    assert source._stream.batches().size() <= 1, "what was read stays in memory"


@pytest.mark.thorough
def test_nothing_grows_with_the_number_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    runs.run(79)
    found = {path.name for path in Path(runs.checkpoint).iterdir() if not path.name.startswith(".")}
    assert found == {"metadata", "offsets", "commits"}
    for folder in ("offsets", "commits"):
        assert len([n for n in os.listdir(f"{runs.checkpoint}/{folder}") if n.isdigit()]) <= 12
