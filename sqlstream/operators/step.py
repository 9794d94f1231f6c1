"""What an operator is given for one batch, and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.state.bucket import Bucket
from sqlstream.state.segments import Segment
from sqlstream.warehouse.declarations import TableDeclaration


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of one batch: its number, its watermark (microseconds; None before the first), its processing time (ms)."""

    batch: int
    watermark: int | None
    time: int


@dataclass(frozen=True, slots=True)
class Port:
    """An input of an operator: the part of the rows that arrives there, and whether they can be late."""

    part: str
    on_time: bool


# What has arrived: rows, or a segment that was written into the bucket's directory.
Inputs: TypeAlias = Iterable[tuple[Port, pa.Table | Segment]]


class Operator(Protocol):
    """A stateful operator over one bucket of keys.

    It must give the same bag of rows for any order of its input, and does nothing when nothing is due. An input is rows, or a
    segment that was written into the bucket's directory for it. `step` yields rows
    for the next stage as they are computed; once it is exhausted, `state.wake_at` is the event time (microseconds) at which
    the operator wants to be called again, and `state.ring_at` the processing time (milliseconds).
    """

    @property
    def kind(self) -> str: ...

    @property
    def tables(self) -> tuple[TableDeclaration, ...]: ...

    @property
    def outputs(self) -> tuple[Column, ...]: ...

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]: ...

    def current(self, relations: Mapping[str, str], watermark: str) -> str: ...
