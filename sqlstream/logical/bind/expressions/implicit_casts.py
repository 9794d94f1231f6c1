"""Flink's implicit cast: a text beside a number, as in `s > 5` and `'12' + 1`, is read as a number of the other's type.

A text of a row that is no such number makes the row malformed: `UnfitValues` collects the conditions that tell. The value is
NULL, and a query block leaves out the row and counts it, as a reader does with a row that it cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from sqlstream.duck.types import INTEGERS
from sqlstream.logical.bind.expressions.decimals import decimal_of
from sqlstream.logical.bind.expressions.flink_values import as_number
from sqlstream.logical.plan.expressions import Dependencies, Expression
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.tables import Scan
from sqlstream.logical.plan.windows import TimeWindows
from sqlstream.sql.dialect import to_duckdb

# Returns the DuckDB type of a bound expression, None if it is not known.
TypeOf: TypeAlias = Callable[[exp.Expr], str | None]

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
# Flink reads a text beside any DECIMAL with these digits.
_DECIMAL = "DECIMAL(38,19)"
# The integers, narrow ones first.
_WIDTHS = ("UTINYINT", "TINYINT", "USMALLINT", "SMALLINT", "UINTEGER", "INTEGER", "UBIGINT", "BIGINT", "HUGEINT")
# Calls that compute an argument only for some rows, or take its error.
_LAZY = frozenset({"coalesce", "if", "ifnull", "nullif", "try"})


class ImplicitCast(NamedTuple):
    """A text among the operands of an operator, the type of the number that it is read as, and the SQL form of the cast."""

    operand: exp.Expr
    type: str
    form: str

    @property
    def is_literal(self) -> bool:
        return _is_text_literal(self.operand)


def implicit_casts(node: exp.Expr, type_of: TypeOf) -> list[ImplicitCast]:
    """Return the casts that Flink adds to the operands of a bound operator; none if no text stands beside a number.

    DuckDB itself reads a literal that is compared with a number.
    """
    operands = _operands(node)
    texts = [operand for operand in operands if _is_text(operand, type_of)]
    if not texts or len(texts) == len(operands):
        return []
    types = [type_of(operand) for operand in operands if all(operand is not text for text in texts)]
    numbers = [type for type in types if type is not None and _is_number(type)]
    if len(numbers) < len(types):
        return []
    if not isinstance(node, _ARITHMETIC):
        texts = [text for text in texts if not (_is_text_literal(text) and "." not in text.unnest().name)]
    target = _common(numbers)
    return [ImplicitCast(text, target, as_number(text, target, type_of)) for text in texts]


def numbers_beside_texts(node: exp.Expr, type_of: TypeOf) -> list[exp.Expr]:
    """Return the results of CASE that are numbers, if others are texts: in Flink all are texts then."""
    if not isinstance(node, exp.Case):
        return []
    results = [branch.args["true"] for branch in node.args["ifs"]]
    results += [node.args["default"]] if node.args.get("default") is not None else []
    if not any(_is_text(result, type_of) for result in results):
        return []
    return [one for one in results if (type := type_of(one)) is not None and _is_number(type)]


def is_lazy(node: exp.Expr) -> bool:
    """Return whether a node computes its parts only for some rows, so that a value in it may be no number."""
    if isinstance(node, exp.Case | exp.Lambda):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in _LAZY


@dataclass(slots=True)
class UnfitValues:
    """The conditions that a text in an expression of a query block is no number; bound trees over the block's input."""

    conditions: list[exp.Expr] = field(default_factory=list)
    _depth: int = 0

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Collect nothing within: the value is NULL, and its row stays."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def add(self, condition: exp.Expr) -> None:
        if not self._depth:
            self.conditions.append(condition)

    def of_rows(self, node: Node) -> Expression | None:
        """Return the condition that one of the values over rows of a node does not fit; None if there are none."""
        names = {f.name for f in node.schema}
        sqls = {to_duckdb(one): one for one in self.conditions if Dependencies.of(one).columns <= names}
        if not sqls:
            return None
        parts = [Expression.of(one, "BOOLEAN") for one in sqls.values()]
        return Expression.over(parts, " OR ".join(f"({sql})" for sql in sqls), "BOOLEAN")


def fitting(node: Node, unfit: UnfitValues) -> Node:
    """Return a plan without the rows that have a value that does not fit; the same object if none can have one.

    Above an operator the value is NULL, and its row stays: no row of a table is to blame.
    """
    condition = unfit.of_rows(node)
    if condition is None or not _is_of_tables(node):
        return node
    return _filtered(node, condition)


def _filtered(node: Node, unfit: Expression) -> Node:
    """Return a plan without the rows that are unfit: they are left out before they are put into windows."""
    if isinstance(node, TimeWindows) and unfit.reads.columns <= {f.name for f in node.input.schema}:
        return node.with_children((_filtered(node.input, unfit),))
    return Filter(node, Expression.over([unfit], f"NOT ({unfit.sql})", "BOOLEAN"), unfit=unfit)


def undecided(predicate: Expression, node: Node, unfit: UnfitValues) -> Expression | None:
    """Return the condition that WHERE is NULL for a row since a value does not fit; None if all values fit."""
    condition = unfit.of_rows(node)
    if condition is None:
        return None
    return Expression.over([predicate, condition], f"({predicate.sql}) IS NULL AND ({condition.sql})", "BOOLEAN")


def _is_of_tables(node: Node) -> bool:
    """Return whether each row of a node was made of a row of a table, without an operator between."""
    match node:
        case Scan():
            return True
        case Filter() | Projection() | TimeWindows() | Lateral() | Expand():
            return _is_of_tables(node.input)
        case Union():
            return all(map(_is_of_tables, node.inputs))
        case _:
            return False


def _operands(node: exp.Expr) -> tuple[exp.Expr, ...]:
    match node:
        case exp.Between():
            return node.this, node.args["low"], node.args["high"]
        case exp.In() if node.expressions:
            return node.this, *node.expressions
        case exp.Binary() if isinstance(node, (*_COMPARISONS, *_ARITHMETIC)):
            return node.this, node.expression
        case _:
            return ()


def _is_text(node: exp.Expr, type_of: TypeOf) -> bool:
    inner = node.unnest()
    # DuckDB is not asked for the types of long sums and conditions.
    if isinstance(
        inner, (*_COMPARISONS, *_ARITHMETIC, exp.Connector, exp.Not, exp.Neg, exp.Boolean, exp.Null, exp.Interval)
    ):
        return False
    return type_of(inner) == "VARCHAR"


def _is_number(type: str) -> bool:
    return type in INTEGERS or type in ("FLOAT", "DOUBLE", "HUGEINT") or decimal_of(type) is not None


def _is_text_literal(node: exp.Expr) -> bool:
    inner = node.unnest()
    return isinstance(inner, exp.Literal) and inner.is_string


def _common(types: Sequence[str]) -> str:
    """Return the type that a text beside numbers of these types is read as.

    >>> _common(["INTEGER"]), _common(["INTEGER", "BIGINT"]), _common(["DECIMAL(10,2)"]), _common(["INTEGER", "FLOAT"])
    ('INTEGER', 'BIGINT', 'DECIMAL(38,19)', 'DOUBLE')
    """
    if any(type in ("FLOAT", "DOUBLE") for type in types):
        return "DOUBLE"
    if any(type not in _WIDTHS for type in types):
        return _DECIMAL
    return max(types, key=_WIDTHS.index)
