"""What operators declare of themselves, as values: keys, what they keep, settings. An upgrade compares two jobs by these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlstream.catalog import StateDeclaration
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.windows import TimeWindows
from sqlstream.sql.dialect import to_duckdb
from sqlstream.units import Duration, duration

# The SQL of the columns of a node over what tables and operators below it emit, but for columns that are those themselves.
Origins = Mapping[str, str]
# Names with texts, as records have them.
Settings = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class KeyItem:
    """A key: its name, and its expression over each input that has keys."""

    name: str
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ColumnItem:
    """A column of the rows of an input that are kept, and by what name the operator says where it holds it."""

    name: str
    expression: Expression
    place: int = 0
    held_as: str = ""

    @classmethod
    def of(cls, field: Field, place: int = 0) -> ColumnItem:
        return cls(field.name, Expression.of_column(field.name, field.type), place, field.name)


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call that is computed, and its manner; one that is `made_anew` of kept rows holds nothing itself."""

    call: AggregateItem
    manner: str = ""
    made_anew: bool = False


@dataclass(frozen=True, slots=True)
class StateItem:
    """A state of a function of the user's."""

    state: StateDeclaration


Item = ColumnItem | CallItem | StateItem


class InputOrigins:
    """The inputs of a node, over what the tables and operators below them emit."""

    def __init__(self, node: StatefulNode):
        self._node = node
        self.origins = [origins_of(child) for child in node.children]

    def inlined(self, expression: Expression, place: int = 0) -> str:
        """Return the SQL of an expression over an input."""
        return inlined(expression, self.origins[place])

    def inlined_list(self, expressions: Iterable[Expression], place: int = 0) -> str:
        """Return the SQL of several expressions over an input."""
        return ", ".join(self.inlined(e, place) for e in expressions)

    def inlined_condition(self, condition: Expression | None) -> str:
        """Return the SQL of a condition over all inputs, nothing where there is none."""
        together = {name: sql for origins in self.origins for name, sql in origins.items()}
        return inlined(condition, together) if condition is not None else ""

    def time(self, column: str, place: int = 0) -> str:
        """Return the SQL of a time of an input."""
        return self.inlined(column_of(self._node.children[place], column), place)

    def windows(self) -> str:
        """Return which windows the rows of the input are in."""
        [below] = self._node.children
        return windows_of(below)


def windows_of(node: Node) -> str:
    """Return which windows the rows of a node are in, nothing where they are in none."""
    if (text := node.windows_setting(lambda e: inlined(e, origins_of(node.children[0])))) is not None:
        return text
    return ", ".join(filter(None, dict.fromkeys(map(windows_of, node.children))))


def changes_of_inputs(node: StatefulNode) -> Settings:
    """Yield which inputs have changes."""
    for place, below in enumerate(node.children):
        yield f"changes of input {place}", "yes" if below.is_changelog else ""


def ttl_text(ttl: Duration | None) -> str:
    """Return a time to live as records have it, nothing for ever."""
    return duration(ttl) if ttl else ""


def column_of(node: Node, name: str) -> Expression:
    """Return the expression that is a column of a node."""
    return next(Expression.of_column(f.name, f.type) for f in node.schema if f.name == name)


# -- where columns come from


def origins_of(node: Node) -> Origins:
    """Return what the columns of a node are, over those that the tables and operators below it emit."""
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
    """Return the columns that a node computes, over what the tables and operators below it emit."""
    if node.key_items is None and not node.call_items:
        return {}
    below = origins_of(node.children[0])
    keys = {k.name: inlined(k.expression, below) for k in node.key_items or ()}
    return {**keys, **{call.name: inlined_call(call, below) + manner for call, manner in node.call_items}}


def own_sql(name: str) -> str:
    """Return the SQL of a column under its own name."""
    return Expression.of_column(name, "").sql


def inlined(expression: Expression, origins: Origins) -> str:
    """Return the SQL of an expression with every column as what it is over the tables and operators below."""
    if expression.column is not None and own_sql(expression.column) == expression.sql:
        return origins.get(expression.column, expression.sql)
    if origins.keys().isdisjoint(expression.reads.columns):
        return expression.sql
    try:
        tree = parse_one(f"SELECT x ORDER BY {expression.sql}", dialect="duckdb")
        transformed = tree.transform(lambda part: _replaced(part, origins))
        return to_duckdb(transformed).partition(" ORDER BY ")[2]
    except SqlglotError:
        # It is compared as it is written.
        return expression.sql


def _replaced(part: exp.Expression, origins: Origins) -> exp.Expression:
    if isinstance(part, exp.Column) and part.name in origins:
        return exp.Paren(this=parse_one(origins[part.name], dialect="duckdb"))
    return part


def inlined_call(call: AggregateItem, origins: Origins) -> str:
    """Return an aggregate call over what the tables and operators below emit."""
    if all(origins.keys().isdisjoint(e.reads.columns) for e in call.expressions):
        return call.sql
    distinct = "DISTINCT " if call.distinct else ""
    inside = distinct + (", ".join(inlined(a, origins) for a in call.arguments) or "*")
    inside += f" ORDER BY {', '.join(inlined(o, origins) for o in call.order_by)}" if call.order_by else ""
    where = f" FILTER (WHERE {inlined(call.filter, origins)})" if call.filter else ""
    accumulator = f" [{call.python.accumulator}]" if call.python is not None and call.python.merges else ""
    return f"{call.function}({inside}){where}{accumulator}"
