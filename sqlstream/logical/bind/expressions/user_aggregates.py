"""Calls of the user's aggregate functions: order and checks of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from sqlstream.catalog import AggregateFunction
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.bind.expressions.arguments import order_arguments
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.expressions import Schema


class Block(Protocol):
    """The part of ExpressionBinder that this module uses."""

    scope: Scope
    checker: TypeChecker

    @property
    def rows(self) -> Schema: ...

    def rewrite(self, node: exp.Expr) -> exp.Expr: ...

    def span(self, node: exp.Expr) -> Span: ...


def ordered_arguments(
    function: AggregateFunction, arguments: Sequence[exp.Expr], node: exp.Expr, block: Block
) -> list[exp.Expr]:
    """Return the parsed arguments of a call, one per parameter, in order.

    Raises BindError for arguments that do not fit, UnsupportedError for a function that is not deterministic.
    """
    if not function.deterministic:
        hint = "A replay could differ: leave out deterministic=False where equal rows give equal results."
        what = f"{function.name}, an aggregate function that is not deterministic"
        raise UnsupportedError(what, block.span(node), hint=hint)
    if (star := next((a for a in arguments if isinstance(a, exp.Star)), None)) is not None or not arguments:
        hint = f"parameters: {', '.join(function.names)}"
        raise BindError(f'function "{function.name}" takes values of a row', block.span(star or node), hint=hint)
    call = _call(function, arguments, node)
    order_arguments(call, function, block.scope.source)
    return list(call.expressions)


def own_type(function: AggregateFunction, arguments: Sequence[exp.Expr], node: exp.Expr, block: Block) -> str:
    """Return the type of a call with parsed arguments, one per parameter. Raises BindError for an argument of a wrong type."""
    bound = _call(function, [block.rewrite(argument) for argument in arguments], node)
    return block.checker.type(block.rows, bound, block.scope.source)


def _call(function: AggregateFunction, arguments: Sequence[exp.Expr], node: exp.Expr) -> exp.Anonymous:
    call = exp.Anonymous(this=function.name, expressions=[argument.copy() for argument in arguments])
    call.meta.update(node.meta)
    return call
