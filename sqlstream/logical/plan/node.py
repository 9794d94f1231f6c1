"""What every node of a logical plan answers about itself, and what nodes of one shape answer alike.

A node is a frozen dataclass: its fields say what to compute. What is known of the rows that it emits are properties beside
them, derived from the properties of its children. There is no default for what could be wrong of a new node: a class that
leaves one out cannot be instantiated, and mypy names it.

A plan is a graph, in which one node may be below many others: so what costs something to derive is a `cached_property`, kept in
the `__dict__` of the node. That is why nodes have no slots.
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
from sqlstream.logical.plan.words import IN_WINDOWS_OF_INPUT
from sqlstream.units import NO_TIME, Duration, duration

# Sets of columns whose values no two rows of a result share at a time.
Keys = tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Which columns of a node hold the bounds of the window that a row is in (None where projected away)."""

    start: str | None
    end: str | None
    time: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that there are."""
        return tuple(name for name in (self.start, self.end, self.time) if name is not None)


@dataclass(frozen=True, slots=True)
class Overlap:
    """In how many windows each row is, and how long these are, in words."""

    windows: int
    lengths: str


@dataclass(frozen=True, slots=True)
class LateReads:
    """That a query reads late rows of an operator: which of those operators of the job it is, and the places of the inputs."""

    operator: int
    inputs: tuple[int, ...]


class Node(ABC):
    """A node of a logical plan."""

    # What kind of node it is, in what jobs record: it stays, whatever its class is called.
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
        """Return this node over other children; the same one where they are the same."""
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        return self._over(children)

    # -- what it is

    @property
    @abstractmethod
    def label(self) -> str:
        """What people call this node."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What it computes and how, in a line of the plan's text."""

    @property
    @abstractmethod
    def effect(self) -> str:
        """What it does to rows, as far as a reader of EXPLAIN wants to know: nothing where it renames columns or the like."""

    @property
    def windows_text(self) -> str:
        """Which windows its rows are in."""
        return IN_WINDOWS_OF_INPUT

    @property
    def makes_windows(self) -> bool:
        """Whether it says which windows rows are in."""
        return False

    @property
    def overlap(self) -> Overlap | None:
        """In how many windows that it makes each row is, None where it makes no copies of rows."""
        return None

    def windows_setting(self, inlined: Callable[[Expression], str]) -> str | None:
        """Return the windows that it makes, as records have them: `inlined` gives SQL over what is below. None: it makes none."""
        return None

    @property
    def span(self) -> Span | None:
        """Where the node is written, None where that is not known."""
        return None

    @property
    @abstractmethod
    def expressions(self) -> tuple[Expression, ...]:
        """What is computed from the rows of its children."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the rows that it emits."""

    @property
    @abstractmethod
    def values(self) -> NodeValues:
        """What makes it another node, but for what is below it, and the columns: a job is known by these values."""

    # -- the tables below

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are read below, each once."""
        return tuple({id(table): table for child in self.children for table in child.tables}.values())

    @cached_property
    def table_aliases(self) -> tuple[str, ...]:
        """What the query calls them."""
        return tuple(dict.fromkeys(alias for child in self.children for alias in child.table_aliases))

    @property
    def is_table(self) -> bool:
        """Whether its rows are those of a table, as they are read or as their changes make them."""
        return False

    # -- time

    @property
    @abstractmethod
    def time_attributes(self) -> tuple[str, ...]:
        """The columns by which rows are in event-time order up to the watermark: a join of intervals has those of both sides."""

    @property
    def time_attribute(self) -> str | None:
        """The first of these columns, if there is one."""
        return next(iter(self.time_attributes), None)

    @property
    @abstractmethod
    def batch_times(self) -> tuple[str, ...]:
        """The columns that hold the time of the batch in which a row leaves this node."""

    @property
    @abstractmethod
    def leaves_at_once(self) -> bool:
        """Whether a row leaves in the batch in which it comes: then rows are in the order of processing time."""

    @property
    def processing_times(self) -> tuple[str, ...]:
        """The columns that hold the batch's time, where rows are in its order: windows can be made over any of them."""
        return self.batch_times if self.leaves_at_once else ()

    @property
    def reads_watermark(self) -> bool:
        """Whether what it emits depends on the watermark before a batch."""
        return any(e.reads.watermark for e in self.expressions)

    @cached_property
    def reads_by_clock(self) -> bool:
        """Whether the batch's time is what windows go by in all tables below, and not their watermarks."""
        return all(child.reads_by_clock for child in self.children)

    @cached_property
    def delay_below(self) -> Duration:
        """How far what this node computes keeps behind the watermark, for no row of its children to be late."""
        return max((child.delay for child in self.children), default=NO_TIME)

    @property
    def delay(self) -> Duration:
        """How far the watermark may be ahead of a row's time when the row leaves this node, and is not late."""
        return self.delay_below

    @property
    @abstractmethod
    def on_time(self) -> bool:
        """Whether every row leaves before the watermark passes its event time: none can be late above.

        True of an operator over windows, which emits a window in the batch in which the watermark reaches its end, and of one
        that emits rows in order, each in the batch in which the watermark passes its time. Of a join within an interval it is so
        for a watermark that is its `delay` behind.
        """

    # -- windows

    @property
    @abstractmethod
    def window_columns(self) -> WindowColumns | None:
        """The window bounds that rows carry: those of a window table function or of a window aggregate."""

    @property
    @abstractmethod
    def window_size(self) -> Duration | None:
        """The size of the windows that rows are in, where it is one and the same."""

    # -- rows

    @property
    @abstractmethod
    def changelog_origin(self) -> Node | None:
        """The node that makes the result a changelog: a table of changes, or the topmost operator that takes rows back.

        None: append-only. What an operator over windows emits is final, also where its input is a changelog, unless late
        or early rows correct it.
        """

    @property
    def is_changelog(self) -> bool:
        """Whether rows that were emitted are retracted: then rows have weights. If not, the result is append-only."""
        return self.changelog_origin is not None

    @property
    @abstractmethod
    def unique_keys(self) -> Keys:
        """Sets of columns whose values no two rows of the result share at a time; none where nothing is known."""

    @property
    def row_numbers(self) -> frozenset[str]:
        """The columns known to number the rows of each key from 1 on."""
        return frozenset()

    # -- state

    @property
    @abstractmethod
    def state_bound(self) -> str | None:
        """What bounds the state of this node, in words; None where it keeps none."""

    @property
    @abstractmethod
    def state_growth(self) -> str | None:
        """What the node keeps more and more of as long as its input goes on; None where something bounds it."""

    @property
    def forgets_keys(self) -> bool:
        """Whether a time to live makes this node forget keys: what it emitted for them is not retracted."""
        return False

    @cached_property
    def forgets(self) -> bool:
        """Whether this node, or one below it, forgets keys."""
        return self.forgets_keys or any(child.forgets for child in self.children)

    @cached_property
    def grows(self) -> bool:
        """Whether the result has more and more rows as long as the input goes on.

        One that changes has no more rows than the node that makes it keeps: what grows is said of that one. But what times to
        live have forgotten is not retracted. A table of changes is a table whose rows go as they come.
        """
        return not self.is_changelog or self.forgets


