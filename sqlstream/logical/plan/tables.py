"""Where rows come from, and where they go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from sqlstream.catalog import IDLE_TIMEOUT, Table
from sqlstream.errors import Span
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.graph import rebuilt
from sqlstream.logical.plan.node import Keys, Node, PassThrough, Stateless, Updating, WindowColumns
from sqlstream.logical.plan.settings import NodeValues, ScanSettings, SinkSettings
from sqlstream.secrets import planned
from sqlstream.units import Duration

# How options begin that say where a source is first read from.
STARTUP = "scan.startup."


@dataclass(frozen=True)
class Scan(Stateless):
    """Reads a table: its columns, the computed ones among them.

    Emits every row once, in the order of the source. Rows whose time attribute is NULL, or infinite, are dropped and counted.
    Where the table has changes, rows have weights. Keeps no state. `by_clock`: the batch's time is what windows go by, not the
    table's watermark.
    """

    node_kind: ClassVar[str] = "scan"

    table: Table
    alias: str
    by_clock: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        table = self.table
        # How long a source may be silent can change while a job lives.
        options = tuple((k, v) for k, v in sorted(planned(table.options).items()) if k != IDLE_TIMEOUT)
        mark = table.watermark
        settings = ScanSettings(
            "" if table.is_values else table.name,
            tuple((k, v) for k, v in options if not k.startswith(STARTUP)),
            tuple((k, v) for k, v in options if k.startswith(STARTUP)),
            table.has_changes,
            (mark.column, canonical(mark.expression)) if mark is not None and not self.by_clock else None,
            self.by_clock,
            tuple((c.name, canonical(c.expression)) for c in table.columns if c.expression),
        )
        return NodeValues(self.node_kind, settings=settings)

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    def _over(self, children: tuple[Node, ...]) -> Node:
        return self

    @property
    def label(self) -> str:
        return f'table "{self.table.name}"'

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return tuple(Field(c.name, c.type) for c in self.table.visible)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        mark = self.table.watermark
        return self.batch_times if self.by_clock else (mark.column,) if mark else ()

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.table.columns if c.processing_time)

    @property
    def leaves_at_once(self) -> bool:
        return True

    @property
    def reads_by_clock(self) -> bool:
        return self.by_clock

    @property
    def on_time(self) -> bool:
        return False

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> Duration | None:
        return None

    @property
    def changelog_origin(self) -> Node | None:
        return self if self.table.has_changes else None

    @property
    def unique_keys(self) -> Keys:
        return ()


@dataclass(frozen=True)
class Normalize(Updating):
    """Makes of the changes of a table with a key the rows that the table has now: of each key the last row that was added.

    Emits the row of a key, takes it back and emits the next one with every change. Changes count in the order of the source:
    files, then rows. Keeps the row of every key until it is deleted.
    """

    node_kind: ClassVar[str] = "normalize"

    input: Scan
    name: str
    keys: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, name=self.name, keys=tuple((key,) for key in self.keys))

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def _over(self, children: tuple[Node, ...]) -> Node:
        [scan] = children
        assert isinstance(scan, Scan)
        return replace(self, input=scan)

    @cached_property
    def label(self) -> str:
        return self.input.label

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        return self.input.time_attributes

    @property
    def unique_keys(self) -> Keys:
        return (frozenset(self.keys),)

    @property
    def state_bound(self) -> str:
        return f"the number of keys of {self.label}"

    @property
    def state_growth(self) -> str | None:
        return None


@dataclass(frozen=True)
class ResultSink(PassThrough):
    """Writes rows to a table: `columns` are what it stores, by position, and each value is cast as an assignment casts.

    Keeps no state. `limit` ends the job after so many rows; only a bare SELECT has one.
    """

    node_kind: ClassVar[str] = "result_sink"

    table: Table
    columns: Schema
    limit: int | None = None

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=SinkSettings(self.limit))

    @property
    def label(self) -> str:
        return f'table "{self.table.name}"'

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @cached_property
    def unique_keys(self) -> Keys:
        """Those of its input, by the names that the columns have there."""
        return self.input.unique_keys


def by_clock(node: Node) -> Node:
    """Return a plan that has `processing_times` with its rows in their order, and not in that of an event time."""
    return rebuilt(node, lambda n: replace(n, by_clock=True) if isinstance(n, Scan) else n)
