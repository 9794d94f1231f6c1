"""The interface of stateful operators, which planning, running and state queries share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.key_hash import hashed_type
from sqlstream.duck.sql import Relations, Rows, Select
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The number of a batch, the operator's watermark in it (None: there is none yet), and the processing time of the batch."""

    batch: int
    watermark: EventTime | None
    time: ProcessingTime


@dataclass(frozen=True, slots=True)
class Port:
    """A path of rows into an operator. Its rows go to the input `part` (see `Operator.parts`); with `never_late` none is late."""

    part: str
    never_late: bool


# The rows of a batch by port: a table encoded as stored, or a segment that was already written into the bucket's directory.
Inputs: TypeAlias = Iterable[tuple[Port, pa.Table | Segment]]


# The state columns of each column, call or state of an operator: by its name, then by table.
Holds: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of a side output, with the name of the output."""

    output: str
    rows: pa.RecordBatch


class Operator(ABC):
    """A stateful operator, which is planned once and runs over one bucket of keys at a time.

    The rows that a batch emits are the same multiset for any order of its input. A step without input, in which nothing is due,
    does nothing.
    """

    @property
    @abstractmethod
    def kind(self) -> str:
        """The operator's name, such as `join`, where the query gives it none; a number is appended."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, Select]:
        """The inputs by name: for each the SELECT over `_rows` that the fragment before the exchange runs.

        Its columns have the types and the encoding in which rows travel and are stored.
        """

    @property
    @abstractmethod
    def hash_columns(self) -> tuple[str, ...]:
        """The columns, of all parts but broadcast ones, whose hash picks the bucket; without any, one bucket has all rows."""

    @property
    def hashed(self) -> tuple[Column, ...]:
        """The hash columns, with the types by which their values are hashed."""
        types = {c.name: hashed_type(c.type) for table in self.tables for c in table.columns}
        return tuple(Column(name, types[name]) for name in self.hash_columns)

    def hashed_of(self, parts: Collection[str]) -> tuple[Column, ...]:
        """Return the columns to hash for a fragment that feeds these parts; they must be columns of all of them."""
        return self.hashed

    @property
    def broadcast(self) -> frozenset[str]:
        """The names of the parts whose rows go to every bucket."""
        return frozenset()

    @property
    @abstractmethod
    def tables(self) -> tuple[TableDeclaration, ...]:
        """The declarations of the state tables."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the record batches that `step` yields, with their SQL types; the values are encoded as stored."""

    @property
    def side_outputs(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns of the side outputs, as in `outputs`, by the name of the output."""
        return {}

    @abstractmethod
    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Advance a bucket by one batch, and yield the emitted rows as they are computed.

        The caller commits `state`, the bucket, after it has exhausted the iterator; before that the state is incomplete. By then
        the operator has set its timers: it must run again when the watermark reaches `state.event_timer`, or the clock
        `state.processing_timer` (None: no need).
        """

    @abstractmethod
    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the operator's state view.

        `relations` read the state tables. `watermark` is the SQL of the operator's watermark, a BIGINT of microseconds; while
        there is none, it is earlier than any event time. The columns are the result's, then `accumulators`, then `key_times`,
        unless `viewed` says otherwise.
        """

    @property
    def viewed(self) -> tuple[Column, ...] | None:
        """All columns of `current`; None: the result's columns, `accumulators`, then `key_times`."""
        return None

    @property
    def accumulators(self) -> tuple[Column, ...]:
        """The columns that `current` adds to the result's: the accumulators of users' aggregate functions."""
        return ()

    @property
    def manner(self) -> str:
        """How the operator updates its results, in words for EXPLAIN, if planning had a choice; else empty."""
        return ""

    @property
    def key_times(self) -> tuple[Column, ...]:
        """The columns that `current` adds to the result's: when a key was updated, and when it expires."""
        return ()

    @property
    def opening(self) -> Mapping[str, Select]:
        """Initial rows, such as the zero of a COUNT without keys, by part: they arrive before all others."""
        return {}

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        """The parts of the state that a time to live bounds, or could bound; planning decides whether the query may have one."""
        return ()

    @property
    def holds(self) -> Holds:
        """Map the name of each column, call or state of the operator to the state columns that store it, by table.

        Names whose values are computed on read from other columns are left out; so are keys, which are the `hash_columns`.
        """
        return {}

    def release(self) -> None:
        """Close what this process holds open for the operator, once the job has ended."""
        return

    def open_windows(self, relations: Relations, watermark: str) -> Select:
        """Return the number of open windows, one row; an empty text if the operator has no windows.

        The arguments are as for `current`.
        """
        return Select("")

    def side_views(self, relations: Relations, watermark: str) -> tuple[Rows, ...]:
        """Return a view for each input of a join, in their order: its rows in state. The arguments are as for `current`."""
        return ()

    def late_view(self, name: str) -> Rows | None:
        """Return the view of the dropped late rows that are in state; None if the operator keeps none.

        `name` is the operator's name, the value of the column `_operator`.
        """
        return None
