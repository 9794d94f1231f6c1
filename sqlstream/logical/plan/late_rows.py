"""The late rows of an operator as rows of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, cast

from sqlstream.errors import Span
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.graph import N, rebuilt, shared, walk
from sqlstream.logical.plan.joins import IntervalJoin, TemporalJoin
from sqlstream.logical.plan.node import Keys, LateReads, Node, SingleInput, Stateless, Unwindowed
from sqlstream.logical.plan.over import Over
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.relational import Expand
from sqlstream.logical.plan.settings import NameSettings, NodeValues
from sqlstream.logical.plan.windows import CountWindows, SessionWindow

# What is added to the columns of a late row: its event time, and the watermark that it was behind.
TIME, MARK = "_event_time", "_watermark"
# The operators that drop late rows, but for a sort: it is the last one of a query.
Dropping = SessionWindow | WindowAggregate | WindowRank | CountWindows | Over | IntervalJoin | TemporalJoin | Process


def inputs_of(node: Dropping) -> tuple[str, ...]:
    """Return the names of the inputs of an operator, none where it has one that needs no name."""
    match node:
        case IntervalJoin() | TemporalJoin():
            return tuple(alias or name for alias, name in zip(node.aliases, ("left", "right"), strict=True))
        case Process():
            return tuple(table.name for table in node.function.tables)
        case _:
            return ()


def row_columns(node: Dropping, place: int = 0) -> Schema:
    """Return the columns of the rows of an input, as late ones of them are shown.

    Of windows of time they are those of the row, without the window that it is in. A process function has seen nothing but its
    keys and the columns that it asks for.
    """
    match node:
        case WindowAggregate() | WindowRank():
            hidden = {node.window.start, node.window.end, node.window.time}
            hidden |= {node.input.column} if isinstance(node.input, Expand) else set()
            return tuple(f for f in node.input.schema if f.name not in hidden)
        case Process():
            read = node.reads[place]
            keys = {(k.column or "").lower(): Field(k.column or "", k.type) for k in read.keys}
            own = (Field(i.name, i.expression.type) for i in read.columns if i.name.lower() not in keys)
            return (*keys.values(), *own)
        case _:
            return node.children[place].schema


@dataclass(frozen=True)
class LateRows(SingleInput, Stateless, Unwindowed):
    """Emits the rows that an operator drops because they are late, with their event time and the watermark that they were behind.

    The operator below is one for its result and for these; `place` is the input whose late rows they are. They have no time
    attribute: each of them would be late again.
    """

    node_kind: ClassVar[str] = "late_rows"

    place: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=NameSettings(self.input_name))

    @property
    def operator(self) -> Dropping:
        """What drops them."""
        assert isinstance(self.input, Dropping)
        return self.input

    @property
    def input_name(self) -> str:
        """The name of the input, empty where there is one."""
        names = inputs_of(self.operator)
        return names[self.place] if len(names) > 1 else ""

    @property
    def label(self) -> str:
        of = f' of input "{self.input_name}"' if self.input_name else ""
        return f"the late rows{of} of {self.operator.label}"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*row_columns(self.operator, self.place), Field(TIME, "TIMESTAMP"), Field(MARK, "TIMESTAMP"))

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ()

    @cached_property
    def changelog_origin(self) -> Node | None:
        return None

    @property
    def unique_keys(self) -> Keys:
        return ()


def with_late_reads(plans: Sequence[N]) -> Sequence[N]:
    """Return plans whose operators know which of their late rows are read: rules leave them what they need for that."""
    if not any(isinstance(n, LateRows) for plan in plans for n in walk(plan)):
        return plans
    # A view that two plans name is one node from here on.
    plans = shared(plans)
    places: dict[int, set[int]] = {}
    for node in (n for plan in plans for n in walk(plan) if isinstance(n, LateRows)):
        places.setdefault(id(node.input), set()).add(node.place)
    numbers = {operator: number for number, operator in enumerate(places)}
    made: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in made:
            new = node.with_children(tuple(map(visit, node.children)))
            if id(node) in places:
                reads = LateReads(numbers[id(node)], tuple(sorted(places[id(node)])))
                new = replace(cast(Dropping, new), late_reads=reads)
            made[id(node)] = new
        return made[id(node)]

    return [cast(N, visit(plan)) for plan in plans]


def united(plans: Sequence[N]) -> Sequence[N]:
    """Return plans in which late rows are read from the operator that makes a result, where rules have changed that one.

    Else the job would have two of them.
    """
    found: dict[LateReads, Node] = {}
    for node in (n for plan in plans for n in walk(plan) if not isinstance(n, LateRows)):
        for child in node.children:
            if isinstance(child, Dropping) and child.late_reads is not None:
                found.setdefault(child.late_reads, child)

    def moved(node: Node) -> Node:
        if isinstance(node, LateRows) and (reads := node.operator.late_reads) in found:
            return replace(node, input=found[reads])
        return node

    return [cast(N, rebuilt(plan, moved)) for plan in plans] if found else plans
