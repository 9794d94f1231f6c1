"""Binding of the relations of FROM and of the conditions of ON, USING and WHERE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE, TypeChecker
from sqlstream.logical.bind.joins.join_trees import Conjunct, JoinTree, Step, named_indexes
from sqlstream.logical.bind.joins.lateral import LateralBinder
from sqlstream.logical.bind.joins.versions import AsOf
from sqlstream.logical.bind.rowtime import without_rowtime
from sqlstream.logical.bind.scope import Scope, VisibleRelation, column_reference, unique
from sqlstream.logical.plan.expressions import Expression, Field, Item, Schema
from sqlstream.logical.plan.joining import Joining, Kind
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Filter, Lateral, Projection
from sqlstream.sql.spans import head_span, span_of
from sqlstream.units import Duration


@dataclass(frozen=True, slots=True)
class Correlation:
    """An equality in a subquery with `outer`, an expression over the relations before it; `parsed` is the parsed condition."""

    outer: exp.Expr
    parsed: exp.Expr


@dataclass(frozen=True, slots=True)
class Correlations:
    """What joins the rows of LATERAL (SELECT ..) with the relations before it.

    `equal` are equalities with the last columns of the subquery, in their order; `before` are conditions on the relations
    before alone. `counts` are the indexes of columns that are 0 where the subquery has no row, while the others are NULL; None
    if there is no row of the join then.
    """

    equal: tuple[Correlation, ...]
    before: tuple[exp.Expr, ...]
    counts: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Relation:
    """A bound item of FROM: its plan, the alias that qualifies its columns, and its name in errors."""

    node: Node
    alias: str
    described: str


class JoinBinder:
    """Binds FROM and WHERE of a query block that reads several relations.

    A relation is known by its index in FROM, from 0 on. Columns whose names repeat get a number, so that all are different.
    """

    def __init__(self, catalog: Catalog, checker: TypeChecker, source: SourceText, ttls: Mapping[str, Duration]):
        self.catalog, self.checker, self.source = catalog, checker, source
        # Times to live by the names of relations, in lower case.
        self.ttls = ttls
        # By index: the plan of a relation, None for rows that are made of a row; its columns.
        self.nodes: list[Node | None] = []
        self.fields: list[Schema] = []
        self.visible: list[VisibleRelation] = []
        self.steps: list[Step] = []
        # Names of USING, in lower case, with the column that they mean.
        self.merged: dict[str, str] = {}
        # The index of the relation of each column.
        self.indexes: dict[str, int] = {}
        # By the index of a join: columns that are computed above it, those of USING of a FULL JOIN, and counts of LATERAL.
        self.coalesced: dict[int, list[Item]] = {}
        # Places of relations of semi and anti joins, whose columns cannot be named above.
        self.hidden: set[int] = set()

    # -- relations

    def add(self, relation: Relation, join: exp.Join | None = None) -> None:
        """Add a relation of FROM; every one but the first has a join.

        Raises BindError for an alias that is in use, and for wrong conditions; UnsupportedError for joins that cannot run.
        """
        index = len(self.nodes)
        self._check_alias(relation.alias, join.this if join is not None else None)
        self._append_relation(relation)
        if join is not None:
            self.steps.append(self._step(join, index))
            if self.steps[-1].kind in ("semi", "anti"):
                self.hidden.add(index)

    def add_lateral(self, join: exp.Join) -> None:
        """Add UNNEST(..), LATERAL f(..) or LATERAL (SELECT ..), whose rows are computed from a row of the relations before it.

        Raises UnsupportedError for any join but inner and left, BindError as LateralBinder does.
        """
        index, span = len(self.nodes), head_span(join, join.this, self.source)
        kind = self._lateral_kind(join, span)
        lateral = LateralBinder(self.catalog, self.checker, self.source, self.scope, [*self.indexes]).bind(join.this)
        if isinstance(lateral.rows, Expression) and lateral.rows.volatile:
            raise UnsupportedError(
                "a random function in LATERAL (SELECT ..)",
                span_of(join.this, self.source),
                hint="Compute it in a subquery before.",
            )
        self._check_alias(lateral.visible.alias, join.this)
        self._append(None, lateral.visible, lateral.fields)
        on = _condition(join)
        if on is not None and kind == "left":
            hint = "Write LEFT JOIN LATERAL (SELECT .. FROM UNNEST(..) AS x WHERE ..) AS y ON TRUE."
            raise UnsupportedError(
                "a condition for LEFT JOIN with UNNEST or LATERAL", span_of(on, self.source), hint=hint
            )
        conditions = [] if on is None else self.conjuncts(on, self.scope, "ON")
        self.steps.append(Step(kind, tuple(conditions), span, lateral=lateral))
        assert index == len(self.steps)

    def add_correlated(self, join: exp.Join, relation: Relation, correlations: Correlations) -> None:
        """Add LATERAL (SELECT ..) whose rows, those of `relation`, are joined with the relations before it by `correlations`.

        Raises UnsupportedError for any join but inner and left, BindError for an alias that is in use, and for conditions.
        """
        index, span = len(self.nodes), head_span(join, join.this, self.source)
        kind, on, before = self._lateral_kind(join, span), _condition(join), self.scope
        self._check_alias(relation.alias, join.this)
        own = self._append_relation(relation, hidden=len(correlations.equal))
        keys = own[len(own) - len(correlations.equal) :]
        conditions = [
            self._correlated(key, correlation, before)
            for key, correlation in zip(keys, correlations.equal, strict=True)
        ]
        conditions += [c for part in correlations.before for c in self.conjuncts(part, before, "WHERE")]
        if correlations.counts is not None:
            if on is not None:
                hint = "Write the condition into WHERE of the query around it."
                raise UnsupportedError("ON for LATERAL with an aggregate", span_of(on, self.source), hint=hint)
            kind = "left"
            self._count_nothing(index, correlations.counts, span)
        elif on is not None:
            conditions += self.conjuncts(on, self.scope, "ON")
        at = span_of(on, self.source) if on is not None else span
        coalesced = tuple(self.coalesced.get(index, ()))
        self.steps.append(Step(kind, tuple(conditions), span, coalesced=coalesced, on=at))

    def _lateral_kind(self, join: exp.Join, span: Span) -> Kind:
        """Return the kind of a join with LATERAL. Raises UnsupportedError for any but inner and left."""
        kind = self._kind(join, span)
        if kind not in ("inner", "left") or join.args.get("using") or join.args.get("method"):
            hint = "Write CROSS JOIN, or LEFT JOIN .. ON TRUE."
            raise UnsupportedError("this join with rows that are made of the row itself", span, hint=hint)
        return kind

    def _correlated(self, key: str, correlation: Correlation, before: Scope) -> Conjunct:
        """Return the equality of a column of a subquery with an expression over the relations before it."""
        binder = ExpressionBinder(before, self.catalog, self.checker)
        binder.refuse_aggregates(correlation.outer, "in WHERE")
        bound = exp.EQ(this=column_reference(key), expression=binder.rewrite(correlation.outer))
        bound.meta.update(correlation.parsed.meta)
        span = span_of(correlation.parsed, self.source)
        return self.conjunct(bound, Expression.of(bound, "BOOLEAN", span, binder.is_volatile(bound)))

    def _count_nothing(self, index: int, counts: Iterable[int], span: Span) -> None:
        """Let columns of the relation at `index` be 0 instead of NULL; a left join pads it."""
        visible = self.visible[index]
        columns = dict(visible.columns)
        names = list(columns)
        for number in counts:
            name = names[number]
            zero = exp.Literal.number(0)
            bound = exp.Anonymous(this="coalesce", expressions=[column_reference(columns[name]), zero])
            columns[name] = self._computed(name, bound, index, span)
        self.visible[index] = replace(visible, columns=columns)

    def _append_relation(self, relation: Relation, hidden: int = 0) -> list[str]:
        """Append a relation, and return the new names of its columns; the last ones, `hidden`, cannot be named in queries."""
        fields = relation.node.schema
        own = unique([*self.indexes, *(f.name for f in fields)])[len(self.indexes) :]
        shown = len(own) - hidden
        columns = {f.name: name for f, name in zip(fields[:shown], own[:shown], strict=True)}
        self._append(_renamed(relation.node, fields, own), VisibleRelation(relation.alias, relation.described, columns))
        return own

    def _append(self, node: Node | None, visible: VisibleRelation, fields: Schema | None = None) -> None:
        columns = fields if fields is not None or node is None else node.schema
        assert columns is not None
        self.indexes |= {f.name: len(self.nodes) for f in columns}
        self.nodes.append(node)
        self.fields.append(columns)
        self.visible.append(visible)

    def _check_alias(self, alias: str, at: exp.Expr | None) -> None:
        if any(v.alias and v.alias.lower() == alias.lower() for v in self.visible):
            raise BindError(
                f'"{alias}" is in FROM twice',
                span_of(at, self.source) if at is not None else None,
                hint=f"Give one of them another name: {alias} AS other.",
            )

    @property
    def scope(self) -> Scope:
        """The scope of all relations so far, without the right inputs of semi and anti joins."""
        return self._scope(self.hidden)

    def _scope(self, hidden: Iterable[int] = ()) -> Scope:
        shown = tuple(v for index, v in enumerate(self.visible) if index not in hidden)
        names = {own for v in shown for own in v.columns.values()} | {*self.merged.values()}
        fields = tuple(f for fields in self.fields for f in fields if f.name in names)
        absent = partial(without_rowtime, *(n for n in self.nodes if n is not None))
        return Scope("", fields, self.source, "the tables of FROM", {}, shown, self.merged, absent=absent)

    def _step(self, join: exp.Join, index: int) -> Step:
        span = head_span(join, _named(join.this), self.source)
        kind = self._kind(join, span)
        on, using = join.args.get("on"), [c.name for c in join.args.get("using") or ()]
        if join.args.get("method") == "NATURAL":
            earlier = {name.lower() for v in self.visible[:index] for name in v.columns}
            using = [name for name in self.visible[index].columns if name.lower() in earlier]
        conditions = [self._equal(name, index, kind, span) for name in using]
        if on is not None:
            before = self._scope({p for p in self.hidden if p != index})
            conditions += self.conjuncts(on, before, "ON")
        version = join.this.args.get("version")
        as_of = self._as_of(version, index) if version is not None else None
        if as_of is not None and kind not in ("inner", "left"):
            hint = "Write JOIN or LEFT JOIN: a row of the tables before it finds what is valid at its time."
            raise UnsupportedError(f"{kind.upper()} JOIN with FOR SYSTEM_TIME AS OF", span, hint=hint)
        at = span_of(on, self.source) if on is not None else span
        return Step(kind, tuple(conditions), span, as_of, coalesced=tuple(self.coalesced.get(index, ())), on=at)

    def _as_of(self, version: exp.Version, index: int) -> AsOf:
        """Return the time of FOR SYSTEM_TIME AS OF, a column of the relations before `index`."""
        span, time = span_of(version, self.source), version.expression.unnest()
        if not isinstance(time, exp.Column):
            hint = "Write FOR SYSTEM_TIME AS OF o.ts, a time attribute of a table before it, or o.p, a column p AS PROCTIME()."
            raise UnsupportedError("AS OF anything but a column", span, hint=hint)
        scope = self._scope({*self.hidden, index})
        return AsOf(ExpressionBinder(scope, self.catalog, self.checker).rewrite(time).name, time.sql(), span)

    def _kind(self, join: exp.Join, span: Span) -> Kind:
        method = join.args.get("method") or ""
        if method not in ("", "NATURAL"):
            hint = "Write JOIN b FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k." if method == "ASOF" else None
            raise UnsupportedError(f"{method} JOIN", span, hint=hint)
        word = (join.side or join.kind or "inner").lower()
        if join.kind in ("SEMI", "ANTI"):
            word = join.kind.lower()
        kind: Kind | None = next((k for k in get_args(Kind) if k == word), None)
        return kind or "inner"

    def _equal(self, name: str, index: int, kind: Kind, span: Span) -> Conjunct:
        """Return the condition of USING (name), and record the merged column."""
        earlier = [v for p, v in enumerate(self.visible[:index]) if p not in self.hidden]
        columns = [c for v in earlier if (c := v.find(name)) is not None]
        left = self.merged.get(name.lower()) or next(iter(columns), None)
        right = self.visible[index].find(name)
        if left is None or right is None:
            where = self.visible[index].described if right is None else "the tables before it"
            raise BindError(f'column "{name}" of USING does not exist in {where}', span)
        if len(columns) > 1 and name.lower() not in self.merged:
            hint = "Write ON, and say which one: a.x = b.x."
            raise BindError(f'column "{name}" of USING is in several of the tables before it', span, hint=hint)
        if kind == "full":
            both = exp.Anonymous(this="coalesce", expressions=[column_reference(left), column_reference(right)])
            self.merged[name.lower()] = self._computed(name, both, index, span)
        elif kind not in ("semi", "anti"):
            self.merged[name.lower()] = right if kind == "right" else left
        bound = exp.EQ(this=column_reference(left), expression=column_reference(right))
        return self.conjunct(bound, Expression.of(bound, "BOOLEAN", span))

    def _computed(self, name: str, bound: exp.Expr, index: int, span: Span) -> str:
        """Add a column that is computed above the join with the relation at `index`, and return its name."""
        kind = self.checker.type(tuple(f for fields in self.fields for f in fields), bound, self.source)
        own = unique([*self.indexes, name])[-1]
        self.coalesced.setdefault(index, []).append(Item(own, Expression.of(bound, kind, span)))
        self.fields[index] = (*self.fields[index], Field(own, kind))
        self.indexes[own] = index
        return own

    # -- semi and anti joins of subqueries

    def add_hidden(self, node: Node) -> dict[str, str]:
        """Add the right input of a semi or anti join, and map its columns to their new names; `match` must follow."""
        fields = node.schema
        own = unique([*self.indexes, *(f.name for f in fields)])[len(self.indexes) :]
        self.hidden.add(len(self.nodes))
        self._append(_renamed(node, fields, own), VisibleRelation("", "the subquery", {}))
        return {f.name: name for f, name in zip(fields, own, strict=True)}

    def match(self, kind: Kind, conditions: Sequence[Conjunct], span: Span) -> None:
        """Add the semi or anti join with the input that `add_hidden` has added last."""
        self.steps.append(Step(kind, tuple(conditions), span))

    # -- conditions

    def conjuncts(self, condition: exp.Expr, scope: Scope, clause: str) -> list[Conjunct]:
        """Return the bound operands of AND of a condition; `clause` names the clause in errors. Raises BindError."""
        conjuncts = []
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        for part in parts_of(condition):
            binder.refuse_aggregates(part, f"in {clause}")
            bound = binder.rewrite(part)
            expression = binder.typed(bound, part)
            if expression.type not in ("BOOLEAN", NULL_TYPE):
                message = f"{clause} needs a condition, not a value of type {expression.type}"
                raise BindError(message, expression.span)
            conjuncts.append(self.conjunct(bound, expression))
        return conjuncts

    def conjunct(self, bound: exp.Expr, expression: Expression) -> Conjunct:
        """Return a bound condition with the indexes of the relations that it names."""
        return Conjunct(bound, expression, frozenset(named_indexes(bound, self.indexes)))

    def tree(self, where: Sequence[Conjunct]) -> Node:
        """Return the plan of the joins with the conditions of WHERE. Raises BindError and UnsupportedError."""
        return JoinTree(
            self.checker, self.source, self.ttls, self.nodes, self.fields, self.visible, self.indexes, self.steps
        ).of(where)


def _named(relation: exp.Expr) -> exp.Expr:
    """Return the part of an item of FROM that names it: of a table, the table without alias and version; else the item."""
    return relation.this if isinstance(relation, exp.Table) and isinstance(relation.this, exp.Expr) else relation


def _condition(join: exp.Join) -> exp.Expr | None:
    """Return the condition of ON, None without any and for TRUE."""
    on: exp.Expr | None = join.args.get("on")
    return None if on is None or (isinstance(on.unnest(), exp.Boolean) and on.unnest().this) else on


def parts_of(condition: exp.Expr) -> list[exp.Expr]:
    """Return the parsed operands of AND of a condition, nested ones too; the condition itself if there is no AND."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return [part for side in (inner.this, inner.expression) for part in parts_of(side)]
    return [condition]


def reads_join(node: Node) -> bool:
    """Return whether a node is a join, or only filters, projections and LATERAL above one."""
    if isinstance(node, Filter | Projection | Lateral):
        return reads_join(node.input)
    return isinstance(node, Joining)


def _renamed(node: Node, fields: Schema, names: Sequence[str]) -> Node:
    """Return a plan whose columns have the names `names`; the same object if they have."""
    if [f.name for f in fields] == list(names):
        return node
    items = (Item(n, Expression.of_column(f.name, f.type)) for f, n in zip(fields, names, strict=True))
    return Projection(node, tuple(items))
