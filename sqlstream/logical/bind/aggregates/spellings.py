"""Aggregates that DuckDB has under another name: Flink's FIRST_VALUE and LAST_VALUE, ksqlDB's COLLECT_LIST and BY_OFFSET.

`FIRST_VALUE(x) IGNORE NULLS` is `first(x) FILTER (WHERE x IS NOT NULL)`; EARLIEST_BY_OFFSET(x, n) keeps its name.
"""

from __future__ import annotations

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.errors import BindError, SourceText, UnsupportedError
from sqlstream.logical.bind.expressions.aggregate_names import BY_OFFSET, IGNORING, RENAMED
from sqlstream.sql.nodes import NULL_TREATING
from sqlstream.sql.spans import span_of

_FORMS = "(x), (x, n), (x, ignore_nulls) or (x, n, ignore_nulls)"


def in_duckdb(node: exp.Expr, catalog: Catalog, source: SourceText, *, flinks: bool = True) -> exp.Expr:
    """Return a parsed aggregate call, which may have FILTER around it, as a call of DuckDB; the same object if it is one.

    A call of a user's function stays as it is. With `flinks` values FIRST_VALUE and LAST_VALUE ignore NULLs by default.

    Raises BindError for arguments that are wrong, UnsupportedError for IGNORE NULLS of another function.
    """
    call = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(call, exp.Anonymous) or catalog.aggregate_function(call.name) is not None:
        return node
    name, arguments = call.name.lower(), list(call.expressions)
    ignores = flinks and ignores_nulls(node)
    if arguments and isinstance(arguments[-1], exp.IgnoreNulls | exp.RespectNulls):
        if name not in NULL_TREATING:
            hint = "Filter them with FILTER (WHERE x IS NOT NULL)."
            raise UnsupportedError(f"IGNORE NULLS of {call.name.upper()}", span_of(node, source), hint=hint)
        ignores = isinstance(arguments[-1], exp.IgnoreNulls)
        arguments[-1] = arguments[-1].this
    if name in BY_OFFSET:
        arguments, ignores = _by_offset(call, arguments, source)
        name = name if len(arguments) > 1 else BY_OFFSET[name]
    elif name not in RENAMED and arguments == call.expressions:
        return node
    written = exp.Anonymous(this=RENAMED.get(name, name), expressions=[a.copy() for a in arguments])
    written.meta.update(call.meta)
    conditions = [node.expression.this.copy()] if isinstance(node, exp.Filter) else []
    if ignores:
        conditions.append(exp.Not(this=exp.Is(this=_value(arguments[0]).copy(), expression=exp.Null())))
    if not conditions:
        return written
    condition = (
        conditions[0] if len(conditions) == 1 else exp.And(this=exp.Paren(this=conditions[0]), expression=conditions[1])
    )
    whole = exp.Filter(this=written, expression=exp.Where(this=condition))
    whole.meta.update(node.meta)
    return whole


def ignores_nulls(node: exp.Expr) -> bool:
    """Return whether a call, which may have FILTER around it, ignores NULLs in Flink though nothing says so."""
    call = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in IGNORING or not call.expressions:
        return False
    return not isinstance(call.expressions[-1], exp.IgnoreNulls | exp.RespectNulls)


def _by_offset(call: exp.Anonymous, arguments: list[exp.Expr], source: SourceText) -> tuple[list[exp.Expr], bool]:
    """Return the value of a call and, if there is one, the number of values; and whether it ignores NULLs, as by default."""
    ignores = True
    if len(arguments) > 1 and isinstance(arguments[-1], exp.Boolean):
        ignores = bool(arguments.pop().this)
    if not 1 <= len(arguments) <= 2 or isinstance(arguments[0], exp.Star):
        raise BindError(f"{call.name.upper()} takes {_FORMS}", span_of(call, source))
    if isinstance(arguments[0], exp.Distinct):
        raise UnsupportedError(f"DISTINCT inside {call.name.upper()}", span_of(arguments[0], source))
    if isinstance(arguments[-1], exp.Order):
        hint = f"Write list(x ORDER BY y)[:n]: {call.name.upper()} takes rows as they arrive."
        raise UnsupportedError(f"ORDER BY inside {call.name.upper()}", span_of(arguments[-1], source), hint=hint)
    if len(arguments) == 2 and not _is_count(arguments[1]):
        hint = "The last argument may be TRUE or FALSE: whether NULLs are ignored."
        raise BindError(
            f"the number of values of {call.name.upper()} must be a positive integer",
            span_of(arguments[1], source),
            hint=hint,
        )
    return arguments, ignores


def _is_count(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) > 0


def _value(argument: exp.Expr) -> exp.Expr:
    """Return the value of an argument, without DISTINCT and ORDER BY around it."""
    while isinstance(argument, exp.Distinct | exp.Order):
        argument = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument.this
    return argument
