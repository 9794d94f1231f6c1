"""The declarations of operators in a job's record: keys, stored items, settings. An upgrade compares two jobs by them.

Expressions are *inlined*: their columns are replaced by the SQL that computes them from the rows that tables, and operators
below, emit. So it does not matter how a query splits a computation into subqueries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlstream.catalog import StateDeclaration
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.logical.plan.state_settings import Sql, Windows
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.windows import TimeWindows
from sqlstream.sql.dialect import to_duckdb

# The inlined SQL of the columns of a node, by name; without columns that pass through under their own name.
Origins = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KeyItem:
    """A key: its name, and its expression over each input that has keys."""

    name: str
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ColumnItem:
    """A stored column of the input with the index `index`; `Operator.holds` has its state columns under the key `held_as`."""

    name: str
    expression: Expression
    index: int = 0
    held_as: str = ""

    @classmethod
    def of(cls, field: Field, index: int = 0) -> ColumnItem:
        """Return the item of a column that is stored as it is, under its own name."""
        return cls(field.name, Expression.of_column(field.name, field.type), index, field.name)


@dataclass(frozen=True, slots=True)
class CallItem:
    """An aggregate call, and for OVER the text of its frame (`manner`).

    With `made_anew` the result is computed anew from stored rows, so the call has no state columns. State columns under its name
    then store an input column of that name.
    """

    call: AggregateItem
    manner: str = ""
    made_anew: bool = False


@dataclass(frozen=True, slots=True)
class StateItem:
    """A state of a user's process function."""

    state: StateDeclaration


Item = ColumnItem | CallItem | StateItem


class InputOrigins:
    """Inlines expressions over the inputs of a node; `index` is the index of an input, from 0."""

    def __init__(self, node: StatefulNode):
        self._node = node
        self.origins = [origins_of(child) for child in node.children]

    def inlined(self, expression: Expression, index: int = 0) -> str:
        """Return the inlined SQL of an expression over an input."""
        return inlined(expression, self.origins[index])

    def order(self, expressions: Iterable[Expression], index: int = 0) -> tuple[Sql, ...]:
        """Return the inlined items of an order over an input."""
        return tuple(Sql(self.inlined(e, index)) for e in expressions)

    def condition(self, condition: Expression | None) -> Sql | None:
        """Return an inlined condition over all inputs, or None."""
        together = {name: sql for origins in self.origins for name, sql in origins.items()}
        return Sql(inlined(condition, together)) if condition is not None else None

    def time(self, column: str, index: int = 0) -> Sql:
        """Return the inlined time column of an input."""
        return Sql(self.inlined(column_of(self._node.children[index], column), index))

    def windows(self) -> tuple[Windows, ...]:
        """Return the windows of the rows of the only input."""
        [below] = self._node.children
        return windows_of(below)


def windows_of(node: Node) -> tuple[Windows, ...]:
    """Return the windows of the rows of a node; several if it unites rows of different windows."""
    windows = node.windows_setting(lambda e: inlined(e, origins_of(node.children[0])))
    if windows is not None:
        return (windows,)
    return tuple(dict.fromkeys(one for child in node.children for one in windows_of(child)))


def column_of(node: Node, name: str) -> Expression:
    """Return the expression that reads a column of a node."""
    return next(Expression.of_column(f.name, f.type) for f in node.schema if f.name == name)


# -- where columns come from


def origins_of(node: Node) -> Origins:
    """Return the inlined SQL of the columns of a node, by name; empty for a node such as a scan or a join."""
    match node:
        case Projection():
            below = origins_of(node.input)
            columns = {i.name: inlined(i.expression, below) for i in node.items}
        case Filter() | TimeWindows() | Expand():
            return origins_of(node.input)
        case StatefulNode() if node.key_items is not None:
            columns = dict(computed_columns(node))
        case _:
            return {}
    return {name: sql for name, sql in columns.items() if sql != own_sql(name)}


def computed_columns(node: StatefulNode) -> Mapping[str, str]:
    """Return the inlined SQL of the keys and calls that an operator computes, by the names of its columns."""
    if node.key_items is None and not node.call_items:
        return {}
    below = origins_of(node.children[0])
    keys = {k.name: inlined(k.expression, below) for k in node.key_items or ()}
    return {**keys, **{call.name: inlined_call(call, below) + manner for call, manner in node.call_items}}


def own_sql(name: str) -> str:
    """Return the SQL that reads a column of this name."""
    return Expression.of_column(name, "").sql


def inlined(expression: Expression, origins: Origins) -> str:
    """Return the SQL of an expression with its columns replaced by their origins.

    If no column has an origin, or sqlglot cannot parse the SQL, it is returned as it is.
    """
    if expression.column is not None and canonical(expression.sql) == canonical(own := own_sql(expression.column)):
        return origins.get(expression.column, own)
    if origins.keys().isdisjoint(expression.reads.columns):
        return expression.sql
    try:
        tree = parse_one(f"SELECT x ORDER BY {expression.sql}", dialect="duckdb")
        transformed = tree.transform(lambda part: _replaced(part, origins))
        return to_duckdb(transformed).partition(" ORDER BY ")[2]
    except SqlglotError:
        # The text is compared as it is.
        return expression.sql


def _replaced(part: exp.Expression, origins: Origins) -> exp.Expression:
    if isinstance(part, exp.Column) and part.name in origins:
        return exp.Paren(this=parse_one(origins[part.name], dialect="duckdb"))
    return part


def inlined_call(call: AggregateItem, origins: Origins) -> str:
    """Return the SQL of an aggregate call with its columns replaced by their origins."""
    if all(origins.keys().isdisjoint(e.reads.columns) for e in call.expressions):
        return call.sql
    distinct = "DISTINCT " if call.distinct else ""
    inside = distinct + (", ".join(inlined(a, origins) for a in call.arguments) or "*")
    inside += f" ORDER BY {', '.join(inlined(o, origins) for o in call.order_by)}" if call.order_by else ""
    where = f" FILTER (WHERE {inlined(call.filter, origins)})" if call.filter else ""
    accumulator = f" [{call.python.accumulator}]" if call.python is not None and call.python.merges else ""
    return f"{call.function}({inside}){where}{accumulator}"
