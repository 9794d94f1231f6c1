"""Spark's Python workers as the workers of a sink whose parts are written in parallel."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from sqlstream.connectors.worker_calls import answer, answers
from sqlstream.errors import JobError
from sqlstream.secrets import masked

T = TypeVar("T")

_SCHEMA = "number INT, answer BINARY"


class SinkCalls:
    """Makes one of several pickled calls in a task (mapInArrow): the task's row is the number of the call."""

    def __init__(self, calls: Sequence[bytes]):
        self._calls = calls

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [pa.array([number], pa.int32()), pa.array([answer(self._calls[number])], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["number", "answer"])


class SparkWorkers:
    """Runs each call in a task of a Spark job. Spark gives a task to any worker, and retries it if the worker dies."""

    def __init__(self, spark: SparkSession):
        self._spark = spark

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        tasks = SinkCalls([pickle.dumps(call) for call in calls])
        try:
            rows = self._spark.range(0, len(calls), 1, len(calls)).mapInArrow(tasks, _SCHEMA).collect()
        except Exception as error:
            lines = masked(str(error)).strip().splitlines() or [type(error).__name__]
            raise JobError(f"a task that writes rows has failed: {lines[0][:300]}") from error
        answers_by_number = {row.number: bytes(row.answer) for row in rows}
        return answers([answers_by_number[number] for number in range(len(calls))])

    def close(self) -> None:
        """Does nothing: the workers are shared by all jobs."""
