"""The interface of the nodes of a logical plan, and base classes of nodes of one shape.

A node is a frozen dataclass: its fields say what to compute. Its properties describe the rows that it emits; they are derived
from the properties of its children. A property whose default could be wrong for a new kind of node is abstract, so that mypy
names what the new class must define.

A plan is a graph, in which one node may be below many others: so properties that are expensive to derive are cached, in the
`__dict__` of the node. That is why nodes have no slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from sqlstream.catalog import Table
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Item, Schema
from sqlstream.logical.plan.settings import NodeValues
from sqlstream.logical.plan.state_settings import Windows
from sqlstream.logical.plan.words import IN_WINDOWS_OF_INPUT
from sqlstream.units import NO_TIME, Duration, duration

# Unique keys: sets of columns, in each of which no two rows of a result are equal at a time.
Keys = tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The columns of a node that hold the start, the end and the time of a row's window; None if projected away."""

    start: str | None
    end: str | None
    time: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are not projected away."""
        return tuple(name for name in (self.start, self.end, self.time) if name is not None)


@dataclass(frozen=True, slots=True)
class WindowSize:
    """The size of windows, in words and as a length, which is None for windows of months.

    Windows of equal sizes that begin at the same time also end at the same time: so windows of months have their offset in it.
    """

    text: str
    length: Duration | None
    offset: str = ""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The number of windows that each row is in, and their length and slide in words."""

    windows: int
    lengths: str


@dataclass(frozen=True, slots=True)
class LateReads:
    """Marks an operator whose late rows a query reads; `inputs` are the indexes of the inputs that they come from.

    `operator` numbers the marked operators of a job: it identifies one after rules have changed it.
    """

    operator: int
    inputs: tuple[int, ...]