@dataclass(frozen=True)
class SingleInput(Node):
    """A node over one other."""

    input: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def _over(self, children: tuple[Node, ...]) -> Node:
        [below] = children
        return replace(self, input=below)


class Stateless(Node):
    """A node that keeps nothing: a batch's rows depend on those of the same batch alone."""

    @property
    def state_bound(self) -> str | None:
        return None

    @property
    def state_growth(self) -> str | None:
        return None


@dataclass(frozen=True)
class PassThrough(SingleInput, Stateless):
    """A node that passes rows on in the batch in which they come, each of them once, several times or not at all.

    So what is known of the columns of its input is known of those that it keeps.
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
    def on_time(self) -> bool:
        return self.input.on_time

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        return self.input.window_columns

    @cached_property
    def window_size(self) -> Duration | None:
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


class Unwindowed(Node):
    """A node whose rows are in no windows, and can be late: what it answers where it says nothing else."""

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def on_time(self) -> bool:
        return False

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> Duration | None:
        return None


class Updating(Unwindowed):
    """A node whose result is a changelog: it has no order of event time."""

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ()

    @property
    def changelog_origin(self) -> Node | None:
        return self


# Types with so few values that a row for each is no matter.
FEW_VALUES = ("BOOLEAN",)


def bound_of_keys(node: Node, ttl: Duration | None) -> str | None:
    """Return what bounds the state of a node that keeps something of every key: a time to live, or nothing."""
    if ttl:
        return f"time to live: a key is forgotten when no row has come for it for {duration(ttl)}"
    return f"nothing: {node.state_growth}" if node.state_growth is not None else None


def passed_on(items: Iterable[Item], column: str | None) -> str | None:
    """Return the name under which a projection passes a column on unchanged."""
    if column is None:
        return None
    return next((i.name for i in items if i.expression.column == column), None)


def named_columns(node: Node, expressions: Iterable[Expression]) -> frozenset[str]:
    """Return the columns of a node that some expressions are, without more."""
    names = {e.column for e in expressions}
    return frozenset(f.name for f in node.schema if f.name in names)
