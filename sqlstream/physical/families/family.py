"""What planning asks of a node that keeps state: each kind answers in a class of its own, with the same questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlstream.catalog import Column
from sqlstream.duck.clock import reached
from sqlstream.duck.sql import Rows, quote_name
from sqlstream.logical.plan.expressions import Item as SelectItem
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.windows import SessionWindow, TimeWindows
from sqlstream.operators.operator import Operator
from sqlstream.physical.branches import Branch, branches
from sqlstream.physical.families.declared import ColumnItem, InputOrigins, Item, Settings
from sqlstream.physical.plan import ResultWindows
from sqlstream.warehouse.declarations import Remembered

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows

N = TypeVar("N", bound=Stateful)


@dataclass(frozen=True, slots=True)
class FeedingPath:
    """A stateless path that leads to an operator, and the parts of the operator that its rows make."""

    branch: Branch
    parts: tuple[str, ...]


class OperatorPlan(ABC, Generic[N]):
    """How a node that keeps state runs: its operator, what feeds that, the views of its state, its result in one batch."""

    def __init__(self, node: N):
        self.node = node

    # -- the operator

    @property
    @abstractmethod
    def operator(self) -> Operator:
        """What computes the node; where late rows of it are read, it emits those, too. Raises UnsupportedError."""

    @property
    def windows_made_here(self) -> TimeWindows | SessionWindow | None:
        """The windows below, where the operator makes them itself, from the event times of rows."""
        return None

    def feeds(self) -> list[FeedingPath]:
        """Return the paths that lead to the operator: of a node with one input all make all parts of its rows."""
        [below] = self.node.children
        return [FeedingPath(branch, tuple(self.operator.parts)) for branch in branches(below)]

    # -- its state

    @property
    def bound(self) -> str:
        """What bounds its state, in words."""
        return self.node.state_bound

    @property
    def result_windows(self) -> ResultWindows | None:
        """The windows of time that its result is of, None where it is of none."""
        return None

    @property
    def remembered(self) -> tuple[Remembered, ...]:
        """What a time to live forgets of its state, or would."""
        return self.operator.remembered if self.node.can_forget else ()

    @property
    def time_column(self) -> str | None:
        """The time attribute of the rows that it emits."""
        return self.node.time_attribute

    @property
    def view(self) -> Rows:
        """The view of its state: the columns of the node with their current values, and what the operator adds."""
        operator = self.operator
        current = operator.current(state_tables(operator), reached(self.node.delay_below))
        if operator.viewed is not None:
            return Rows.of(current, operator.viewed)
        columns = [(f.name, f.type, quote_name(f.name)) for f in self.node.schema]
        names = {name.lower() for name, _, _ in columns}
        shown = (item for item in self._shown() if item.name.lower() not in names)
        columns += [(item.name, item.expression.type, item.expression.sql) for item in shown]
        columns += [(c.name, c.type, quote_name(c.name)) for c in operator.accumulators if c.name.lower() not in names]
        columns += [(c.name, c.type, c.name) for c in operator.key_times if c.name not in names]
        return Rows.selected(f"({current})", columns)

    def _shown(self) -> Iterator[SelectItem]:
        """Yield what a select list makes of its result, for the view of its state."""
        yield from ()

    def side_views(self) -> Iterator[tuple[str, Rows]]:
        """Yield the views of what else it keeps, each with what its name has behind the operator's."""
        yield from ()

    def late_views(self, name: str) -> Iterator[tuple[str, Rows]]:
        """Yield the views of the late rows that the operator of a name keeps, by the names that the query gives them."""
        yield from ()

    # -- in records

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Yield what it keeps beside its keys: columns of rows, calls, states."""

    @abstractmethod
    def settings(self, inputs: InputOrigins) -> Settings:
        """Yield what else makes its results others, by name."""

    # -- in one batch

    @abstractmethod
    def batch(self, query: BatchQuery) -> BatchRows:
        """Return the rows of the node over all rows at once, as part of a query of DuckDB. Raises CannotVerify."""


def state_tables(operator: Operator) -> dict[str, str]:
    """Return an operator's state tables as its views know them, FROM-able by name."""
    return {table.name: quote_name(table.name) for table in operator.tables}


def columns_of(node: Node) -> tuple[Column, ...]:
    """Return the columns of a node's rows as operators keep them."""
    return tuple(Column(f.name, f.type) for f in node.schema)


def key_columns(node: Node, names: tuple[str, ...]) -> tuple[tuple[Column, str], ...]:
    """Return keys that are columns of a node's rows, each with its SQL."""
    types = {f.name: f.type for f in node.schema}
    return tuple((Column(name, types[name]), quote_name(name)) for name in names)


def kept_rows(node: Node, place: int = 0) -> Iterator[ColumnItem]:
    """Yield the columns of a node's rows, all of which an operator keeps."""
    return (ColumnItem.of(field, place) for field in node.schema)
