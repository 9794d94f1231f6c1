"""The late rows of an operator as rows of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.graph import N, rebuilt, shared, walk
from sqlstream.logical.plan.node import Keys, LateReads, Node, SingleInput, Stateless, UnwindowedNode
from sqlstream.logical.plan.settings import NameSettings, NodeValues
from sqlstream.logical.plan.stateful import DropsLateRows
from sqlstream.logical.plan.words import quoted_name

# The columns that are added to a late row: its event time, and the watermark that it was behind.
TIME, WATERMARK = "_event_time", "_watermark"


@dataclass(frozen=True)
class LateRows(SingleInput, Stateless, UnwindowedNode):
    """Emits the late rows that the operator below drops, with their event time and the watermark that they were behind.

    `index` is the input of the operator whose late rows they are. The operator runs once, for its result and its late rows. The
    rows have no time attribute, since they would be late again.
    """

    node_kind: ClassVar[str] = "late_rows"

    index: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=NameSettings(self.input_name))

    @property
    def operator(self) -> DropsLateRows:
        """The operator that drops the rows."""
        assert isinstance(self.input, DropsLateRows)
        return self.input

    @property
    def input_name(self) -> str:
        """The name of the input, empty if the operator has only one."""
        names = self.operator.input_names
        return names[self.index] if len(names) > 1 else ""

    @property
    def label(self) -> str:
        of = f' of input "{self.input_name}"' if self.input_name else ""
        return f"the late rows{of} of {self.operator.label}"

    @property
    def description(self) -> str:
        return f"LateRows{quoted_name(self.input_name)}"

    @property
    def effect(self) -> str:
        return self.label

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.operator.late_columns(self.index), Field(TIME, "TIMESTAMP"), Field(WATERMARK, "TIMESTAMP"))

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
    """Set `late_reads` on every operator whose late rows one of the plans reads."""
    if not any(isinstance(n, LateRows) for plan in plans for n in walk(plan)):
        return plans
    # A view that two plans name is one node from here on.
    plans = shared(plans)
    indexes: dict[int, set[int]] = {}
    for node in (n for plan in plans for n in walk(plan) if isinstance(n, LateRows)):
        indexes.setdefault(id(node.input), set()).add(node.index)
    numbers = {operator: number for number, operator in enumerate(indexes)}
    results: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in results:
            new = node.with_children(tuple(map(visit, node.children)))
            if id(node) in indexes:
                reads = LateReads(numbers[id(node)], tuple(sorted(indexes[id(node)])))
                new = replace(cast(Any, new), late_reads=reads)
            results[id(node)] = new
        return results[id(node)]

    return [cast(N, visit(plan)) for plan in plans]


def united(plans: Sequence[N]) -> Sequence[N]:
    """Make one operator of two, if rules have changed it differently for readers of its result and for readers of its late rows.

    Late rows are then read from the operator whose result is read. Otherwise the job would run both.
    """
    operators: dict[LateReads, Node] = {}
    for node in (n for plan in plans for n in walk(plan) if not isinstance(n, LateRows)):
        for child in node.children:
            if isinstance(child, DropsLateRows) and child.late_reads is not None:
                operators.setdefault(child.late_reads, child)

    def moved(node: Node) -> Node:
        if isinstance(node, LateRows) and (reads := node.operator.late_reads) in operators:
            return replace(node, input=operators[reads])
        return node

    return [cast(N, rebuilt(plan, moved)) for plan in plans] if operators else plans
