"""Bound expressions, and the parts of nodes that consist of them: columns, select items, aggregate calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from sqlglot import exp

from sqlstream.catalog import AggregateFunction
from sqlstream.duck import clock_calls, time_variables
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import quote_name, unquoted
from sqlstream.errors import Span
from sqlstream.logical.plan.predicates import Claims
from sqlstream.sql.dialect import to_duckdb

# The types that a time attribute can have.
TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


# The functions that return several rows for one.
UNNESTS = ("unnest", "unlist")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What an expression depends on: columns of its input, processing time, the watermark before the batch."""

    columns: frozenset[str] = frozenset()
    time: bool = False
    watermark: bool = False

    @property
    def clock(self) -> bool:
        """Whether it depends on processing time or on the watermark."""
        return self.time or self.watermark

    def __or__(self, other: Dependencies) -> Dependencies:
        return Dependencies(self.columns | other.columns, self.time or other.time, self.watermark or other.watermark)

    @classmethod
    def of(cls, bound: exp.Expr) -> Dependencies:
        """Return what a bound expression reads."""
        variables = clock_calls.variables_in(bound)
        columns = frozenset(node.name for node in bound.find_all(exp.Column))
        return cls(columns, time_variables.NOW_VARIABLE in variables, time_variables.WATERMARK_VARIABLE in variables)


@dataclass(frozen=True, slots=True)
class Expression:
    """A bound scalar expression: DuckDB SQL over the columns of one node, its DuckDB type, and its properties.

    `volatile`: two evaluations may differ, as for random(). `column` is the name of the column if the expression is nothing but a
    column. With `is_now` it is the processing time itself; with `makes_rows` it contains UNNEST. An item of ORDER BY has its
    direction in `sql`, and `descends` if that is DESC. `claims` are what a condition implies about columns.
    """

    sql: str
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)
    volatile: bool = False
    reads: Dependencies = field(kw_only=True, compare=False, repr=False)
    column: str | None = field(default=None, kw_only=True, compare=False, repr=False)
    is_now: bool = field(default=False, kw_only=True, compare=False, repr=False)
    makes_rows: bool = field(default=False, kw_only=True, compare=False, repr=False)
    descends: bool = field(default=False, kw_only=True, compare=False, repr=False)
    claims: Claims = field(default=Claims(), kw_only=True, compare=False, repr=False)

    def __str__(self) -> str:
        return self.sql

    @classmethod
    def of(cls, bound: exp.Expr, type: str, span: Span | None = None, volatile: bool = False) -> Expression:
        """Return the expression of a bound tree, which may be an item of ORDER BY with its direction."""
        value = (bound.this if isinstance(bound, exp.Ordered) else bound).unnest()
        return cls(
            to_duckdb(bound),
            type,
            span,
            volatile,
            reads=Dependencies.of(bound),
            column=value.name if isinstance(value, exp.Column) else None,
            is_now=clock_calls.is_now(value),
            makes_rows=makes_rows(bound),
            descends=isinstance(bound, exp.Ordered) and bool(bound.args.get("desc")),
            claims=Claims.of(value),
        )

    @classmethod
    def of_column(cls, name: str, type: str, span: Span | None = None) -> Expression:
        """Return the expression that reads a column."""
        return cls(quote_name(name), type, span, reads=Dependencies(frozenset({name})), column=name)

    @classmethod
    def over(cls, parts: Iterable[Expression], sql: str, type: str) -> Expression:
        """Return an expression whose SQL is composed of `parts`; its position in the text is the position of the first part."""
        parts = tuple(parts)
        return cls(
            sql,
            type,
            parts[0].span if parts else None,
            any(p.volatile for p in parts),
            reads=reduce(or_, (p.reads for p in parts), Dependencies()),
            makes_rows=any(p.makes_rows for p in parts),
        )

    @classmethod
    def both(cls, a: Expression, b: Expression, sql: str) -> Expression:
        """Return the condition a AND b, written as `sql`."""
        return replace(cls.over((a, b), sql, "BOOLEAN"), claims=a.claims & b.claims)

    def cast(self, type: str, *, how: str = "CAST") -> Expression:
        """Return the expression cast to a type, by CAST or TRY_CAST (`how`); the same object if it has that type."""
        if self.type == type:
            return self
        return replace(self, sql=f"{how}({self.sql} AS {type})", type=type, column=None, is_now=False, claims=Claims())


def column_names(expressions: Iterable[Expression]) -> tuple[str, ...]:
    """Return the name of each expression that is a column, and the SQL, without needless quotes, of any other."""
    return tuple(e.column or unquoted(e.sql) for e in expressions)


def declared(order: Iterable[Expression]) -> tuple[Expression, ...]:
    """Return the items of an order that the query names: those without the order of arrival, which decides ties."""
    return tuple(e for e in order if e.column != ARRIVED.name)


def arrived(order: Iterable[Expression]) -> tuple[Expression, ...]:
    """Return the item of an order that is the order of arrival; nothing if it has none."""
    return tuple(e for e in order if e.column == ARRIVED.name)


def makes_rows(bound: exp.Expr) -> bool:
    """Return whether an expression contains a call of UNNEST."""
    return any(call.name.lower() in UNNESTS for call in bound.find_all(exp.Anonymous))


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node's output."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


Schema = tuple[Field, ...]


def visible(schema: Schema) -> Schema:
    """Return columns without the hidden one, which is the order of arrival."""
    return tuple(f for f in schema if f.name != ARRIVED.name)


@dataclass(frozen=True, slots=True)
class Item:
    """An output column of a projection: its name and its expression."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class AggregateItem:
    """An aggregate call over the columns of the aggregate's input, with the name and the type of its result.

    The SQL of the items of `order_by` includes their direction. `python` is the declaration of a user's function.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[Expression, ...]
    filter: Expression | None
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)
    python: AggregateFunction | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions over input rows: arguments, items of ORDER BY, and the filter."""
        return (*self.arguments, *self.order_by, *((self.filter,) if self.filter else ()))

    @property
    def sql(self) -> str:
        """The SQL of the call, without the name of its result; with the accumulator's type for a user's function that merges."""
        inside = ("DISTINCT " if self.distinct else "") + (", ".join(map(str, self.arguments)) or "*")
        inside += f" ORDER BY {', '.join(map(str, self.order_by))}" if self.order_by else ""
        where = f" FILTER (WHERE {self.filter})" if self.filter else ""
        # Two calls with accumulators of different types must not have the same text.
        accumulator = f" [{self.python.accumulator}]" if self.python is not None and self.python.merges else ""
        return f"{self.function}({inside}){where}{accumulator}"

    @property
    def retracting(self) -> str:
        """The text of the call over a changelog; whether a user's function has `retract` decides what is stored."""
        how = f" retracting {self.python.accumulator}" if self.python is not None and self.python.retracts else ""
        return f"{self.sql}{how} AS {self.name}"

    def __str__(self) -> str:
        return f"{self.sql} AS {self.name}"