class Node(ABC):
    """A node of a logical plan."""

    # The kind of node in the records of jobs; it never changes, even if the class is renamed.
    node_kind: ClassVar[str]

    # -- what is below

    @property
    @abstractmethod
    def children(self) -> tuple[Node, ...]:
        """The nodes whose rows this one reads."""

    @abstractmethod
    def _over(self, children: tuple[Node, ...]) -> Node:
        """Return this node over other children."""

    def with_children(self, children: tuple[Node, ...]) -> Node:
        """Return this node over other children; the same object if the children are the same objects."""
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        return self._over(children)

    # -- what it is

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the node in messages, such as `interval JOIN` or `table "t"`."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What the node computes, as a line of EXPLAIN LOGICAL."""

    @property
    @abstractmethod
    def effect(self) -> str:
        """What a stateless node does to rows, as a phrase in a step of EXPLAIN; empty for a node that EXPLAIN leaves out."""

    @property
    def windows_text(self) -> str:
        """The windows of its rows in words, as a phrase that begins with "in"."""
        return IN_WINDOWS_OF_INPUT

    @property
    def makes_windows(self) -> bool:
        """Whether the node assigns rows to windows."""
        return False

    @property
    def has_sessions(self) -> bool:
        """Whether the bounds of its windows depend on the rows of its input, so that two inputs seldom have equal windows."""
        return False

    @property
    def joins_windows(self) -> bool:
        """Whether it joins rows of equal windows."""
        return False

    @property
    def overlap(self) -> Overlap | None:
        """The number of windows to which it assigns each row; None if it does not copy rows into windows."""
        return None

    def windows_setting(self, inlined: Callable[[Expression], str]) -> Windows | None:
        """Return the windows that it makes, as records of jobs store them; None if it makes none.

        `inlined` returns the SQL of an expression over the columns that the tables and operators below emit.
        """
        return None

    @property
    def span(self) -> Span | None:
        """The position of the node in the query's text, None if it is not known."""
        return None

    @property
    @abstractmethod
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that the node computes over the rows of its children."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the rows that it emits."""

    @property
    @abstractmethod
    def values(self) -> NodeValues:
        """The values that identify the node, without its children and columns: a job's digest is made of them."""

    # -- the tables below

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables below, each once."""
        return tuple({id(table): table for child in self.children for table in child.tables}.values())

    @cached_property
    def table_aliases(self) -> tuple[str, ...]:
        """The aliases of the tables below, each once."""
        return tuple(dict.fromkeys(alias for child in self.children for alias in child.table_aliases))

    @property
    def is_table(self) -> bool:
        """Whether its rows are the rows of a table: a Scan, or the Normalize above the scan of a table of changes."""
        return False

    # -- time

    @property
    @abstractmethod
    def time_attributes(self) -> tuple[str, ...]:
        """The time columns that the watermark is about; an interval join has one of each side."""

    @property
    def time_attribute(self) -> str | None:
        """The first of the time attributes, None if there is none."""
        return next(iter(self.time_attributes), None)

    @property
    @abstractmethod
    def batch_times(self) -> tuple[str, ...]:
        """The columns that hold the processing time of the batch in which a row leaves this node."""

    @property
    @abstractmethod
    def leaves_at_once(self) -> bool:
        """Whether a row leaves in the batch in which it arrives: then rows are in the order of processing time."""

    @property
    def processing_times(self) -> tuple[str, ...]:
        """The columns that hold processing time, if rows are in its order: windows over them are possible."""
        return self.batch_times if self.leaves_at_once else ()

    @property
    def clock_times(self) -> tuple[str, ...]:
        """The columns with times that processing time has reached, up to `clock_delay`, when a row leaves this node.

        These are processing times, bounds of windows over processing time, and time attributes of operators over it.
        """
        return self.processing_times

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        """The time columns of its inputs by which it works, as (index of the input, column); empty if it uses no time."""
        return ()

    @property
    def reads_watermark(self) -> bool:
        """Whether its rows depend on the watermark before the batch."""
        return any(e.reads.watermark for e in self.expressions)

    @property
    def time_inputs(self) -> tuple[Node, ...]:
        """The children that this node waits for: its watermark is the least of their watermarks."""
        return self.children

    @cached_property
    def timed_by(self) -> tuple[Node, ...]:
        """The scans that this node waits for, directly or through other nodes: its watermark is the least of theirs."""
        return tuple({id(scan): scan for child in self.time_inputs for scan in child.timed_by}.values())

    @cached_property
    def reads_by_clock(self) -> bool:
        """Whether the watermark of all tables below is processing time."""
        return all(child.reads_by_clock for child in self.children)

    @cached_property
    def delay_below(self) -> Duration:
        """How far this node's watermark stays behind the job's, so that rows which a child emits on time are not late here."""
        return max((child.delay for child in self.children), default=NO_TIME)

    @property
    def delay(self) -> Duration:
        """How far the job's watermark may be ahead of a row's event time when the row leaves this node on time."""
        return self.delay_below

    @cached_property
    def clock_delay(self) -> Duration:
        """How far processing time may be ahead of the `clock_times` of a row when the row leaves this node."""
        return max((child.clock_delay for child in self.children), default=NO_TIME)

    @property
    @abstractmethod
    def never_late(self) -> bool:
        """Whether no row can be late for the nodes above.

        True for an operator over windows, which emits a window in the batch in which the watermark reaches its end, and for one
        that emits each row in the batch in which the watermark passes its time. Also true for an interval join, if the watermark
        above is `delay` behind.
        """

    # -- windows

    @property
    @abstractmethod
    def window_columns(self) -> WindowColumns | None:
        """The columns of the window bounds, from a window table function or a window aggregate; None if there are none."""

    @property
    @abstractmethod
    def window_size(self) -> WindowSize | None:
        """The size of the windows of all rows, None if sizes differ or there are no windows.

        If all windows have one size, the start of a window determines its end.
        """

    # -- rows

    @property
    @abstractmethod
    def changelog_origin(self) -> Node | None:
        """The node that makes the result a changelog: a table of changes, or the topmost operator that retracts rows.

        None: the result is append-only. The results of windows are append-only even if the input is a changelog, unless late or
        early results correct them.
        """

    @property
    def is_changelog(self) -> bool:
        """Whether the result is a changelog, whose rows have weights; else it is append-only."""
        return self.changelog_origin is not None

    @property
    def changes_are_timed(self) -> bool:
        """Whether each change has the event time of its row, and leaves in the batch of the row that caused it.

        Ask only the `changelog_origin` of a changelog.
        """
        return self.is_table

    @property
    @abstractmethod
    def unique_keys(self) -> Keys:
        """The known unique keys of the result, each a set of columns in which no two rows are equal at a time."""

    def covers_key(self, columns: Iterable[str]) -> bool:
        """Whether no two rows of the result are equal in all of some columns at a time, as far as is known."""
        names = frozenset(columns)
        return any(key <= names for key in self.unique_keys)

    @property
    def row_numbers(self) -> frozenset[str]:
        """The columns known to number the rows of each key from 1 on, such as results of ROW_NUMBER."""
        return frozenset()

    # -- state

    @property
    @abstractmethod
    def state_bound(self) -> str | None:
        """What bounds the state of this node, in words; None if it keeps no state."""

    @property
    @abstractmethod
    def state_growth(self) -> str | None:
        """How the state grows without a bound as more input arrives, in words; None if something bounds it."""

    @property
    def forgets_keys(self) -> bool:
        """Whether a time to live makes this node forget keys; results of a forgotten key are not retracted."""
        return False

    @cached_property
    def forgets(self) -> bool:
        """Whether this node, or one below it, forgets keys."""
        return self.forgets_keys or any(child.forgets for child in self.children)

    @cached_property
    def grows(self) -> bool:
        """Whether the result gets more and more rows as more input arrives.

        A changelog counts as bounded: its rows are in the state of the node that makes it, whose `state_growth` says whether that
        grows. The exception are rows of forgotten keys, which are never retracted.
        """
        return not self.is_changelog or self.forgets


@dataclass(frozen=True)
class SingleInput(Node):
    """A node with one child."""

    input: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def _over(self, children: tuple[Node, ...]) -> Node:
        [below] = children
        return replace(self, input=below)


class Stateless(Node):
    """A node without state: the rows that it emits in a batch depend on the input of that batch alone."""

    @property
    def state_bound(self) -> str | None:
        return None

    @property
    def state_growth(self) -> str | None:
        return None


@dataclass(frozen=True)
class PassThrough(SingleInput, Stateless):
    """A stateless node that emits each input row zero, one or several times, in the batch in which it arrives.

    So it inherits the properties of its child.
    """

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        return self.input.time_attributes

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        return self.input.batch_times

    @cached_property
    def leaves_at_once(self) -> bool:
        return self.input.leaves_at_once

    @cached_property
    def clock_times(self) -> tuple[str, ...]:
        return self.input.clock_times

    @cached_property
    def never_late(self) -> bool:
        return self.input.never_late

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        return self.input.window_columns

    @cached_property
    def window_size(self) -> WindowSize | None:
        return self.input.window_size

    @cached_property
    def changelog_origin(self) -> Node | None:
        return self.input.changelog_origin

    @cached_property
    def grows(self) -> bool:
        return self.input.grows

    @property
    def windows_text(self) -> str:
        return self.input.windows_text


class UnwindowedNode(Node):
    """A node whose rows have no window bounds and can be late; a subclass overrides the properties that differ."""

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def never_late(self) -> bool:
        return False

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> WindowSize | None:
        return None


class ChangelogNode(UnwindowedNode):
    """A node whose result is a changelog, without a time attribute."""

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ()

    @property
    def changelog_origin(self) -> Node | None:
        return self


# Types with so few values that a row per value does not count as growth.
FEW_VALUES = ("BOOLEAN",)


def bound_of_keys(node: Node, ttl: Duration | None) -> str | None:
    """Return the bound of a node that keeps state per key: its time to live (0, None: for ever), or "nothing: ..".

    None if the node has neither a time to live nor growth.
    """
    if ttl:
        return f"time to live: a key is forgotten when no row has come for it for {duration(ttl)}"
    return f"nothing: {node.state_growth}" if node.state_growth is not None else None


def passed_on(items: Iterable[Item], column: str | None) -> str | None:
    """Return the first name under which a projection passes a column on unchanged, None if it does not."""
    if column is None:
        return None
    return next((i.name for i in items if i.expression.column == column), None)


def named_columns(node: Node, expressions: Iterable[Expression]) -> frozenset[str]:
    """Return the columns of a node that occur among `expressions` as plain columns."""
    names = {e.column for e in expressions}
    return frozenset(f.name for f in node.schema if f.name in names)
