"""The interface of the plans of stateful nodes. Each kind of node has a subclass of OperatorPlan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Rows, quote_name, quoted, subquery
from sqlstream.duck.time_variables import reached
from sqlstream.logical.plan.expressions import Item as SelectItem
from sqlstream.logical.plan.expressions import visible
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.state_settings import AnyState
from sqlstream.logical.plan.windows import RegularWindows, SessionWindow
from sqlstream.operators.operator import Operator
from sqlstream.physical.branches import Branch, branches
from sqlstream.physical.families.declared import ColumnItem, InputOrigins, Item
from sqlstream.physical.plan import ResultWindows
from sqlstream.warehouse.declarations import ExpiringState

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows

N = TypeVar("N", bound=Stateful)


@dataclass(frozen=True, slots=True)
class FeedingPath:
    """A stateless path into an operator, and the names of the operator's parts that are computed from its rows."""

    branch: Branch
    parts: tuple[str, ...]


class OperatorPlan(ABC, Generic[N]):
    """The plan of a stateful node: its operator, the paths that feed it, the views of its state, and its batch query."""

    def __init__(self, node: N):
        self.node = node

    # -- the operator

    @property
    @abstractmethod
    def operator(self) -> Operator:
        """The operator that computes the node. Raises UnsupportedError, also for a call that cannot run incrementally."""

    @property
    def windows_made_here(self) -> RegularWindows | SessionWindow | None:
        """The node below whose windows the operator makes itself, from the event times of rows; None: rows arrive with bounds."""
        return None

    def feeds(self) -> list[FeedingPath]:
        """Return the paths that feed the operator. By default the node has one input, and every path feeds all parts."""
        [below] = self.node.children
        return [FeedingPath(branch, tuple(self.operator.parts)) for branch in branches(below)]

    # -- its state

    @property
    def bound(self) -> str:
        """What bounds its state, in words."""
        return self.node.state_bound

    @property
    def result_windows(self) -> ResultWindows | None:
        """The time windows of its result, None if it has none."""
        return None

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        """The parts of its state that a time to live bounds, or could bound."""
        return self.operator.remembered if self.node.can_forget else ()

    @property
    def time_column(self) -> str | None:
        """The time attribute of the rows that it emits, None if there is none."""
        return self.node.time_attribute

    @property
    def view(self) -> Rows:
        """The view of its state: the current result, then the columns that the select list and the operator add to it."""
        operator = self.operator
        current = operator.current(state_tables(operator), reached(self.node.delay_below))
        if operator.viewed is not None:
            return Rows.of(current, operator.viewed)
        columns = [(f.name, f.type, quote_name(f.name)) for f in visible(self.node.schema)]
        names = {name.lower() for name, _, _ in columns}
        shown = (item for item in self._shown() if item.name.lower() not in names)
        columns += [(item.name, item.expression.type, item.expression.sql) for item in shown]
        columns += [(c.name, c.type, quote_name(c.name)) for c in operator.accumulators if c.name.lower() not in names]
        columns += [(c.name, c.type, c.name) for c in operator.key_times if c.name not in names]
        return Rows.selected(subquery(current), columns)

    def _shown(self) -> Iterator[SelectItem]:
        """Yield the items of a select list over its result, which the state view shows, too."""
        yield from ()

    def side_views(self) -> Iterator[tuple[str, Rows]]:
        """Yield the views of its further state, each with the suffix of its name; the operator's name and `_` come before it."""
        yield from ()

    def late_views(self, name: str) -> Iterator[tuple[str, Rows]]:
        """Yield the views of the late rows that it stores, each with the name in LATE_ROWS; `name` is the operator's name."""
        yield from ()

    # -- in records

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Yield what the operator stores beside its keys: columns of input rows, calls, states of the user's function."""

    @abstractmethod
    def settings(self, inputs: InputOrigins) -> AnyState:
        """Return all other settings that determine the state."""

    # -- in one batch

    @abstractmethod
    def batch(self, query: BatchQuery) -> BatchRows:
        """Add the node to a batch query, and return its rows there. Raises CannotVerify if it has no batch answer."""


def state_tables(operator: Operator) -> dict[str, Relation]:
    """Return the state tables of an operator, as a view reads them, by their names."""
    return {table.name: quoted(table.name) for table in operator.tables}


def columns_of(node: Node) -> tuple[Column, ...]:
    """Return the columns of a node."""
    return tuple(Column(f.name, f.type) for f in node.schema)


def key_columns(node: Node, names: tuple[str, ...]) -> tuple[tuple[Column, str], ...]:
    """Return the columns of a node with these names, each with the SQL that reads it."""
    types = {f.name: f.type for f in node.schema}
    return tuple((Column(name, types[name]), quote_name(name)) for name in names)


def kept_rows(node: Node, index: int = 0) -> Iterator[ColumnItem]:
    """Yield an item for every column of a node, the input at `index` of an operator that stores whole rows."""
    return (ColumnItem.of(field, index) for field in node.schema)
