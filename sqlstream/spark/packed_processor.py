"""A processor that stays pickled until there are rows.

When a query starts, Spark asks the processor for its state variables in a separate Python process, which does nothing else.
Unpickling the job there would import DuckDB, Arrow and pandas: 0.8 s of a core for each level of operators. So this module
imports none of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

    from sqlstream.spark.worker import Processor


class PackedProcessor(StatefulProcessor):
    """Declares the state variable of a processor, and unpickles it for its first row or timer."""

    def __init__(self, processor: Processor):
        self._packed = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]
        self._unpacked: Processor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle, self._manifests = handle, handle.getValueState("manifests", "json STRING")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        return self._processor().handle_rows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: tuple[int], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        return self._processor().handle_timer(key, timerValues)

    def close(self) -> None:
        pass

    def _processor(self) -> Processor:
        if self._unpacked is None:
            self._unpacked = pickle.loads(self._packed)
            self._unpacked.open(self._handle, self._manifests)
        return self._unpacked
