"""The late rows of an operator as rows of a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sqlstream.errors import Span
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.node import Keys, Node, SingleInput, Stateless, Unwindowed
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.relational import Expand
from sqlstream.logical.plan.windows import SessionWindow

# What is added to the columns of a late row: its event time, and the watermark that it was behind.
TIME, MARK = "_event_time", "_watermark"


def row_columns(node: SessionWindow | WindowAggregate | WindowRank) -> Schema:
    """Return the columns of the rows that come to an operator over windows, but for those that say which window a row is in."""
    if isinstance(node, SessionWindow):
        return node.input.schema
    below = node.input
    hidden = {node.window.start, node.window.end, node.window.time}
    if isinstance(below, Expand):
        hidden.add(below.column)
    return tuple(f for f in below.schema if f.name not in hidden)


@dataclass(frozen=True)
class LateRows(SingleInput, Stateless, Unwindowed):
    """Emits the rows that an operator drops because they are late, with their event time and the watermark that they were behind.

    The operator below is one for its result and for these. They have no time attribute: each of them would be late again.
    """

    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def operator(self) -> SessionWindow | WindowAggregate | WindowRank:
        """What drops them."""
        assert isinstance(self.input, SessionWindow | WindowAggregate | WindowRank)
        return self.input

    @property
    def label(self) -> str:
        return f"the late rows of {self.operator.label}"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*row_columns(self.operator), Field(TIME, "TIMESTAMP"), Field(MARK, "TIMESTAMP"))

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ()

    @cached_property
    def changelog_origin(self) -> Node | None:
        return None

    @property
    def unique_keys(self) -> Keys:
        return ()
