"""The physical plan: three kinds of things, nothing else.

A *fragment* is everything stateless between two exchanges, as DuckDB SQL. An *exchange* sends its rows, in frames, to the
bucket that the hash of the key columns picks. A *stateful stage* is an operator over one bucket, and the fragment after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlstream.catalog import Column, Table
from sqlstream.duck.key_hash import in_version
from sqlstream.duck.sql import Rows
from sqlstream.errors import Span
from sqlstream.logical.plan.node import WindowColumns
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.operators.operator import Operator, Port
from sqlstream.storage.zsets import VERSION_COLUMN, WEIGHT_COLUMN, upserts, zset
from sqlstream.units import NO_TIME, Duration
from sqlstream.warehouse.declarations import Remembered, TableDeclaration


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where rows go next: the stage (by its place in the plan), the columns whose hash picks the bucket, a port per part.

    With `broadcast` they go to every bucket.
    """

    stage: int
    keys: tuple[Column, ...]
    ports: tuple[tuple[str, int], ...]
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows that are looked up in a lookup table, for those of `rows`: a SELECT over `_input`, or over earlier lookups.

    `keys` are the columns that it ends with, each with the one of the table where its values are looked up. The rows are known
    as `_before_<n>` then, and what was found, with the table's columns, as `_found_<n>`.
    """

    table: Table
    rows: str
    keys: tuple[tuple[str, str], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Stateless work: `rows` is a SELECT over `_input`, or what was looked up; each part, by name, is a SELECT over `_rows`.

    With several parts `rows` is computed once. Without an exchange the one part is what a sink stores, which `sink` names by its
    place in the plan. Behind an operator, `output` is which of its side outputs `_input` is, empty for its result.
    """

    rows: str
    parts: tuple[tuple[str, str], ...]
    exchange: Exchange | None
    sink: int = 0
    lookups: tuple[Lookup, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True)
class ScanStage:
    """Reads splits of a table and runs fragments over them.

    `columns` is a SELECT over `_input` that adds the computed columns; rows whose `time_column` is NULL are dropped and
    counted; `watermark` is an expression over those columns. `by_clock` says that it is the batch's time. Where the table has
    `changes`, rows say what they do: with weights, where all updates have their rows before and after ("whole"), else with
    their place, for an operator that keeps the last row of each key ("keyed"). `numbered` is as `columns`, with each row's number
    in its file. `errors` is the place in the plan of the sink that keeps malformed rows. Where the source `has_partitions`,
    each with a watermark of its own, rows say theirs; with `has_watermarks` the source says how far they are, not `watermark`.
    """

    name: str
    table: Table
    columns: str
    time_column: str | None
    watermark: str | None
    fragments: tuple[Fragment, ...]
    by_clock: bool = False
    changes: Literal["whole", "keyed"] | None = None
    numbered: str = ""
    errors: int | None = None
    has_partitions: bool = False
    has_watermarks: bool = False

    @property
    def has_instants(self) -> bool:
        """Whether the time column holds instants, which are shown in the zone of the job."""
        kinds = {c.name: c.type for c in self.table.columns}
        return self.time_column is not None and kinds.get(self.time_column) == "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True, slots=True)
class StateView:
    """A view of an operator's state beside that of its result: its name, its rows over the state tables, and what to know."""

    name: str
    rows: Rows
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResultWindows:
    """The windows that a result is of: their bounds' columns, how long after its end each changes, whether they `grow`."""

    columns: WindowColumns
    lateness: Duration = NO_TIME
    grow: bool = False


