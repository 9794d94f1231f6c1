"""What a stateful operator is: the contract between planning, running and state queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.key_hash import hashed_type
from sqlstream.duck.sql import Rows
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.declarations import Remembered, TableDeclaration


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of one batch: its number, its watermark (None before the first), its processing time."""

    batch: int
    watermark: EventTime | None
    time: ProcessingTime


@dataclass(frozen=True, slots=True)
class Port:
    """An input of an operator: the part of the rows that arrives there, and whether they can be late."""

    part: str
    on_time: bool


# What has arrived: rows, or a segment that was written into the bucket's directory.
Inputs: TypeAlias = Iterable[tuple[Port, pa.Table | Segment]]


# Columns of state by table, for names of what they hold.
Holds: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of a further output of an operator, which has a name."""

    output: str
    rows: pa.RecordBatch


class Operator(ABC):
    """A stateful operator over one bucket of keys: everything that planning, running and looking at it asks for.

    It gives the same bag of rows for any order of its input, and does nothing when nothing is due.
    """

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is called where the query gives it no name."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, str]:
        """Its inputs by name: what the fragment before the exchange computes from `_rows`, in the form in which it is stored."""

    @property
    @abstractmethod
    def hash_columns(self) -> tuple[str, ...]:
        """The columns of every part whose hash picks the bucket; without any, all rows meet in one."""

    @property
    def hashed(self) -> tuple[Column, ...]:
        """The hash columns with the types by which they are hashed, as rows travel and are stored."""
        types = {c.name: hashed_type(c.type) for table in self.tables for c in table.columns}
        return tuple(Column(name, types[name]) for name in self.hash_columns)

    def hashed_of(self, parts: Collection[str]) -> tuple[Column, ...]:
        """The hash columns of rows that come as some of its parts, together."""
        return self.hashed

    @property
    def broadcast(self) -> frozenset[str]:
        """The parts whose rows go to every bucket."""
        return frozenset()

    @property
    @abstractmethod
    def tables(self) -> tuple[TableDeclaration, ...]:
        """Its state."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the rows that `step` yields, before those that are stored as text are read."""

    @property
    def side_outputs(self) -> Mapping[str, tuple[Column, ...]]:
        """The columns of its further outputs, by their names, as `outputs`."""
        return {}

    @abstractmethod
    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Advance by one batch; yield rows for the next stage as they are computed.

        An input is rows, or a segment that was written into the bucket's directory for it. Once the result is exhausted, the
        operator has set its timers: `state.event_timer`, the event time at which it wants to be called again, and
        `state.processing_timer`, the processing time.
        """

    @abstractmethod
    def current(self, relations: Mapping[str, str], watermark: str) -> str:
        """Return the SELECT of the current result, given FROM-able SQL of the state tables by name, and the SQL of the watermark.

        The watermark is a number of microseconds, NULL before the first one.
        """

    @property
    def viewed(self) -> tuple[Column, ...] | None:
        """The columns of `current`, where they are not those of the result."""
        return None

    @property
    def accumulators(self) -> tuple[Column, ...]:
        """The columns that `current` has behind those of the result: what is kept of users' aggregate functions."""
        return ()

    @property
    def manner(self) -> str:
        """How its results follow from its input, in words, where planning had a choice."""
        return ""

    @property
    def key_times(self) -> tuple[Column, ...]:
        """The columns that `current` has behind those of the result: when a key was touched, and when it is forgotten."""
        return ()

    @property
    def opening(self) -> Mapping[str, str]:
        """The rows that arrive with the first batch before all others, by their part: a SELECT of rows as they arrive."""
        return {}

    @property
    def remembered(self) -> tuple[Remembered, ...]:
        """The parts of the state that a time to live bounds, or would bound; planning knows whether the query may have one."""
        return ()

    @property
    def holds(self) -> Holds:
        """The columns of state, by table, that hold each column, call or state of the operator, by its name.

        What is computed of others when it is asked for is not there. Keys are the `hash_columns`.
        """
        return {}

    def release(self) -> None:
        """Give back what this process keeps open for the operator: the job is done."""
        return

    def open_windows(self, relations: Mapping[str, str], watermark: str) -> str:
        """Return the SELECT of how many windows are open, an empty text where there are none."""
        return ""

    def side_views(self, relations: Mapping[str, str], watermark: str) -> tuple[Rows, ...]:
        """Return the views of what is kept of each of several inputs."""
        return ()

    def late_view(self, name: str) -> Rows | None:
        """Return the view of the rows that were dropped as late by the operator of this name, None when they are not kept."""
        return None
