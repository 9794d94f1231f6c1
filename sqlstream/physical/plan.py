"""The physical plan: fragments, exchanges and stateful stages.

A *fragment* is everything stateless between two exchanges, as DuckDB SQL. An *exchange* sends its rows, in frames, to the
bucket that the hash of the key columns picks. A *stateful stage* is an operator over one bucket, and the fragments after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from sqlstream.catalog import Column, Table
from sqlstream.duck.key_hash import in_version
from sqlstream.duck.sql import Rows, Select
from sqlstream.errors import Span
from sqlstream.logical.plan.node import WindowColumns
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.tables import Scan
from sqlstream.operators.operator import Operator, Port
from sqlstream.secrets import shown
from sqlstream.storage.zsets import VERSION_COLUMN, WEIGHT_COLUMN, upserts, zset
from sqlstream.units import NO_TIME, Duration
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration
from sqlstream.warehouse.jobs import THE_CLOCK

_NO_SELECT = Select("")
# The index of the clock among the scans, for operators that go by processing time in a job that also goes by event time.
CLOCK = -1


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where the rows of a fragment go next: to the stage with the index `stage` in the plan's `stages`.

    The hash of the columns `keys` picks the bucket. `ports` maps each part of the fragment, by name, to an index in the stage's
    `ports`. With `broadcast` the rows go to every bucket, and there are no `keys`.
    """

    stage: int
    keys: tuple[Column, ...]
    ports: tuple[tuple[str, int], ...]
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup in a lookup table for each row of `rows`, over `_input` or over the tables of earlier lookups.

    `keys` are pairs: a column of `rows`, and the column of the lookup table that must have its value. Lookup number n of a
    fragment leaves two temporary tables: `_before_<n>`, the result of `rows`, and `_found_<n>`, the rows of the lookup table.
    """

    table: Table
    rows: Select
    keys: tuple[tuple[str, str], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Stateless work: `rows` is over `_input`; with `lookups`, over the tables of the last lookup.

    `parts`, with their names, are over `_rows`, the result of `rows`, which is computed once. Without an exchange the only part
    is what the sink with the index `sink` in the plan's `sinks` stores. If the fragment follows an operator, `output` names the
    side output that `_input` is; it is empty for the operator's result.
    """

    rows: Select
    parts: tuple[tuple[str, Select], ...]
    exchange: Exchange | None
    sink: int = 0
    lookups: tuple[Lookup, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True)
class ScanStage:
    """Reads splits of a table and runs fragments over the rows.

    `columns` adds the computed columns to `_input`, the physical columns. Rows whose `time_column` is NULL or infinite are
    dropped and counted, except keyed changes. `watermark` is the SQL of a row's watermark over the result of `columns`; with
    `by_clock` the watermark is the time of the batch. `numbered` is `columns` with the column ROW, each row's number in its file.

    With `changes` the table is a changelog, and each row has the column CHANGE. "whole": updates have a row before and a row
    after, and rows have weights. "keyed": rows have their position in the source (the columns FILE_ORDER), for an operator that
    keeps the last row of each key.

    `unfit` are SELECTs of the column ROW of malformed rows that the job leaves out by itself, over the result of `numbered`.

    `errors` is the index in the plan's `sinks` of the sink that keeps malformed rows. If the source `has_partitions`, each
    partition has its own watermark, and rows have the column PARTITION; with `has_watermarks` the source provides these
    watermarks, in place of `watermark`.
    """

    name: str
    table: Table
    columns: Select
    time_column: str | None
    watermark: str | None
    fragments: tuple[Fragment, ...]
    by_clock: bool = False
    changes: Literal["whole", "keyed"] | None = None
    numbered: Select = _NO_SELECT
    errors: int | None = None
    has_partitions: bool = False
    has_watermarks: bool = False
    unfit: tuple[Select, ...] = ()
    # The node of the logical plan, for the driver only.
    node: Scan | None = field(default=None, compare=False, repr=False)

    @property
    def has_instants(self) -> bool:
        """Whether the time column is a TIMESTAMP WITH TIME ZONE, which is shown in the time zone of the job."""
        kinds = {c.name: c.type for c in self.table.columns}
        return self.time_column is not None and kinds.get(self.time_column) == "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True, slots=True)
