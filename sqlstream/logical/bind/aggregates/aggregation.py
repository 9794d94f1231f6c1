"""Binding of grouped queries: keys, windows, aggregate calls, HAVING and QUALIFY."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace

from sqlglot import exp, parse_one

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.bind.aggregates.grouped_binder import GroupedBinder
from sqlstream.logical.bind.aggregates.grouping import count_sets, grouping_sets, has_sets
from sqlstream.logical.bind.aggregates.spellings import ignores_nulls, in_duckdb
from sqlstream.logical.bind.expressions.aggregate_names import BY_OFFSET
from sqlstream.logical.bind.expressions.expressions import OVER_ELSEWHERE, ExpressionBinder
from sqlstream.logical.bind.expressions.implicit_casts import fitting
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE
from sqlstream.logical.bind.expressions.user_aggregates import ordered_arguments, own_type
from sqlstream.logical.bind.over.ranking import Ranks, filtered
from sqlstream.logical.bind.scope import Scope, unique
from sqlstream.logical.bind.windows.window_tables import tells_windows_apart
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field, Item, Schema
from sqlstream.logical.plan.node import Node, WindowColumns
from sqlstream.logical.plan.over import Over
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.sql.dialect import to_duckdb

Projections = list[tuple[str, exp.Expr]]
# The column with the number of a row's grouping set.
SET = "_grouping_set"
# The number of sets of a CUBE of twelve columns.
MOST_SETS = 4096


class Aggregation:
    """One grouped query block: SELECT .. GROUP BY .. HAVING over `node`."""

    def __init__(self, binder: ExpressionBinder, node: Node, projections: Projections):
        self.binder, self.node, self.projections = binder, node, projections
        self.aggregates: dict[str, AggregateItem] = {}
        self.used_names: set[str] = set()
        # The output name of the select item being bound, if the item is an aggregate call.
        self.output: str | None = None
        # By the SQL of a key: the condition that the row's grouping set contains it; the names of all keys.
        self.sets: dict[str, str] = {}
        self.plain: dict[str, str] = {}
        # The numbers of grouping sets without keys.
        self.empty_sets: tuple[int, ...] = ()
        self.ranks = Ranks(node)

    def bind(self, group: exp.Group | None, select: exp.Select) -> Node:
        """Return the plan of the block: an aggregate, HAVING, calls with OVER and QUALIFY above it, the select list on top.

        Raises BindError for an expression that is wrong, UnsupportedError for one that cannot run.
        """
        keys, names = self._keys(group)
        self.plain = names
        window = self._window(names, group or select)
        bounds = {c for c in (window.start, window.end, window.time) if c is not None} if window else set()
        ranks = self.ranks = Ranks(self.node)
        binder = self.binder
        grouped = self._grouped_binder(keys, names)
        self.used_names |= {n.lower() for n in (*names.values(), *bounds)}
        selected = [(name, node, grouped.rewrite_item(self._named(name, node))) for name, node in self.projections]
        if (clause := select.args.get("having")) is not None and (call := clause.find(exp.Window)) is not None:
            raise grouped.unsupported("OVER in HAVING", call, OVER_ELSEWHERE)
        # Aggregates of HAVING and QUALIFY are not columns of the result, and get no output name.
        self.output = ranks.output = None
        having, qualify = (
            (clause, grouped.rewrite(clause.this)) if (clause := select.args.get(key)) is not None else None
            for key in ("having", "qualify")
        )
        self.node = fitting(self.node, binder.unfit)
        own = tuple(k for k in keys if k.name not in bounds)
        calls, span = tuple(self.aggregates.values()), self._error_span(group, select)
        if not own and not calls and window is None:
            # A result of constants alone needs a column in state.
            calls = (AggregateItem(self._free("count"), "count", (), False, (), None, "BIGINT", span),)
        aggregate: Aggregate | WindowAggregate = (
            WindowAggregate(self.node, "", own, window, calls, span=span)
            if window
            else Aggregate(self.node, "", own, calls, empty_sets=self.empty_sets, span=span)
        )
        plan: Node = aggregate
        if having is not None:
            plan = Filter(plan, self._condition(plan, "HAVING", *having))
        plan = ranks.above(plan, binder)
        items = self._items(self._over(plan), selected)
        if qualify is not None:
            plan = filtered(Filter(plan, self._condition(plan, "QUALIFY", *qualify)))
        ranked = {f.name for f in ranks.fields}
        # The state view has a row per group: items with UNNEST, or with ranks, cannot be shown in it.
        shown = tuple(i for i in items if not i.expression.makes_rows and ranked.isdisjoint(i.expression.reads.columns))
        return Projection(_with_shown(plan, aggregate, shown), items)

    def _error_span(self, group: exp.Group | None, select: exp.Select) -> Span:
        """Return the position in the text of errors about the aggregate: its first call, else GROUP BY."""
        found = next((a.span for a in self.aggregates.values() if a.span is not None), None)
        return found or self.binder.span(group or select)

    def _over(self, node: Node) -> ExpressionBinder:
        above = Scope("", node.schema, self.binder.scope.source, "the grouped rows")
        return ExpressionBinder(above, self.binder.catalog, self.binder.checker)

    def _condition(self, node: Node, name: str, clause: exp.Expr, bound: exp.Expr) -> Expression:
        predicate = self._over(node).typed(bound, clause.this)
        if predicate.type not in ("BOOLEAN", NULL_TYPE):
            raise BindError(f"{name} needs a condition, not a value of type {predicate.type}", predicate.span)
        return predicate

    def _grouped_binder(self, keys: list[Item], names: dict[str, str]) -> GroupedBinder:
        def rows() -> Schema:
            fields = [Field(k.name, k.expression.type) for k in keys]
            return (*fields, *(Field(a.name, a.type) for a in self.aggregates.values()), *self.ranks.fields)

        binder = self.binder
        return GroupedBinder(
            binder.scope, binder.catalog, binder.checker, names, self._aggregate, self._grouping, rows, self.ranks
        )

    def _items(self, result: ExpressionBinder, selected: list[tuple[str, exp.Expr, exp.Expr]]) -> tuple[Item, ...]:
        types = result.checker.types(result.scope.schema, [b for _, _, b in selected], result.scope.source)
        names = unique([name for name, _, _ in selected])
        return tuple(
            Item(name, Expression.of(b, type, result.span(node), result.is_volatile(b)))
            for name, (_, node, b), type in zip(names, selected, types, strict=True)
        )

    # -- keys

    def _keys(self, group: exp.Group | None) -> tuple[list[Item], dict[str, str]]:
        """Return the keys, and their names by their SQL over the input."""
        keys: list[Item] = []
        names: dict[str, str] = {}
        bounds = self._bounds_below()
        self.used_names |= {name.lower() for name in bounds.values()}
        if group is None:
            return keys, names
        if not has_sets(group):
            self._add_keys(self._grouped(group, grouping_sets(group.expressions)[0]), keys, names, bounds)
            return keys, names
        return self._keys_of_sets(group, keys, names, bounds)

    def _add_keys(self, nodes: list[exp.Expr], keys: list[Item], names: dict[str, str], bounds: dict[str, str]) -> None:
        for node in nodes:
            self.binder.refuse_aggregates(node, "in GROUP BY")
            bound = self.binder.bind(node)
            if bound.sql in names:
                continue
            # Window bounds keep their names, by which the state view shows them.
            name = names[bound.sql] = bounds.get(bound.sql) or self._key_name(node)
            # NULL without a type could not be stored.
            typed = bound if bound.type != NULL_TYPE else bound.cast("INTEGER")
            keys.append(Item(name, typed))

    def _keys_of_sets(
        self, group: exp.Group, keys: list[Item], names: dict[str, str], bounds: dict[str, str]
    ) -> tuple[list[Item], dict[str, str]]:
        """Add a node that emits every row once per grouping set, and return `_keys`; a key is NULL in sets without it."""
        if (number := count_sets(group.expressions)) > MOST_SETS:
            raise self.binder.unsupported(
                f"GROUP BY with {number:,} grouping sets",
                group,
                f"Every row counts in each of them. There can be {MOST_SETS:,}: name those that are needed in "
                "GROUPING SETS ((a, b), (a), ()).",
            )
        sets = [self._grouped(group, s) for s in grouping_sets(group.expressions)]
        self.empty_sets = tuple(number for number, members in enumerate(sets) if not members)
        # The sets of CUBE have the same keys over and over.
        every = {id(node): node for s in sets for node in s}
        self._add_keys([*every.values()], keys, names, bounds)
        sqls = {index: self.binder.bind(node).sql for index, node in every.items()}
        column = self._free(SET)
        self.node = Expand(self.node, column, tuple(range(len(sets))))
        members = [{sqls[id(node)] for node in s} for s in sets]
        items, number_of_set = [], Expression.of_column(column, "INTEGER")
        for key, sql in zip(keys, names, strict=True):
            inside = [str(number) for number, member in enumerate(members) if sql in member]
            self.sets[sql] = f"{quote_name(column)} IN ({', '.join(inside)})"
            if len(inside) < len(sets):
                if key.name in bounds.values():
                    hint = (
                        "Name it in every grouping set, or before them: GROUP BY window_start, window_end, ROLLUP (..)."
                    )
                    raise self.binder.unsupported(f"a grouping set without {key.name}", group, hint)
                sql = f"CASE WHEN {self.sets[sql]} THEN {key.expression.sql} END"
                key = Item(key.name, Expression.over((key.expression, number_of_set), sql, key.expression.type))
            items.append(key)
        return [*items, Item(column, number_of_set)], names

    def _grouping(self, node: exp.Anonymous) -> exp.Expr:
        """Return GROUPING(a, b, ..) as a number with a bit for each key that the row's grouping set leaves out."""
        if not node.expressions:
            raise self.binder.error(f"{node.name.upper()} needs the keys of GROUP BY", node)
        bits = []
        for index, key in enumerate(reversed(node.expressions)):
            sql = self.binder.bind(key).sql
            if sql not in self.sets and sql not in self.plain:
                raise self.binder.error("GROUPING takes keys of GROUP BY", key)
            bits.append(f"CASE WHEN {self.sets.get(sql, 'true')} THEN 0 ELSE {1 << index} END")
        return parse_one(f"CAST({' + '.join(bits)} AS BIGINT)", dialect="duckdb")

    def _grouped(self, group: exp.Group, elements: list[exp.Expr]) -> list[exp.Expr]:
        if group.args.get("all"):
            return [e for _, e in self.projections if not any(self.binder.is_aggregate(n) for n in e.walk())]
        keys = []
        for node in elements:
            if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
                index = int(node.name)
                if not 1 <= index <= len(self.projections):
                    raise BindError(f"GROUP BY position {node.name} is not in the select list", self.binder.span(node))
                node = self.projections[index - 1][1]
            elif isinstance(node, exp.Column) and not node.table and self.binder.scope.find(node.name) is None:
                node = self.binder.scope.select_aliases.get(node.name.lower(), node)
            keys.append(node)
        return keys

    def _key_name(self, node: exp.Expr) -> str:
        alias = next((name for name, e in self.projections if e == node), None)
        return self._free(alias or (node.name if isinstance(node, exp.Column) else "") or readable(to_duckdb(node)))

    def _bounds_below(self) -> dict[str, str]:
        """Return the names of the input's window columns, by their SQL."""
        below = self.node.window_columns
        columns = (below.start, below.end, below.time) if below is not None else ()
        return {quote_name(c): c for c in columns if c is not None}

    def _window(self, names: dict[str, str], at: exp.Expr) -> WindowColumns | None:
        """Return the input's window columns if keys identify the window of a row, None if no key is the start or the end."""
        below = self.node.window_columns
        if below is None or not any(c is not None and quote_name(c) in names for c in (below.start, below.end)):
            return None
        if not tells_windows_apart(self.node, below, names):
            raise UnsupportedError(
                "GROUP BY window_start of CUMULATE windows",
                self.binder.span(at),
                hint="Add window_end: several begin at one time.",
            )
        return below

    # -- aggregate calls

    def _named(self, name: str, node: exp.Expr) -> exp.Expr:
        """Remember the output name of a select item that is an aggregate call or a call with OVER; return the item."""
        self.output = name if self.binder.is_aggregate(node) else None
        self.ranks.output = name if isinstance(node, exp.Window) else None
        return node

    def _aggregate(self, node: exp.Expr) -> str:
        """Return the name of an aggregate call's result; a new call is bound and added."""
        meaning = self.binder.checker.meaning
        meaning.differs |= ignores_nulls(node)
        item = self._bind_call(in_duckdb(node, self.binder.catalog, self.binder.scope.source, flinks=meaning.is_flinks))
        for other in self.aggregates.values():
            if replace(other, name="") == item:
                return other.name
        # A part of a select item does not have its name.
        output = None if node.meta.get("part") else self.output
        name = self._free(output or readable(to_duckdb(node)))
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
        """Return `f(q) WITHIN GROUP (ORDER BY x)` as the equivalent call over x."""
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
        own = binder.catalog.aggregate_function(function)
        if own is not None:
            arguments = ordered_arguments(own, arguments, node, binder)
        for inside in (*arguments, *order, *([where] if where is not None else [])):
            binder.refuse_aggregates(inside, "inside another one")
        ordered = [o.this if isinstance(o, exp.Ordered) else o for o in order]
        # Rows beside the FILTER of a call may have any text in its arguments.
        with binder.unfit.ignored() if where is not None else nullcontext():
            values = self._expressions([*arguments, *ordered])
            condition = binder.bind(where) if where is not None else None
        inputs, keys = values[: len(arguments)], values[len(arguments) :]
        directed = tuple(
            replace(key, sql=to_duckdb(binder.rewrite(o)), descends=bool(o.args.get("desc")))
            for key, o in zip(keys, order, strict=True)
        )
        return AggregateItem(
            name="",
            function=function,
            arguments=inputs,
            distinct=distinct,
            order_by=directed,
            filter=condition,
            type=own_type(own, arguments, node, binder) if own is not None else self._type(function, inputs, node),
            span=binder.span(node),
            python=own,
        )

    def _expressions(self, nodes: list[exp.Expr]) -> tuple[Expression, ...]:
        """Bind several expressions at once."""
        binder = self.binder
        bound = [binder.rewrite(node) for node in nodes]
        types = binder.checker.types(binder.scope.schema, bound, binder.scope.source)
        return tuple(
            Expression.of(b, t, binder.span(node), binder.is_volatile(b))
            for node, b, t in zip(nodes, bound, types, strict=True)
        )

    def _type(self, function: str, arguments: tuple[Expression, ...], node: exp.Expr) -> str:
        """Return the type of a call."""
        binder = self.binder
        if function in BY_OFFSET:
            return f"{arguments[0].type}[]"
        whole = _CallBinder(binder.scope, binder.catalog, binder.checker).rewrite(node)
        return binder.checker.type(binder.scope.schema, whole, binder.scope.source)

    def _free(self, name: str) -> str:
        candidate, number = name, 1
        while candidate.lower() in self.used_names:
            number += 1
            candidate = f"{name}_{number}"
        self.used_names.add(candidate.lower())
        return candidate


def _with_shown(node: Node, aggregate: Aggregate | WindowAggregate, shown: tuple[Item, ...]) -> Node:
    """Return a plan whose aggregate has the select list `shown`; filters, ranks and projections may be above it."""
    if node is aggregate:
        return replace(aggregate, shown=shown)
    assert isinstance(node, Filter | Projection | WindowRank | Rank | Over)
    return replace(node, input=_with_shown(node.input, aggregate, shown))


class _CallBinder(ExpressionBinder):
    """Binds an aggregate call as a whole: its parts are over the input."""

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        if not isinstance(node, exp.Star) and not self.is_aggregate(node):
            return None
        for child in list(node.iter_expressions()):
            bound = self._rewrite(child)
            if bound is not child:
                child.replace(bound)
        return node


def readable(sql: str) -> str:
    """Return a column name for an expression without an alias.

    >>> readable("COUNT(*)"), readable('sum("dep_delay" * 2)')
    ('count', 'sum_dep_delay_2')
    """
    return re.sub(r"\W+", "_", sql.lower()).strip("_") or "value"
