"""Binding of grouped queries: which expressions are keys, which columns the window, which calls the aggregates."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain

from sqlglot import exp

from sqlstream.errors import BindError, UnsupportedError
from sqlstream.logical.expressions import ExpressionBinder, GroupedBinder, makes_rows
from sqlstream.logical.judge import NULL_TYPE
from sqlstream.logical.nodes import (
    AggregateItem,
    Expression,
    Field,
    Filter,
    Item,
    Node,
    Project,
    Schema,
    WindowAggregate,
    WindowColumns,
    quote,
    schema,
    window_columns,
)
from sqlstream.logical.scope import Scope, unique
from sqlstream.sql.dialect import to_duckdb

Projections = list[tuple[str, exp.Expr]]
_NEED_WINDOW = "Group by window_start and window_end of TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)."


class Aggregation:
    """One grouped query block: SELECT .. GROUP BY .. HAVING over `node`."""

    def __init__(self, binder: ExpressionBinder, node: Node, projections: Projections):
        self.binder, self.node, self.projections = binder, node, projections
        self.aggregates: dict[str, AggregateItem] = {}
        self.taken: set[str] = set()
        # The output name of the select item being bound, where that is an aggregate call.
        self.output: str | None = None

    def bind(self, group: exp.Expr | None, having: exp.Expr | None, select: exp.Select) -> Node:
        """Return the plan of the block: an aggregate, HAVING as a filter over it, the select list on top."""
        keys, names = self._keys(group)
        window = self._window(names, group or select)
        bounds = {c for c in (window.start, window.end, window.time) if c is not None}
        grouped = self._grouped_binder(keys, names)
        self.taken |= {n.lower() for n in (*names.values(), *bounds)}
        selected = [(name, node, grouped.rewrite_item(self._named(name, node))) for name, node in self.projections]
        condition = grouped.rewrite(having.this) if having is not None else None
        grouped_rows = WindowAggregate(
            input=self.node,
            name="",
            keys=tuple(k for k in keys if k.name not in bounds),
            window=window,
            aggregates=tuple(self.aggregates.values()),
            span=self.binder.span(select),
        )
        above = Scope("", schema(grouped_rows), self.binder.scope.source, "the grouped rows")
        result = ExpressionBinder(above, self.binder.catalog, self.binder.judge)
        items = self._items(result, selected)
        # The state has a row per group, however many rows UNNEST makes of one.
        shown = tuple(item for item, (_, _, b) in zip(items, selected, strict=True) if not makes_rows(b))
        plan: Node = replace(grouped_rows, shown=shown)
        if condition is not None and having is not None:
            predicate = result.typed(condition, having.this)
            if predicate.type not in ("BOOLEAN", NULL_TYPE):
                raise BindError(f"HAVING needs a condition, not a value of type {predicate.type}", predicate.span)
            plan = Filter(plan, predicate)
        return Project(plan, items)

    def _grouped_binder(self, keys: list[Item], names: dict[str, str]) -> GroupedBinder:
        def rows() -> Schema:
            fields = [Field(k.name, k.expression.type) for k in keys]
            return (*fields, *(Field(a.name, a.type) for a in self.aggregates.values()))

        binder = self.binder
        return GroupedBinder(binder.scope, binder.catalog, binder.judge, names, self._aggregate, rows)

    def _items(self, result: ExpressionBinder, selected: list[tuple[str, exp.Expr, exp.Expr]]) -> tuple[Item, ...]:
        types = result.judge.types(result.scope.schema, [b for _, _, b in selected], result.scope.source)
        names = unique([name for name, _, _ in selected])
        return tuple(
            Item(name, Expression(to_duckdb(b), type, result.span(node), result.is_volatile(b)))
            for name, (_, node, b), type in zip(names, selected, types, strict=True)
        )

    # -- keys

    def _keys(self, group: exp.Expr | None) -> tuple[list[Item], dict[str, str]]:
        """Return the grouping keys, and their names by their SQL over the input."""
        keys: list[Item] = []
        names: dict[str, str] = {}
        bounds = self._bounds_below()
        self.taken |= {name.lower() for name in bounds.values()}
        if group is None:
            return keys, names
        for node in self._grouped(group):
            self.binder.refuse_aggregates(node, "in GROUP BY")
            bound = self.binder.bind(node)
            if bound.sql in names:
                continue
            # A window's bounds keep their names: they say which window a row of the state is of.
            name = names[bound.sql] = bounds.get(bound.sql) or self._key_name(node)
            # A key of no type, NULL, could not be stored.
            typed = (
                bound if bound.type != NULL_TYPE else Expression(f"CAST({bound.sql} AS INTEGER)", "INTEGER", bound.span)
            )
            keys.append(Item(name, typed))
        return keys, names

    def _grouped(self, group: exp.Expr) -> list[exp.Expr]:
        if group.args.get("all"):
            return [e for _, e in self.projections if not any(self.binder.is_aggregate(n) for n in e.walk())]
        found = []
        for node in chain.from_iterable(_parts(e) for e in group.expressions):
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                what = "GROUPING SETS" if isinstance(node, exp.GroupingSets) else node.key.upper()
                raise self.binder.unsupported(what, node, "Write a query for each grouping, and UNION ALL.")
            if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
                place = int(node.name)
                if not 1 <= place <= len(self.projections):
                    raise BindError(f"GROUP BY position {node.name} is not in the select list", self.binder.span(node))
                node = self.projections[place - 1][1]
            elif isinstance(node, exp.Column) and not node.table and self.binder.scope.find(node.name) is None:
                node = self.binder.scope.select_aliases.get(node.name.lower(), node)
            found.append(node)
        return found

    def _key_name(self, node: exp.Expr) -> str:
        alias = next((name for name, e in self.projections if e == node), None)
        return self._free(alias or (node.name if isinstance(node, exp.Column) else "") or readable(to_duckdb(node)))

    def _bounds_below(self) -> dict[str, str]:
        """Return the names of the columns that bound the input's windows, by their SQL."""
        below = window_columns(self.node)
        columns = (below.start, below.end, below.time) if below is not None else ()
        return {quote(c): c for c in columns if c is not None}

    def _window(self, names: dict[str, str], at: exp.Expr) -> WindowColumns:
        """Return the bounds of the windows that rows are grouped by; without a window, state would never be dropped."""
        below = window_columns(self.node)
        found = below is not None and any(c is not None and quote(c) in names for c in (below.start, below.end))
        if below is None or not found:
            raise UnsupportedError("GROUP BY without a window", self.binder.span(at), hint=_NEED_WINDOW)
        return below

    # -- aggregate calls

    def _named(self, name: str, node: exp.Expr) -> exp.Expr:
        """Remember the output name of a select item that is an aggregate call."""
        self.output = name if self.binder.is_aggregate(node) else None
        return node

    def _aggregate(self, node: exp.Expr) -> str:
        """Return the name of an aggregate call's result, binding the call when it is new."""
        item = self._bind_call(node)
        for known in self.aggregates.values():
            if replace(known, name="") == item:
                return known.name
        name = self._free(self.output or readable(to_duckdb(node)))
        self.output = None
        self.aggregates[name] = replace(item, name=name)
        return name

    def _bind_call(self, node: exp.Expr) -> AggregateItem:
        call, where, order = node, None, []
        while not isinstance(call, exp.Anonymous):
            match call:
                case exp.Filter():
                    where = call.expression.this
                case exp.WithinGroup():
                    return self._within_group(node, call, where)
                case _:
                    raise self.binder.unsupported("this aggregate", node, None)
            call = call.this
        arguments = list(call.expressions)
        distinct = False
        if arguments and isinstance(arguments[-1], exp.Order):
            order = list(arguments[-1].expressions)
            arguments[-1:] = [arguments[-1].this]
        if arguments and isinstance(arguments[0], exp.Distinct):
            distinct = True
            arguments = list(arguments[0].expressions) + arguments[1:]
        return self._typed_call(node, call.name.lower(), arguments, distinct, order, where)

    def _within_group(self, node: exp.Expr, call: exp.WithinGroup, where: exp.Expr | None) -> AggregateItem:
        """Bind `f(q) WITHIN GROUP (ORDER BY x)` as the call over x that it means."""
        function, order = call.this.name.lower(), call.expression.expressions
        plain = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc", "mode": "mode"}.get(function)
        if plain is None or len(order) != 1:
            raise self.binder.unsupported(f"{function} WITHIN GROUP", node, f"Write {function}(x ORDER BY y).")
        arguments = [order[0].this, *call.this.expressions]
        descending = order if order[0].args.get("desc") or plain == "mode" else []
        return self._typed_call(node, plain, arguments, False, descending, where)

    def _typed_call(
        self,
        node: exp.Expr,
        function: str,
        arguments: list[exp.Expr],
        distinct: bool,
        order: list[exp.Expr],
        where: exp.Expr | None,
    ) -> AggregateItem:
        binder = self.binder
        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        for inside in (*arguments, *order, *([where] if where is not None else [])):
            binder.refuse_aggregates(inside, "inside another one")
        ordered = [o.this if isinstance(o, exp.Ordered) else o for o in order]
        values = self._expressions([*arguments, *ordered])
        inputs, keys = values[: len(arguments)], values[len(arguments) :]
        directed = tuple(replace(key, sql=to_duckdb(binder.rewrite(o))) for key, o in zip(keys, order, strict=True))
        return AggregateItem(
            name="",
            function=function,
            arguments=inputs,
            distinct=distinct,
            order_by=directed,
            filter=binder.bind(where) if where is not None else None,
            type=binder.judge.type(binder.scope.schema, self._whole(node), binder.scope.source),
            span=binder.span(node),
        )

    def _expressions(self, nodes: list[exp.Expr]) -> tuple[Expression, ...]:
        """Bind several expressions at once."""
        binder = self.binder
        bound = [binder.rewrite(node) for node in nodes]
        types = binder.judge.types(binder.scope.schema, bound, binder.scope.source)
        return tuple(
            Expression(to_duckdb(b), t, binder.span(node), binder.is_volatile(b))
            for node, b, t in zip(nodes, bound, types, strict=True)
        )

    def _whole(self, node: exp.Expr) -> exp.Expr:
        """Return the bound call itself, for its type."""
        return _CallBinder(self.binder.scope, self.binder.catalog, self.binder.judge).rewrite(node)

    def _free(self, name: str) -> str:
        candidate, number = name, 1
        while candidate.lower() in self.taken:
            number += 1
            candidate = f"{name}_{number}"
        self.taken.add(candidate.lower())
        return candidate


class _CallBinder(ExpressionBinder):
    """Binds an aggregate call as a whole: what is inside of it is over the input."""

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        if not isinstance(node, exp.Star) and not self.is_aggregate(node):
            return None
        for child in list(node.iter_expressions()):
            bound = self._rewrite(child)
            if bound is not child:
                child.replace(bound)
        return node


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """Return what parentheses in GROUP BY hold, which may be nothing."""
    return [part for e in node.expressions for part in _parts(e)] if isinstance(node, exp.Tuple) else [node.unnest()]


def readable(sql: str) -> str:
    """Return a name for an expression.

    >>> readable("COUNT(*)"), readable('sum("dep_delay" * 2)')
    ('count', 'sum_dep_delay_2')
    """
    return re.sub(r"\W+", "_", sql.lower()).strip("_") or "value"
