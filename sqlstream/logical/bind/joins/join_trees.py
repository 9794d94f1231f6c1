"""Builds joins from relations and conditions: finds keys and time bounds, and pushes filters below joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from sqlglot import exp

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, SourceText, Span
from sqlstream.logical.bind.expressions.intervals import constant_interval
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.joins.lateral import LateralRows
from sqlstream.logical.bind.joins.lookup_joins import lookup_join
from sqlstream.logical.bind.joins.time_bounds import TimeBounds, time_bounds
from sqlstream.logical.bind.joins.versions import AsOf, check_time, no_time_to_live, no_versions, versions
from sqlstream.logical.bind.over.ranking import filtered
from sqlstream.logical.bind.scope import VisibleRelation
from sqlstream.logical.plan.expressions import Expression, Item, Schema
from sqlstream.logical.plan.joining import Kind, OwnNames
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.predicates import Claims
from sqlstream.logical.plan.relational import Filter, Lateral, Projection
from sqlstream.logical.plan.time_domains import ordering_times
from sqlstream.sql.dialect import to_duckdb
from sqlstream.units import Duration


@dataclass(frozen=True, slots=True)
class Conjunct:
    """An operand of AND: its bound tree, its expression, and the indexes of the relations that it names."""

    bound: exp.Expr
    expression: Expression
    indexes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Step:
    """A join of one more relation with the relations before it; with `lateral`, the relation is computed from their rows."""

    kind: Kind
    conditions: tuple[Conjunct, ...]
    span: Span
    # The time of FOR SYSTEM_TIME AS OF.
    as_of: AsOf | None = None
    lateral: LateralRows | None = None
    # Columns that are computed above the join: of USING, which coalesce both sides of a FULL JOIN; counts of LATERAL.
    coalesced: tuple[Item, ...] = ()
    # The position of ON in the text, else of the join; None for a join of a subquery.
    on: Span | None = None


@dataclass(frozen=True, slots=True)
class JoinTree:
    """The relations of a query block, by their indexes in FROM, and the steps that join them from left to right.

    `nodes` are the plans of relations, None for UNNEST and LATERAL, and `fields` their columns. `indexes` maps columns to the
    indexes of their relations, `ttls` has the times to live of relations by alias in lower case.
    """

    checker: TypeChecker
    source: SourceText
    ttls: Mapping[str, Duration]
    nodes: Sequence[Node | None]
    fields: Sequence[Schema]
    visible: Sequence[VisibleRelation]
    indexes: Mapping[str, int]
    steps: Sequence[Step]

    def of(self, where: Sequence[Conjunct]) -> Node:
        """Join the relations from left to right. Conditions of WHERE filter as far below as they can, or become join conditions.

        Raises BindError for conditions that cannot be keys or bounds, UnsupportedError for joins that cannot run.
        """
        rest = list(where)
        nodes: list[Node | None] = []
        for index, node in enumerate(self.nodes):
            own = [c for c in rest if c.indexes == {index} and self._is_certain(index) and node is not None]
            rest = [c for c in rest if c not in own]
            nodes.append(_filtered(node, own) if node is not None else None)
        tree = nodes[0]
        assert tree is not None
        for index, step in enumerate(self.steps, 1):
            conditions = list(step.conditions)
            if (step.kind == "inner" or step.lateral) and not any(
                s.kind in ("right", "full") for s in self.steps[index:]
            ):
                held = [c for c in rest if max(c.indexes, default=0) <= index and index in c.indexes]
                conditions += held
                rest = [c for c in rest if c not in held]
            if step.lateral is not None:
                lateral = Lateral(tree, step.lateral.rows, step.lateral.fields, step.kind == "left", step.lateral.key)
                tree = _filtered(lateral, conditions)
                continue
            right = nodes[index]
            assert right is not None
            tree = _with(self._joined(tree, right, index, replace(step, conditions=tuple(conditions))), step.coalesced)
        return _filtered(tree, rest)

    def _is_certain(self, index: int) -> bool:
        """Return whether WHERE can filter a relation before it is joined: no outer join pads it, and it has no versions."""
        step = self.steps[index - 1] if index > 0 else None
        # The valid version must be picked among all versions.
        own = step is not None and (step.kind in ("left", "full") or step.as_of is not None)
        return not own and all(s.kind not in ("right", "full") for s in self.steps[index:])

    def _joined(self, left: Node, right: Node, index: int, step: Step) -> Node:
        """Return the join of two inputs; conditions on one of them filter it first if that is equivalent."""
        conditions = list(step.conditions)
        certain = step.kind not in ("right", "full") and step.as_of is None
        of_right = [c for c in conditions if c.indexes == {index} and certain]
        of_left = [c for c in conditions if index not in c.indexes and step.kind in ("inner", "right", "semi")]
        left, right = _filtered(left, of_left), _filtered(right, of_right)
        conditions = [c for c in conditions if c not in of_left and c not in of_right]
        aliases = (self.visible[0].alias if index == 1 else "", self.visible[index].alias)
        pairs = [(c, pair) for c in conditions if (pair := self._equality(c, index)) is not None]
        if step.as_of is not None:
            return self._temporal(left, right, index, step, conditions, pairs)
        keys = tuple(zip(*(self._comparable(c, pair) for c, pair in pairs), strict=True)) or ((), ())
        equal = [c for c, _ in pairs]
        if (window_ends := self._windows(left, right, pairs, step)) is not None:
            others = [c for c in conditions if c not in equal]
            return IntervalJoin(
                (left, right),
                "",
                step.kind,
                keys,
                _all(others),
                aliases,
                step.span,
                window_ends,
                windowed=True,
                own_names=self._own_names(index),
            )
        bounded = self._interval(left, right, [c for c in conditions if index in c.indexes], index)
        if bounded is not None:
            left, right, times, bounds, used = bounded
            assert bounds.before is not None
            assert bounds.after is not None
            others = [c for c in conditions if c not in equal and c not in used]
            return IntervalJoin(
                (left, right),
                "",
                step.kind,
                keys,
                _all(others),
                aliases,
                step.span,
                times,
                bounds.before,
                bounds.after,
                own_names=self._own_names(index),
            )
        ttls = tuple(self.ttls.get(alias.lower()) for alias in aliases)
        others = [c for c in conditions if c not in equal]
        unread = self._about_times(left, right, others)
        return Join((left, right), "", step.kind, keys, _all(others), aliases, step.span, ttls, unread)

    def _own_names(self, index: int) -> OwnNames:
        """Return the columns of both inputs of the join with the relation at `index`, with their names in their relations."""
        first = tuple(self.visible[0].columns.items()) if index == 1 else ()
        return first, tuple(self.visible[index].columns.items())

    def _about_times(self, left: Node, right: Node, conditions: Sequence[Conjunct]) -> str | None:
        """Return the text of a condition on the times of both inputs that is not a bound of an interval join, None if none is."""
        if left.is_changelog or right.is_changelog:
            # A changelog cannot be in an interval join, however the condition is written.
            return None
        times = [set(ordering_times(n)) for n in (left, right)]
        for condition in conditions:
            named = {c.name for c in condition.bound.find_all(exp.Column)}
            if all(named & of for of in times) and (span := condition.expression.span) is not None:
                return span.text
        return None

    def _equality(self, condition: Conjunct, index: int) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the operands of an equality between the relations before and the relation at `index`; None for others."""
        node = condition.bound.unnest()
        if not isinstance(node, exp.EQ):
            return None
        sides = node.this, node.expression
        indexes = [set(named_indexes(side, self.indexes)) for side in sides]
        if indexes[1] == {index} and indexes[0] and index not in indexes[0]:
            return sides
        if indexes[0] == {index} and indexes[1] and index not in indexes[1]:
            return sides[1], sides[0]
        return None

    def _constants(
        self, conditions: Iterable[Conjunct], index: int
    ) -> list[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]]:
        return [(c, pair) for c in conditions if (pair := self._constant(c, index)) is not None]

    def _constant(self, condition: Conjunct, index: int) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the operands of an equality of a constant with the relation at `index`, the constant first; else None."""
        node = condition.bound.unnest()
        if not isinstance(node, exp.EQ) or condition.indexes != {index} or condition.expression.volatile:
            return None
        sides = node.this, node.expression
        if sides[0].find(exp.Column) is None:
            return sides
        return (sides[1], sides[0]) if sides[1].find(exp.Column) is None else None

    def _sides(self, pair: tuple[exp.Expr, exp.Expr], condition: Conjunct) -> tuple[Expression, Expression]:
        """Return the operands of an equality with their own types, which must be comparable."""
        self._comparable(condition, pair)
        fields = tuple(f for fields in self.fields for f in fields)
        types, expression = self.checker.types(fields, list(pair), self.source), condition.expression
        left, right = (
            Expression.of(s, t, expression.span, expression.volatile) for s, t in zip(pair, types, strict=True)
        )
        return left, right

    def _comparable(self, condition: Conjunct, pair: tuple[exp.Expr, exp.Expr]) -> tuple[Expression, Expression]:
        """Return the operands of an equality cast to a common type. Raises BindError if there is none."""
        fields, span = tuple(f for fields in self.fields for f in fields), condition.expression.span
        types = self.checker.types(fields, list(pair), self.source)
        volatile = condition.expression.volatile
        if types[0] == types[1]:
            left, right = (Expression.of(side, types[0], span, volatile) for side in pair)
            return left, right
        if "VARCHAR" in types:
            hint = "Convert one of them with CAST."
            raise BindError(f"{types[0]} and {types[1]} cannot be keys of a join", span, hint=hint)
        both = exp.Anonymous(this="coalesce", expressions=[side.copy() for side in pair])
        try:
            kind = self.checker.type(fields, both, self.source)
        except BindError:
            hint = "Convert one of them with CAST."
            raise BindError(f"{types[0]} and {types[1]} cannot be keys of a join", span, hint=hint) from None
        left, right = (Expression.of(s, t, span, volatile).cast(kind) for s, t in zip(pair, types, strict=True))
        return left, right

    def _windows(
        self, left: Node, right: Node, pairs: Sequence[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]], step: Step
    ) -> tuple[str, str] | None:
        """Return the columns of both windows' ends if equalities join rows of equal windows, else None."""
        windows = left.window_columns, right.window_columns
        if left.is_changelog or right.is_changelog or windows[0] is None or windows[1] is None:
            return None
        equal = {(to_duckdb(a), to_duckdb(b)) for _, (a, b) in pairs}
        ends = windows[0].end, windows[1].end
        if ends[0] is None or ends[1] is None:
            return None
        same_end = (quote_name(ends[0]), quote_name(ends[1])) in equal
        if same_end and (ends[0] in left.clock_times) != (ends[1] in right.clock_times):
            hint = "Join windows that are both over event times, or both over PROCTIME()."
            raise BindError("windows of the clock and windows of event time are never the same", step.span, hint=hint)
        starts, sizes = (windows[0].start, windows[1].start), (left.window_size, right.window_size)
        same_start = (
            starts[0] is not None and starts[1] is not None and (quote_name(starts[0]), quote_name(starts[1])) in equal
        )
        lengths = [size.length if size is not None else None for size in sizes]
        if None not in lengths and lengths[0] != lengths[1] and same_start and same_end:
            message = (
                f"windows of {' and of '.join(size.text for size in sizes if size is not None)} are never the same"
            )
            raise BindError(message, step.span, hint="Let both have one size, or join on window_end alone.")
        same_start = same_start and sizes[0] is not None and sizes[0] == sizes[1]
        return (ends[0], ends[1]) if same_start or same_end else None

    def _interval(
        self, left: Node, right: Node, conditions: Sequence[Conjunct], index: int
    ) -> tuple[Node, Node, tuple[str, str], TimeBounds, list[Conjunct]] | None:
        """Return inputs, times, bounds and the conditions that set them, if these bound the times from both sides; else None."""
        if left.is_changelog or right.is_changelog:
            return None
        for a in ordering_times(left):
            for b in ordering_times(right):
                types = [next(f.type for f in n.schema if f.name == t) for n, t in ((left, a), (right, b))]
                # In a time zone days differ in length.
                if types[0] != types[1] or ("ZONE" in types[0] and self.checker.zone != "UTC"):
                    continue
                bounds = TimeBounds()
                used: list[Conjunct] = []
                for condition in conditions:
                    limits = time_bounds(
                        condition.bound, a, b, lambda n: constant_interval(self.checker, n, self.source)
                    )
                    if limits is not None:
                        bounds, used = bounds.and_(limits), [*used, condition]
                if bounds.before is not None and bounds.after is not None:
                    if (a in left.clock_times) != (b in right.clock_times):
                        message = "a time of the clock and an event time cannot bound each other"
                        hint = "Compare two event times, or two PROCTIME() columns."
                        raise BindError(message, used[0].expression.span, hint=hint)
                    if bounds.before + bounds.after < 0:
                        hint = "The latest time that they allow is before the earliest one."
                        raise BindError("no times are within these bounds", used[0].expression.span, hint=hint)
                    return left, right, (a, b), bounds, used
        return None

    def _temporal(
        self,
        left: Node,
        right: Node,
        index: int,
        step: Step,
        conditions: Sequence[Conjunct],
        pairs: Sequence[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]],
    ) -> Node:
        """Return the join with the versions valid at the times of the rows before; a lookup join for a processing time."""
        assert step.as_of is not None
        described, as_of = self.visible[index].described, step.as_of
        if as_of.column in left.batch_times:
            sides = [self._sides(pair, c) for c, pair in pairs]
            fixed = [self._sides(pair, c) for c, pair in self._constants(conditions, index)]
            return lookup_join(
                left, right, step.kind, sides, fixed, _all(conditions), described, as_of, step.span, step.on
            )
        check_time(left, as_of)
        versioned = versions(right)
        if versioned is None:
            raise no_versions(described, right, as_of.span)
        if versioned.ttl:
            raise no_time_to_live(described, as_of.span)
        if as_of.column in left.clock_times:
            message = f"AS OF {as_of.text}: it is a time of the clock, and versions have event times"
            hint = "Join AS OF an event time. What a table has now is looked up by a PROCTIME() column of the table before it."
            raise BindError(message, as_of.span, hint=hint)
        types = {f.name: f.type for node in (left, right) for f in node.schema}
        if types[as_of.column] != types[versioned.time]:
            message = (
                f"the times of the rows ({types[as_of.column]}) and of the versions ({types[versioned.time]}) differ"
            )
            raise BindError(message, as_of.span, hint="Declare both as TIMESTAMP, or both as TIMESTAMP_LTZ.")
        equalities = [*pairs, *self._constants(conditions, index)]
        keys = {
            to_duckdb(pair[1]): (c, pair) for c, pair in reversed(equalities) if to_duckdb(pair[1]) in versioned.sqls
        }
        if lacking := [sql for sql in versioned.sqls if sql not in keys]:
            own = {quote_name(column): name for name, column in self.visible[index].columns.items()}
            named = ", ".join(own.get(sql, sql) for sql in lacking)
            hint = f"Add {self.visible[index].alias}.{named.split(', ')[0]} = .. to ON."
            raise BindError(f"ON does not say which version of {described}: its key has {named}", step.on, hint=hint)
        used = [c for c, _ in keys.values()]
        equal = tuple(zip(*(self._comparable(c, pair) for c, pair in keys.values()), strict=True))
        others = _all([c for c in conditions if c not in used])
        aliases = (self.visible[0].alias if index == 1 else "", self.visible[index].alias)
        times = (as_of.column, versioned.time)
        own_names = self._own_names(index)
        return TemporalJoin(
            (left, versioned.node), "", step.kind, equal, others, aliases, step.span, times, own_names=own_names
        )


def named_indexes(bound: exp.Expr, indexes: Mapping[str, int]) -> Iterator[int]:
    """Yield the indexes of the relations whose columns a bound expression reads, with repetitions."""
    return (indexes[c.name] for c in bound.find_all(exp.Column) if c.name in indexes)


def _all(conditions: Sequence[Conjunct]) -> Expression | None:
    """Return the conjunction of conditions, None without any."""
    if not conditions:
        return None
    sql = " AND ".join(f"({to_duckdb(c.bound)})" for c in conditions)
    whole = Expression.over((c.expression for c in conditions), sql, "BOOLEAN")
    return replace(whole, claims=reduce(and_, (Claims.of(c.bound) for c in conditions)))


def _with(node: Node, items: Sequence[Item]) -> Node:
    """Return a plan with further columns."""
    if not items:
        return node
    own = (Item(f.name, Expression.of_column(f.name, f.type)) for f in node.schema)
    return Projection(node, (*own, *items))


def _filtered(node: Node, conditions: Sequence[Conjunct]) -> Node:
    predicate = _all(conditions)
    return node if predicate is None else filtered(Filter(node, predicate))
