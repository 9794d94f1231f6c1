"""The only source of a job's query: descriptors, one per micro-batch. Its offsets are their sequence numbers.

Spark's MemoryStream keeps nothing on disk, so a batch costs no listing and no log of its own. After a restart a new stream gets
the descriptors that the feed has written and no committed batch has read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

# The only column: the lines of a descriptor that one task reads.
LINES = "value"


class DescriptorSource:
    """Adds descriptors to Spark's stream, one at a time. They are numbered from 0, from the first that a run offers.

    A batch takes all descriptors that the stream has when Spark begins it. So the next descriptor is shown, that is added to the
    stream, only when Spark has recorded that a batch reads the one before. Then a repeated batch reads the same descriptor.
    """

    def __init__(self, spark: SparkSession, partitions: int):
        self._spark = spark
        assert spark._jvm is not None
        self._jvm: Any = spark._jvm
        runtime = self._jvm.org.apache.spark.sql.execution.streaming.runtime
        some = self._jvm.scala.Some(partitions)
        encoder = self._jvm.org.apache.spark.sql.Encoders.STRING()
        self._stream = runtime.MemoryStream(0, spark._jsparkSession, some, encoder)
        self._lock = threading.Lock()
        self.shown = self._fixed = -1
        self._held = False
        self._waiting: deque[Sequence[str]] = deque()

    def frame(self) -> DataFrame:
        """Return the stream as a DataFrame: one partition per task, with one row that holds the task's lines."""
        return DataFrame(self._stream.toDF(), self._spark)

    def offer(self, tasks: Sequence[str]) -> None:
        """Add the next descriptor: for each partition the lines of its task."""
        with self._lock:
            self._waiting.append(tasks)
            self._show()

    def fix(self, sequence: int) -> None:
        """Record that a batch has begun which reads up to this descriptor; the next one can be shown."""
        with self._lock:
            self._fixed = sequence
            self._show()

    def hold(self) -> None:
        """Add no further descriptor to the stream: Spark waits after the one numbered `shown`."""
        with self._lock:
            self._held = True

    def _show(self) -> None:
        if self._waiting and self._fixed >= self.shown and not self._held:
            rows = self._jvm.java.util.ArrayList()
            for lines in self._waiting.popleft():
                rows.add(lines)
            # Row i of a descriptor is in partition i: there are as many rows as partitions.
            self._stream.addData(self._jvm.PythonUtils.toSeq(rows))
            self.shown += 1
