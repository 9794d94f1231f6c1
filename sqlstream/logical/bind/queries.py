"""Binding of queries: makes logical plans of parsed queries, block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from sqlstream.catalog import VALUES, Catalog, Table, View
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.aggregates.aggregation import Aggregation
from sqlstream.logical.bind.aliases import with_alias, with_columns, with_name
from sqlstream.logical.bind.clauses import refuse_clauses, without
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.implicit_casts import fitting, undecided
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE, TypeChecker
from sqlstream.logical.bind.followed_hints import FollowedHints, called, has_hints_of_block, nodes_below
from sqlstream.logical.bind.hints import StateTtl, check_followed, check_names, state_ttls
from sqlstream.logical.bind.joins.joins import JoinBinder, Relation, reads_join
from sqlstream.logical.bind.joins.lateral import is_lateral
from sqlstream.logical.bind.joins.lateral_queries import LateralQueries, over_tables
from sqlstream.logical.bind.joins.subqueries import Subqueries, split
from sqlstream.logical.bind.ordered_queries import OrderedQueries
from sqlstream.logical.bind.ordering import row_count, with_ties
from sqlstream.logical.bind.over.over import with_windows
from sqlstream.logical.bind.over.ranking import Ranks, filtered
from sqlstream.logical.bind.process import ProcessBinder
from sqlstream.logical.bind.rowtime import without_rowtime
from sqlstream.logical.bind.scope import Scope, unique
from sqlstream.logical.bind.select_list import expanded
from sqlstream.logical.bind.set_operations import alike, distinct_rows, of_both_sides, sides_of
from sqlstream.logical.bind.side_outputs import LATE_ROWS, SIDE_OUTPUT, USAGE, bind_late_rows, bind_side_output
from sqlstream.logical.bind.values import from_one_row, values_table
from sqlstream.logical.bind.windows.group_windows import GroupWindows, find_group_window
from sqlstream.logical.bind.windows.window_hints import with_window_hints
from sqlstream.logical.bind.windows.window_tables import WindowBinder
from sqlstream.logical.plan.aggregates import Aggregate
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Filter, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, Scan
from sqlstream.names import check_name
from sqlstream.sql.dialect import WindowTVF
from sqlstream.sql.process_calls import ProcessCall
from sqlstream.sql.spans import operator_span, span_of
from sqlstream.sql.unsupported import RECURSION


@dataclass(frozen=True, slots=True)
class Environment:
    """The context of a query: the text that it stands in, and the CTEs that it can name, by name in lower case.

    Each CTE has the environment in which it is bound.
    """

    source: SourceText
    ctes: Mapping[str, tuple[exp.CTE, Environment]]


class Binder:
    """Binds queries against a catalog: resolves names and types, and builds their plans. One binder serves one session.

    Its methods raise BindError for a query that is wrong, UnsupportedError for one that cannot run.
    """

    def __init__(self, catalog: Catalog, checker: TypeChecker):
        self.catalog, self.checker = catalog, checker
        self._hints = FollowedHints()
        # The plans of CTEs and views that the current query has named so far, by the id of the definition, which they keep alive.
        self._plans: dict[int, tuple[exp.CTE | View, Node]] = {}

    def bind(self, query: exp.Expr, source: SourceText, *, limit: bool = False) -> tuple[Node, int | None]:
        """Return the plan of a query, and the number of rows after which its job ends; None if that is not said.

        With `limit` that is the number of LIMIT without ORDER BY; else such a LIMIT is part of the plan.
        """
        rows = None
        self._hints.clear()
        self._plans.clear()
        ordered = query.args.get("order") is not None
        if ordered and not any(query.args.get(key) is not None for key in ("limit", "offset")):
            # A sort by time has neither a name nor keys to forget.
            plan = self._in_order(Environment(source, {})).of_time(query)
            self._hints.check()
            return plan, None
        if limit and isinstance(query, exp.Select) and query.args.get("limit") is not None and not ordered:
            if with_ties(query):
                raise BindError(
                    "WITH TIES without ORDER BY", span_of(query.args["limit"], source), hint="Add ORDER BY."
                )
            rows = row_count(query.args["limit"], source)
            if query.args.get("offset") is None:
                query = without(query, "limit")
        plan = self.query(query, Environment(source, {}))
        self._hints.check()
        return plan, rows

    def query(self, query: exp.Expr, env: Environment, keys: int = 0) -> Node:
        """Return the plan of a query of any form, with its CTEs: SELECT, VALUES, TABLE t, a set operation, or parentheses.

        LIMIT takes the first rows of each of the values of the last columns, as many as `keys` says.
        """
        env = self._with_ctes(query, env)
        if query.args.get("limit") is not None:
            self._hints.expect(query, env.source)
            ordered = self._in_order(env)
            bind = ordered.first_rows if query.args.get("order") is not None else ordered.first_to_come
            first, below = bind(query, keys)
            return self._hints.follow(query, first, (below,), env.source)
        match query:
            case exp.Select() if (distinct := query.args.get("distinct")) is not None:
                if distinct.args.get("on") is not None:
                    hint = "Write ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) AS n in a subquery, and WHERE n = 1."
                    raise UnsupportedError("DISTINCT ON", span_of(distinct, env.source), hint=hint)
                span = span_of(query, env.source)
                span = replace(span, end=span.start + len("SELECT"))
                self._hints.expect(query, env.source)
                below = self._select(without(query, "distinct"), env)
                return self._hints.follow(query, distinct_rows(below, span), (below,), env.source)
            case exp.Select():
                return self._select(query, env)
            case exp.Subquery():
                refuse_clauses(query, env.source)
                return self.query(query.this, env)
            case exp.Table():
                return self._table(query, env).node
            case exp.Values():
                return self._values(query, env).node
            case exp.Union() if query.args.get("distinct") is False:
                return self._union(query, env)
            case exp.SetOperation():
                return self._set_operation(query, env)
            case _:
                raise UnsupportedError(f"{query.key.upper()} as a query", span_of(query, env.source))

    def _in_order(self, env: Environment) -> OrderedQueries:
        return OrderedQueries(self.catalog, self.checker, env.source, lambda query: self.query(query, env))

    def _with_ctes(self, query: exp.Expr, env: Environment) -> Environment:
        clause = query.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise UnsupportedError("WITH RECURSIVE", span_of(clause, env.source), hint=RECURSION)
        for cte in clause.expressions:
            check_name("a query in WITH", cte.alias, span_of(cte, env.source))
            name = cte.alias.lower()
            env = Environment(env.source, {**env.ctes, name: (cte, env)})
        return env

    # -- SELECT

    def _select(self, select: exp.Select, env: Environment) -> Node:
        refuse_clauses(without(select, "joins"), env.source)
        select = with_windows(select)
        if select.args.get("from_") is None:
            select = from_one_row(select, env.source)
        base, node, scope, below = self._input(select, env)
        base = called(select.args["from_"].this, base)
        # A rank of windows that are corrected is another operator, to which the time to live applies.
        bound = with_window_hints(select, self._block(select, node, scope), base, env.source)
        if not (scope.joined and reads_join(base)):
            # Windows with state and process functions in FROM belong to this block: its hints apply to them.
            own = base.children if has_hints_of_block(base) else (base,)
            bound = self._hints.apply(select, bound, own, env.source)
        return self._hints.name(select, bound, below, env.source)

    def _input(self, select: exp.Select, env: Environment) -> tuple[Node, Node, Scope, Sequence[Node]]:
        """Return the plan of FROM, the plan with WHERE above it, the scope of the block, and the nodes below it."""
        aliases = {p.alias.lower(): p.this for p in select.expressions if isinstance(p, exp.Alias)}
        where = select.args.get("where")
        plain, matched = split(where.this) if where is not None else ([], [])
        if select.args.get("joins") or matched:
            joins = self._joins(select, env)
            scope = replace(joins.scope, select_aliases=aliases)
            conditions = [c for part in plain for c in joins.conjuncts(part, scope, "WHERE")]
            of_query, of_from = (lambda query: self.query(query, env)), (lambda query: self._joins(query, env))
            subqueries = Subqueries(joins, of_query, of_from, self._hints)
            for condition in matched:
                subqueries.add(condition, scope)
            node = joins.tree(conditions)
            below = nodes_below(select, joins.nodes)
            if reads_join(node):
                check_followed(node, below, self._hints.unapplied(state_ttls(select, env.source)))
            return node, node, scope, below
        relation = self._relation(select.args["from_"].this, env)
        check_names(state_ttls(select, env.source), [relation.alias])
        node = relation.node
        absent = partial(without_rowtime, node)
        scope = Scope(relation.alias, node.schema, env.source, relation.described, aliases, absent=absent)
        if where is None:
            return node, node, scope, nodes_below(select, [node])
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        predicate = self._predicate(binder, where.this, "WHERE")
        rows = filtered(Filter(node, predicate, unfit=undecided(predicate, node, binder.unfit)))
        return rows.input, rows, scope, nodes_below(select, [rows.input])

    def _joins(self, select: exp.Select, env: Environment) -> JoinBinder:
        """Return a binder with the relations and joins of a block's FROM."""
        ttls = state_ttls(select, env.source)
        binder = JoinBinder(self.catalog, self.checker, env.source, {t.name.lower(): t.ttl for t in ttls})
        binder.add(self._joined(select.args["from_"].this, ttls, env))
        for join in select.args.get("joins") or ():
            if (lateral := over_tables(join.this)) is not None:
                self._lateral(binder, join, self._with_ctes(lateral, env))
            elif is_lateral(join.this):
                binder.add_lateral(join)
            else:
                binder.add(self._joined(without(join.this, "version"), ttls, env), join)
        check_names(ttls, [v.alias for v in binder.visible])
        return binder

    def _lateral(self, joins: JoinBinder, join: exp.Join, env: Environment) -> None:
        """Add LATERAL (SELECT ..) over tables to joins; `env` has the CTEs of the subquery."""
        of_from, of_query = (lambda query: self._joins(query, env)), (lambda query, keys: self.query(query, env, keys))
        LateralQueries(joins, of_from, of_query).add(join)

    def _joined(self, node: exp.Expr, ttls: Collection[StateTtl], env: Environment) -> Relation:
        """Return a relation of a join; the block's STATE_TTL applies to count windows and process functions in FROM."""
        relation = self._relation(node, env)
        if isinstance(node, ProcessCall | WindowTVF):
            relation = replace(relation, node=self._hints.apply_to_call(relation.node, relation.alias, ttls))
        return relation

    def _block(self, select: exp.Select, node: Node, scope: Scope) -> Node:
        """Return the plan of a query block above its FROM and WHERE."""
        if find_group_window(select) is not None:
            node, select = GroupWindows(self.checker, scope, node).rewrite(select)
            scope = replace(scope, schema=node.schema)
        binder = ExpressionBinder(scope, self.catalog, self.checker, Ranks(node))
        projections = expanded(select, scope)
        group, having = select.args.get("group"), select.args.get("having")
        if group is not None or having is not None or any(binder.has_aggregates(e) for _, e in projections):
            return Aggregation(binder, node, projections).bind(group, select)
        return self._projected(node, binder, projections, select.args.get("qualify"))

    def _projected(
        self, node: Node, binder: ExpressionBinder, projections: list[tuple[str, exp.Expr]], qualify: exp.Expr | None
    ) -> Node:
        """Return the projection of the select list, with the calls with OVER that it and QUALIFY name below it."""
        assert binder.ranks is not None
        bound = []
        for name, part in projections:
            binder.ranks.output = name if isinstance(part, exp.Window) else None
            bound.append((name, part, binder.rewrite_item(part)))
        condition = binder.rewrite(qualify.this) if qualify is not None else None
        ranked = binder.ranks.above(fitting(node, binder.unfit), binder)
        over = ExpressionBinder(replace(binder.scope, schema=ranked.schema), self.catalog, self.checker)
        if qualify is not None and condition is not None:
            predicate = over.typed(condition, qualify.this)
            if predicate.type not in ("BOOLEAN", NULL_TYPE):
                raise BindError(f"QUALIFY needs a condition, not a value of type {predicate.type}", predicate.span)
            return Projection(filtered(Filter(ranked, predicate)), self._items(over, bound))
        return Projection(ranked, self._items(over, bound))

    def _predicate(self, binder: ExpressionBinder, node: exp.Expr, clause: str) -> Expression:
        binder.refuse_aggregates(node, f"in {clause}")
        bound = binder.bind(node)
        if bound.type not in ("BOOLEAN", NULL_TYPE):
            raise BindError(f"{clause} needs a condition, not a value of type {bound.type}", bound.span)
        return bound

    def _items(self, binder: ExpressionBinder, bound: list[tuple[str, exp.Expr, exp.Expr]]) -> tuple[Item, ...]:
        """Return the items of the select list; `bound` has name, parsed and bound expression of each.

        Names that repeat get a number, as in DuckDB.
        """
        types = self.checker.types(binder.scope.schema, [b for _, _, b in bound], binder.scope.source)
        names = unique([name for name, _, _ in bound])
        return tuple(
            Item(name, Expression.of(b, type, binder.span(node), binder.is_volatile(b)))
            for name, (_, node, b), type in zip(names, bound, types, strict=True)
        )

    # -- FROM

    def _relation(self, node: exp.Expr, env: Environment) -> Relation:
        match node:
            case WindowTVF():
                return self._window(node, env)
            case ProcessCall():
                return self._process(node, env)
            case exp.Subquery():
                refuse_clauses(node, env.source)
                alias = node.alias
                bound = with_name(self.query(node.this, env), alias)
                bound = with_alias(bound, node.args.get("alias"), env.source)
                return Relation(bound, alias, f'subquery "{alias}"' if alias else "the subquery")
            case exp.Table():
                return self._table(node, env)
            case exp.Values():
                return self._values(node, env)
            case _:
                example = "LATERAL .." if isinstance(node, exp.Lateral) else "UNNEST(t.list)"
                hint = f"Write FROM t CROSS JOIN {example} AS x." if is_lateral(node) else None
                raise UnsupportedError(f"{node.key.upper()} at the start of FROM", span_of(node, env.source), hint=hint)

    def _table(self, node: exp.Table, env: Environment) -> Relation:
        refuse_clauses(node, env.source)
        span = span_of(node, env.source)
        if not isinstance(node.this, exp.Identifier):
            if (process := self.catalog.process_function(node.this.name)) is not None:
                hint = f"Write {process.name}(TABLE t PARTITION BY k)."
                raise BindError(f'process function "{process.name}" without a table', span, hint=hint)
            if (call := node.this.name.upper()) in USAGE:
                raise BindError(f"{call} without TABLE", span, hint=USAGE[call])
            function = self.catalog.function(node.this.name)
            hint = "Declare a table with CREATE TABLE .. WITH (..)."
            if function is not None and function.kind == "table":
                hint = f"Write FROM t CROSS JOIN LATERAL {function.name}(..) AS x: it makes rows of each row of t."
            raise UnsupportedError("a table function", span, hint=hint)
        if node.text("db").lower() in ("state", "sqlstream"):
            hint = f"State is read with sqlstream query, or Session.query: SELECT * FROM {span.text}."
            raise BindError("a job cannot read state", span, hint=hint)
        if node.args.get("db") is not None:
            raise BindError("a table is named without a database or catalog", span, hint=f"Write {node.name}.")
        name, alias = node.name, node.alias or node.name
        columns, options = node.args.get("alias"), node.args.get("table_options")
        relation = None if name.lower() in env.ctes else self.catalog.relation(name)
        if options is not None and (name.lower() in env.ctes or isinstance(relation, View)):
            what = "a view" if relation else "a query of WITH"
            raise BindError(f'"{name}" is {what}, and has no options', options.span)
        if (cte := env.ctes.get(name.lower())) is not None:
            bound = self._once(cte[0], lambda: self._cte(*cte))
            return Relation(with_alias(bound, columns, env.source), alias, f'"{name}"')
        match relation:
            case None:
                existing = self.catalog.relation_hint(name, env.ctes)
                raise BindError(f'table "{name}" does not exist', span_of(node.this, env.source), hint=existing)
            case Table() as table:
                if options is not None:
                    table = self.catalog.with_options(table, dict(options.options), options.span)
                bound = with_alias(_rows_of(table, alias, span), columns, env.source)
                return Relation(bound, alias, f'table "{table.name}"')
            case View() as view:
                bound = self._once(view, lambda: self._view(view))
                return Relation(with_alias(bound, columns, env.source), alias, f'view "{view.name}"')

    def _values(self, node: exp.Values, env: Environment) -> Relation:
        refuse_clauses(node, env.source)
        alias = node.alias or VALUES
        table = values_table(node, self.catalog, self.checker, env.source)
        bound = with_alias(Scan(table, alias, span=span_of(node, env.source)), node.args.get("alias"), env.source)
        return Relation(bound, alias, f'"{node.alias}"' if node.alias else "the rows of VALUES")

    def _once(self, definition: exp.CTE | View, bind: Callable[[], Node]) -> Node:
        """Return the plan of a CTE or a view, which is bound once per query, so that all its uses share one node."""
        if id(definition) not in self._plans:
            self._plans[id(definition)] = definition, bind()
        return self._plans[id(definition)][1]

    def _cte(self, definition: exp.CTE, env: Environment) -> Node:
        bound = with_name(self.query(definition.this, env), definition.alias)
        return with_alias(bound, definition.args.get("alias"), env.source)

    def view(self, view: View) -> Node:
        """Return the plan of a view."""
        self._hints.clear()
        self._plans.clear()
        plan = self._view(view)
        self._hints.check()
        return plan

    def _view(self, view: View) -> Node:
        assert view.span is not None
        bound = with_name(self.query(view.query, Environment(view.span.source, {})), view.name)
        if not view.columns:
            return bound
        return with_columns(bound, list(view.columns), view.span)

    def _window(self, node: WindowTVF, env: Environment) -> Relation:
        relation = self._relation(node.this, env)
        scope = Scope(relation.alias, relation.node.schema, env.source, relation.described)
        of_row = ExpressionBinder(scope, self.catalog, self.checker).bind
        bound = WindowBinder(self.checker, env.source, relation.described, of_row).bind(relation.node, node)
        named = with_alias(bound, node.args.get("alias"), env.source)
        return Relation(named, node.alias or relation.alias, f"the windows of {relation.described}")

    def _process(self, node: ProcessCall, env: Environment) -> Relation:
        if node.name.upper() == LATE_ROWS:
            late = bind_late_rows(node, env.source, lambda table: self._relation(table, env))
            named = with_alias(late.node, node.args.get("alias"), env.source)
            return Relation(named, node.alias or late.alias, late.described)
        if node.name.upper() == SIDE_OUTPUT:
            side = bind_side_output(node, env.source, lambda table: self._relation(table, env))
            named = with_alias(side, node.args.get("alias"), env.source)
            return Relation(named, node.alias or side.name, side.label)
        bound = ProcessBinder(self.catalog, self.checker, env.source, lambda table: self._relation(table, env)).bind(
            node
        )
        alias = node.alias or bound.function.name
        named = with_alias(bound, node.args.get("alias"), env.source)
        return Relation(named, alias, f'the result of "{bound.function.name}"')

    # -- UNION, INTERSECT, EXCEPT

    def _set_operation(self, query: exp.SetOperation, env: Environment) -> Node:
        refuse_clauses(without(query, "distinct"), env.source)
        span, distinct = operator_span(query, env.source), query.args.get("distinct") is not False
        self._hints.expect(query, env.source)
        both = [self.query(side, env) for side in (query.this, query.expression)]
        sides = alike(both, query.key.upper(), span, self.checker)
        operation: Aggregate | SetOperation
        if isinstance(query, exp.Union):
            operation = distinct_rows(Union(sides), span)
        else:
            operation = of_both_sides(
                sides, "intersect" if isinstance(query, exp.Intersect) else "except", distinct, span
            )
        return self._hints.follow(query, operation, operation.children, env.source)

    def _union(self, query: exp.Union, env: Environment) -> Node:
        refuse_clauses(without(query, "distinct"), env.source)
        inputs = [self.query(side, env) for side in sides_of(query)]
        return Union(alike(inputs, "UNION ALL", operator_span(query, env.source), self.checker))


def _rows_of(table: Table, alias: str, span: Span) -> Node:
    """Return the scan of a table; for a table of changes with a PRIMARY KEY, Normalize above it, equal wherever it is named."""
    if not (table.has_changes and table.primary_key):
        return Scan(table, alias, span=span)
    return Normalize(Scan(table, table.name, span=span), f"{table.name}_current", table.primary_key, span)