class StateView:
    """A further view of an operator's state: its name, its rows over the state tables, and a note for users."""

    name: str
    rows: Rows
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResultWindows:
    """The windows of a windowed result: the columns of their bounds, and how long they take rows after their end.

    Windows `grow` if their end can move while they are open, as for sessions.
    """

    columns: WindowColumns
    lateness: Duration = NO_TIME
    grow: bool = False


@dataclass(frozen=True, slots=True)
class StatefulStage:
    """A stateful operator, and the fragments over the rows that it emits; `time_column` is their time attribute.

    `view` is the current result over the state tables, `count_sql` the number of open windows, empty without windows. `unique`
    are columns that no two rows of the result share; empty if none are known. `hash_columns` pick the bucket. `bound` says in
    words what bounds the state. With `fires_timers` the operator may ask to be called at a processing time.

    `timed_by` are the indexes of the scans whose least watermark is the stage's watermark, or (CLOCK,) if that is processing
    time. The operator sees it reduced by `delay`, because rows of its inputs may be that late; it waits for it only if it
    `reads_time`. With `goes_by_clock` the times that it compares with the watermark are processing times, or bounds of windows
    over these. The `opening` fragments make its initial rows; they run once, before all other rows of the first batch, over an
    `_input` of one row.
    """

    name: str
    operator: Operator
    ports: tuple[Port, ...]
    fragments: tuple[Fragment, ...]
    key_columns: tuple[str, ...]
    view: Rows
    count_sql: Select
    bound: str
    hash_columns: tuple[str, ...]
    time_column: str | None = None
    unique: tuple[str, ...] = ()
    fires_timers: bool = False
    more_views: tuple[StateView, ...] = ()
    delay: Duration = NO_TIME
    # The logical node, for the driver only.
    node: Stateful | None = field(default=None, compare=False, repr=False)
    opening: tuple[Fragment, ...] = ()
    # The parts of the state that a time to live bounds, or could bound.
    remembered: tuple[ExpiringState, ...] = ()
    # The time windows of its result, if any.
    windows: ResultWindows | None = field(default=None, compare=False, repr=False)
    timed_by: tuple[int, ...] = ()
    reads_time: bool = False
    goes_by_clock: bool = False


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A table that the job writes, and the names and types of the columns that it stores.

    The job ends after `limit` rows. With `changing`, rows have weights. `keys` are columns that no two rows share; empty if none
    are known. The columns `order`, after the others, tell which of several rows of a key in a batch is the last. With
    `malformed` the rows are not results, but rows that scans could not read.
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
        """Whether a warehouse table stores only the last change of each PRIMARY KEY.

        It does if the PRIMARY KEY includes `keys`, so that a key has one row at a time, or if changes have an `order`.
        """
        keyed = bool(self.order) or (bool(self.keys) and set(self.keys) <= set(self.table.primary_key))
        return self.changing and keyed and self.table.connector is None

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the rows that the last fragment writes: results, then `order`, version and weight where it has them."""
        columns = tuple(Column(name, type) for name, type in self.columns)
        if not self.changing:
            return columns
        return (*columns, *self.order, *([VERSION_COLUMN] if self.upserts else ()), WEIGHT_COLUMN)

    @property
    def declaration(self) -> TableDeclaration:
        """The declaration of the warehouse table that stores the rows."""
        name, columns = self.table.name, tuple(Column(name, type) for name, type in self.columns)
        if self.upserts:
            return upserts(name, columns, self.table.primary_key, self.order)
        return zset(name, columns) if self.changing else TableDeclaration(name, columns)

    @property
    def kind(self) -> str:
        """The name of the connector, "table" for a warehouse table."""
        return self.table.connector or "table"


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A job: scans, stateful stages, each after all stages that feed it, and sinks.

    `asks_watermark`: expressions may read the watermark before the batch. `watermark_variables` are variables of DuckDB for
    expressions above several inputs, each with the indexes of the scans whose least watermark is its value. Below, an *index* is
    that of a scan in `scans`, or of a stage in `stages`. CLOCK in place of one stands for processing time.
    """

    scans: tuple[ScanStage, ...]
    stages: tuple[StatefulStage, ...]
    sinks: tuple[SinkPlan, ...]
    asks_watermark: bool = False
    watermark_variables: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def opens(self) -> bool:
        """Whether a stage has initial rows, so that a first batch runs before any row has arrived."""
        return any(stage.opening for stage in self.stages)

    @property
    def timed(self) -> tuple[int, ...]:
        """The indexes of the scans that have a watermark; empty if nothing in the job needs one."""
        if not self.stages and not self.asks_watermark:
            return ()
        return tuple(i for i, s in enumerate(self.scans) if s.watermark is not None)

    @property
    def watermark_groups(self) -> tuple[tuple[int, ...], ...]:
        """The sets of scans whose least watermark is the watermark of an operator that reads time, by index, each set once.

        If no operator reads time, the only set has all scans with a watermark.
        """
        return tuple(dict.fromkeys(s.timed_by for s in self.stages if s.reads_time and s.timed_by)) or (self.timed,)

    @property
    def watched(self) -> tuple[int, ...]:
        """The indexes of the scans whose least watermark is the job's watermark: all scans that operators wait for."""
        return tuple(sorted({index for indexes in self.watermark_groups for index in indexes} - {CLOCK})) or self.timed

    @property
    def has_clock(self) -> bool:
        """Whether the watermark of an operator is processing time, while tables of the job have watermarks of their own."""
        return any(indexes == (CLOCK,) for indexes in self.watermark_groups)

    @property
    def has_local_clock(self) -> bool:
        """Whether an operator compares times with processing time as its watermark, which is then a local time of the job's zone.

        For jobs without such an operator processing time as a watermark is in UTC.
        """
        return any(stage.reads_time and stage.goes_by_clock for stage in self.stages)

    def waits_for(self, stage: StatefulStage) -> tuple[str, ...]:
        """Return the names of the scans whose watermarks an operator waits for; none if it does not read time."""
        return self.names(stage.timed_by) if stage.reads_time else ()

    def names(self, indexes: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the scans with these indexes, and THE_CLOCK for CLOCK."""
        return tuple(THE_CLOCK if index == CLOCK else self.scans[index].name for index in indexes)

    @property
    def has_several_watermarks(self) -> bool:
        """Whether operators have different watermarks, because they wait for different scans or for processing time."""
        return len(self.watermark_groups) > 1 or self.has_clock

    @property
    def has_own_watermarks(self) -> bool:
        """Whether an operator or a scan may have another watermark than the least watermark of all scans."""
        differ = any(indexes != self.timed for indexes in self.watermark_groups)
        return differ or (self.asks_watermark and len(self.timed) > 1)

    def index_of(self, scan: Scan) -> int | None:
        """Return the index of a scan of the logical plan, None if the plan has no such scan; for plans with logical nodes only.

        The name of a table does not identify a scan: a table that is read with several sets of options has several scans.
        """
        scan = scan.declared
        # Comparing tables takes longer.
        same = (i for i, stage in enumerate(self.scans) if stage.node is scan)
        alike = (i for i, stage in enumerate(self.scans) if stage.node is not None and stage.node.is_same(scan))
        return next(chain(same, alike), None)

    def options_apart(self, index: int) -> dict[str, str]:
        """Return the options of a scan, by its index, that tell it from the other scans of its table, with secrets masked.

        An option that only others have is empty.
        """
        own = self.scans[index].table
        others = [s.table.options for i, s in enumerate(self.scans) if i != index and s.table.name == own.name]
        names = dict.fromkeys(
            n for other in others for n in (*own.options, *other) if own.options.get(n) != other.get(n)
        )
        return {name: shown(name, own.options.get(name, "")) for name in names}

    def feeding(self, stage: int | None) -> Iterator[tuple[ScanStage | StatefulStage, Fragment]]:
        """Yield the fragments whose rows go to a stage, by its index (None: to a sink), each with the node that it follows."""
        nodes: list[ScanStage | StatefulStage] = [*self.scans, *self.stages]
        for node in nodes:
            for fragment in node.fragments:
                exchange = fragment.exchange
                if (exchange.stage if exchange else None) == stage:
                    yield node, fragment

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The indexes of the stages, by level: a stage reads only scans and stages of lower levels."""
        depth: list[int] = []
        indexes = {stage.name: i for i, stage in enumerate(self.stages)}
        for number in range(len(self.stages)):
            below = [node for node, _ in self.feeding(number) if isinstance(node, StatefulStage)]
            depth.append(1 + max((depth[indexes[node.name]] for node in below), default=-1))
        return tuple(tuple(i for i, d in enumerate(depth) if d == level) for level in range(max(depth, default=-1) + 1))


def hashing(plan: PhysicalPlan, version: int) -> PhysicalPlan:
    """Return the plan with exchanges that hash keys by `version`, the job's version of the hash (see `duck/key_hash.py`)."""

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