@dataclass(frozen=True, slots=True)
class StatefulStage:
    """A stateful operator and the fragment that its changes go through; `time_column` is the time attribute of those.

    `view` is the current result over the state tables, `count_sql` the SELECT of the number of open windows. `unique` are columns
    that tell its rows apart, where that is known. With `fires_timers` it asks to be called at processing times. Its watermark
    is `delay` behind the job's: so late its rows come. The `opening` fragments make rows, of one row of any
    kind, that come with the first batch before all others.
    """

    name: str
    operator: Operator
    ports: tuple[Port, ...]
    fragments: tuple[Fragment, ...]
    key_columns: tuple[str, ...]
    view: Rows
    count_sql: str
    bound: str
    hash_columns: tuple[str, ...]
    time_column: str | None = None
    unique: tuple[str, ...] = ()
    fires_timers: bool = False
    more_views: tuple[StateView, ...] = ()
    delay: Duration = NO_TIME
    # What it computes; workers have no use for it.
    node: Stateful | None = field(default=None, compare=False, repr=False)
    opening: tuple[Fragment, ...] = ()
    # What a time to live forgets of its state, or would.
    remembered: tuple[Remembered, ...] = ()
    # The windows of time that its result is of.
    windows: ResultWindows | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What becomes of the rows: the table they go to, and the names and types that it stores.

    With `changing`, rows have weights; `keys` are columns that tell rows apart, where that is known. With an `order`, columns
    behind the others say which of several rows of a key, in a batch, is the last one. With `malformed` they are no results, but
    what scans could not read.
    """

    table: Table
    columns: tuple[tuple[str, str], ...]
    limit: int | None = None
    changing: bool = False
    keys: tuple[str, ...] = ()
    order: tuple[Column, ...] = ()
    malformed: bool = False

    @property
    def upserts(self) -> bool:
        """Whether the last change of a key says what its row is: the keys are among the table's PRIMARY KEY."""
        keyed = bool(self.order) or (bool(self.keys) and set(self.keys) <= set(self.table.primary_key))
        return self.changing and keyed and self.table.connector is None

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the rows on their way to the sink."""
        columns = tuple(Column(name, type) for name, type in self.columns)
        if not self.changing:
            return columns
        return (*columns, *self.order, *([VERSION_COLUMN] if self.upserts else ()), WEIGHT_COLUMN)

    @property
    def declaration(self) -> TableDeclaration:
        """How a table of the warehouse keeps the rows."""
        name, columns = self.table.name, tuple(Column(name, type) for name, type in self.columns)
        if self.upserts:
            return upserts(name, columns, self.table.primary_key, self.order)
        return zset(name, columns) if self.changing else TableDeclaration(name, columns)

    @property
    def kind(self) -> str:
        return self.table.connector or "table"


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A job: scans, then stateful stages in an order in which every stage comes after those that feed it, then sinks.

    `asks_watermark`: what is done to the rows of scans can depend on the watermark before the batch.
    """

    scans: tuple[ScanStage, ...]
    stages: tuple[StatefulStage, ...]
    sinks: tuple[SinkPlan, ...]
    asks_watermark: bool = False

    @property
    def opens(self) -> bool:
        """Whether something is known before there is a row: a first batch is worth it."""
        return any(stage.opening for stage in self.stages)

    @property
    def watched(self) -> tuple[int, ...]:
        """The scans whose watermarks make that of the job; it has one if it keeps state, or asks for it."""
        if not self.stages and not self.asks_watermark:
            return ()
        return tuple(i for i, s in enumerate(self.scans) if s.watermark is not None)

    def feeding(self, stage: int | None) -> Iterator[tuple[ScanStage | StatefulStage, Fragment]]:
        """Yield the scans and stages whose rows go to a stage (None: to a sink), with the fragments that take them there."""
        nodes: list[ScanStage | StatefulStage] = [*self.scans, *self.stages]
        for node in nodes:
            for fragment in node.fragments:
                exchange = fragment.exchange
                if (exchange.stage if exchange else None) == stage:
                    yield node, fragment

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The stages by their distance from the scans: those of a level have all their input from levels before it."""
        depth: list[int] = []
        places = {stage.name: i for i, stage in enumerate(self.stages)}
        for number in range(len(self.stages)):
            below = [node for node, _ in self.feeding(number) if isinstance(node, StatefulStage)]
            depth.append(1 + max((depth[places[node.name]] for node in below), default=-1))
        return tuple(tuple(i for i, d in enumerate(depth) if d == level) for level in range(max(depth, default=-1) + 1))


def hashing(plan: PhysicalPlan, version: int) -> PhysicalPlan:
    """Return a plan whose exchanges hash keys as the jobs of a version do (see `duck/key_hash.py`)."""

    def changed(fragments: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
        return tuple(
            f
            if f.exchange is None
            else replace(f, exchange=replace(f.exchange, keys=in_version(f.exchange.keys, version)))
            for f in fragments
        )

    return replace(
        plan,
        scans=tuple(replace(scan, fragments=changed(scan.fragments)) for scan in plan.scans),
        stages=tuple(
            replace(stage, fragments=changed(stage.fragments), opening=changed(stage.opening)) for stage in plan.stages
        ),
    )
