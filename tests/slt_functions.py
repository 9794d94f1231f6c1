"""Python functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import udf
from tests.slt_aggregate_functions import AGGREGATE_FUNCTIONS
from tests.slt_aggregating_functions import AGGREGATING_FUNCTIONS
from tests.slt_broadcast_functions import BROADCAST_FUNCTIONS
from tests.slt_changing_process_functions import CHANGING_PROCESS_FUNCTIONS
from tests.slt_process_functions import PROCESS_FUNCTIONS
from tests.slt_table_functions import TABLE_FUNCTIONS
from tests.slt_vectorized_process_functions import VECTORIZED_PROCESS_FUNCTIONS


def double(x: int) -> int:
    return 2 * x


def or_else(x: str | None, otherwise: str) -> str:
    return otherwise if x is None else x


def reciprocal(x: int) -> float:
    return 1 / x


def hour_of(ts: datetime) -> int:
    return ts.hour


def words(text: str) -> list[str]:
    return text.split()


@udf(vectorized=True)
def clipped(x: pa.Int64Array, low: pa.Int64Array = 0, high: pa.Int64Array = 10) -> pa.Int64Array:
    return pc.max_element_wise(pc.min_element_wise(x, high, skip_nulls=False), low, skip_nulls=False)


@udf(deterministic=False)
def changing(x: int) -> int:
    return x


class Prefixed:
    def open(self) -> None:
        self.prefix = "p-"

    def __call__(self, text: str, suffix: str = "") -> str:
        return self.prefix + text + suffix


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    double,
    or_else,
    reciprocal,
    hour_of,
    words,
    clipped,
    changing,
    Prefixed,
    *BROADCAST_FUNCTIONS,
    *PROCESS_FUNCTIONS,
    *CHANGING_PROCESS_FUNCTIONS,
    *VECTORIZED_PROCESS_FUNCTIONS,
    *TABLE_FUNCTIONS,
    *AGGREGATE_FUNCTIONS,
    *AGGREGATING_FUNCTIONS,
)
