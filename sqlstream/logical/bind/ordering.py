"""ORDER BY of a whole query: over the columns of its result, and over other columns of its input."""

from __future__ import annotations

from itertools import count

from sqlglot import exp

from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.scope import column_reference
from sqlstream.logical.plan.expressions import Schema
from sqlstream.sql.spans import span_of


def with_hidden_items(query: exp.Expr, fields: Schema) -> exp.Expr:
    """Add the items of ORDER BY that name columns outside the result to the select list of a query.

    They are called `_order_1`, `_order_2`, .., and come last. Returns the same object if there are none, or with DISTINCT.
    """
    names = {f.name.lower() for f in fields}

    def is_hidden(item: exp.Expr) -> bool:
        return any(c.table or c.name.lower() not in names for c in item.find_all(exp.Column))

    distinct = query.args.get("distinct") is not None
    if distinct or not isinstance(query, exp.Select) or not any(map(is_hidden, query.args["order"].expressions)):
        return query
    query = query.copy()
    for number, item in enumerate(filter(is_hidden, query.args["order"].expressions), 1):
        name = next(n for i in count(number) if (n := f"_order_{i}") not in names)
        query.append("expressions", exp.alias_(item.this.copy(), name, quoted=True))
        item.set("this", column_reference(name))
    return query


def bound_items(order: exp.Order, fields: Schema, binder: ExpressionBinder) -> list[exp.Expr]:
    """Return the bound items of ORDER BY; a number stands for a column of `fields`, the result, ALL for all. Raises BindError."""
    items = []
    for item in _each_of_all(order, fields):
        position = item.this
        if isinstance(position, exp.Literal) and not position.is_string and position.name.isdigit():
            if not 1 <= int(position.name) <= len(fields):
                raise BindError(f"ORDER BY position {position.name} is not in the select list", binder.span(position))
            item = item.copy()
            item.set("this", column_reference(fields[int(position.name) - 1].name))
        items.append(binder.rewrite(item))
    return items


def _each_of_all(order: exp.Order, fields: Schema) -> list[exp.Expr]:
    """Return the items of ORDER BY, with one for each column in place of ALL."""
    items: list[exp.Expr] = order.expressions
    if not isinstance(items[0].this, exp.Var):
        return items
    # ALL stands alone: the grammar has nothing else beside it.
    each = []
    for field in fields:
        item = items[0].copy()
        item.set("this", column_reference(field.name))
        each.append(item)
    return each


def row_count(limit: exp.Expr, source: SourceText) -> int:
    """Return the number of rows of LIMIT, FETCH or OFFSET. Raises BindError for anything but an integer literal."""
    value = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if value is None and isinstance(limit, exp.Fetch):
        return 1
    options = limit.args.get("limit_options")
    percent = options is not None and options.args.get("percent")
    if percent or not (isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit()):
        raise BindError("LIMIT takes a number of rows", span_of(limit, source))
    return int(value.name)


def with_ties(query: exp.Expr) -> bool:
    """Return whether LIMIT, or FETCH, is WITH TIES."""
    options = query.args["limit"].args.get("limit_options")
    return options is not None and bool(options.args.get("with_ties"))
