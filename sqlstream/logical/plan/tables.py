"""Nodes that read and write tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from sqlstream.catalog import IDLE_TIMEOUT, Table
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.errors import Span
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.graph import rebuilt
from sqlstream.logical.plan.node import ChangelogNode, Keys, Node, PassThrough, Stateless, WindowColumns, WindowSize
from sqlstream.logical.plan.settings import NodeValues, ScanSettings, SinkSettings
from sqlstream.logical.plan.stateful import StatefulNode, columns_by_name
from sqlstream.logical.plan.words import ON_CHANGE, quoted_name
from sqlstream.secrets import planned
from sqlstream.units import NO_TIME, Duration

# The prefix of options that set where a job begins to read a source.
STARTUP = "scan.startup."


@dataclass(frozen=True)
class Scan(Stateless):
    """Reads the columns of a table, the computed ones too.

    Emits every row once, in the order of the source. Rows whose time attribute is NULL, or infinite, are dropped and counted.
    If it is a table of changes, rows have weights. Keeps no state. With `by_clock` the watermark is processing time, not the
    table's watermark.
    """

    node_kind: ClassVar[str] = "scan"

    table: Table
    alias: str
    by_clock: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    def is_same(self, other: Scan) -> bool:
        """Tell whether a job reads two scans as one: same table, same options, same clock. Their aliases may differ."""
        return (self.table, self.by_clock) == (other.table, other.by_clock)

    @cached_property
    def declared(self) -> Scan:
        """The scan of the columns that the table declares, without those that only plans read, such as the order of arrival."""
        columns = tuple(c for c in self.table.columns if not c.name.startswith(INTERNAL))
        return self if columns == self.table.columns else replace(self, table=replace(self.table, columns=columns))

    @property
    def values(self) -> NodeValues:
        table = self.table
        # How long a source may be silent can change while a job lives.
        options = tuple((k, v) for k, v in sorted(planned(table.options).items()) if k != IDLE_TIMEOUT)
        watermark = table.watermark
        settings = ScanSettings(
            "" if table.is_values else table.name,
            tuple((k, v) for k, v in options if not k.startswith(STARTUP)),
            tuple((k, v) for k, v in options if k.startswith(STARTUP)),
            table.has_changes,
            (watermark.column, canonical(watermark.expression))
            if watermark is not None and not self.by_clock
            else None,
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

    @cached_property
    def description(self) -> str:
        table = self.table
        if table.is_values:
            return f"Values {table.options['rows']}"
        # How long a source may be silent can change while a job lives.
        options = ", ".join(f"{k}={v}" for k, v in sorted(planned(table.options).items()) if k != IDLE_TIMEOUT)
        watermark = f" watermark {table.watermark.column} AS {table.watermark.expression}" if table.watermark else ""
        watermark = " by clock" if self.by_clock else watermark
        computed = [f"{c.name} AS {c.expression}" for c in table.columns if c.expression]
        more = f" computed {', '.join(computed)}" if computed else ""
        changes = " of changes" if table.has_changes else ""
        return f"Scan {table.name} ({options}){changes}{watermark}{more}"

    @property
    def effect(self) -> str:
        return ""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return tuple(Field(c.name, c.type) for c in self.table.visible)

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.table,)

    @property
    def table_aliases(self) -> tuple[str, ...]:
        return (self.alias,)

    @property
    def is_table(self) -> bool:
        return True

    @property
    def time_attributes(self) -> tuple[str, ...]:
        watermark = self.table.watermark
        return self.batch_times if self.by_clock else (watermark.column,) if watermark else ()

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.table.columns if c.processing_time)

    @property
    def leaves_at_once(self) -> bool:
        return True

    @property
    def clock_times(self) -> tuple[str, ...]:
        return self.batch_times

    @property
    def timed_by(self) -> tuple[Node, ...]:
        return (self,) if self.by_clock or self.table.watermark is not None else ()

    @property
    def reads_by_clock(self) -> bool:
        return self.by_clock

    @property
    def reads_watermark(self) -> bool:
        return any(c.reads_watermark for c in self.table.columns)

    @property
    def never_late(self) -> bool:
        """Whether the watermark is processing time: no row is behind it."""
        return self.by_clock

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> WindowSize | None:
        return None

    @property
    def changelog_origin(self) -> Node | None:
        return self if self.table.has_changes else None

    @property
    def unique_keys(self) -> Keys:
        return ()


@dataclass(frozen=True)
class Normalize(ChangelogNode, StatefulNode):
    """Turns the changes of a table with a PRIMARY KEY into its current rows: the last row of each key, unless it was deleted.

    With every change it retracts the previous row of the key, and emits the new one. Changes are applied in the order of the
    source: files, then rows. Keeps the row of every key until it is deleted.
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

    @property
    def passes_rows_on(self) -> bool:
        return True

    @cached_property
    def label(self) -> str:
        return self.input.label

    @property
    def description(self) -> str:
        return f"Normalize{quoted_name(self.name)} by {', '.join(self.keys)}"

    @property
    def title(self) -> str:
        return f"the row that each key of table {self.input.table.name} has now"

    @property
    def key_text(self) -> str:
        return ", ".join(self.keys)

    @property
    def emission(self) -> str:
        return f"the row of a key, {ON_CHANGE}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return columns_by_name(self.input, self.keys)

    @property
    def key_ttl(self) -> Duration:
        return NO_TIME

    def named(self, name: str) -> Node:
        """The node itself: it keeps the name of the table."""
        return self

    @property
    def can_forget(self) -> bool:
        return False

    @property
    def is_table(self) -> bool:
        return True

    @property
    def clock_times(self) -> tuple[str, ...]:
        """The processing times of the table: a retraction has the time at which its row arrived."""
        return self.input.clock_times

    @property
    def depends_on_expiry(self) -> bool:
        return False

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def has_processing_timers(self) -> bool:
        return False

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
    """Writes rows to a table: the input's columns, by position, into `columns`, each value cast as by an assignment.

    Keeps no state. The job ends after `limit` rows; only a bare SELECT has a limit.
    """

    node_kind: ClassVar[str] = "result_sink"

    table: Table
    columns: Schema
    limit: int | None = None

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=SinkSettings(self.limit, self.table.overwrites))

    @property
    def label(self) -> str:
        return f'table "{self.table.name}"'

    @property
    def description(self) -> str:
        columns = ", ".join(map(str, self.columns))
        limit = f" limit {self.limit}" if self.limit is not None else ""
        overwrites = " overwriting" if self.table.overwrites is not None else ""
        return f"Sink {self.table.name} ({self.table.connector or 'warehouse table'}){overwrites}{limit}: {columns}"

    @property
    def effect(self) -> str:
        return ""

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
        """The unique keys of its input, by the names of the input's columns."""
        return self.input.unique_keys


def by_clock(node: Node) -> Node:
    """Return the plan with all scans `by_clock`: their watermarks, and the time attributes of the plan, are processing times."""
    return rebuilt(node, lambda n: replace(n, by_clock=True) if isinstance(n, Scan) and not n.by_clock else n)
