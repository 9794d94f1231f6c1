"""Binding of joins: which conditions are keys, how far times may lie apart, and what each input needs to send on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.errors import BindError, Source, Span, UnsupportedError
from sqlstream.logical.expressions import ExpressionBinder
from sqlstream.logical.intervals import microseconds
from sqlstream.logical.join_nodes import IntervalJoin, Join, Joining, Kind, TemporalJoin
from sqlstream.logical.judge import NULL_TYPE, Judge
from sqlstream.logical.lateral import LateralBinder, Made
from sqlstream.logical.lookups import lookup_join
from sqlstream.logical.nodes import Expression, Filter, Item, Lateral, Node, Project, Schema, quote
from sqlstream.logical.properties import (
    by_clock,
    changes,
    processing_times,
    schema,
    time_attributes,
    window_columns,
    window_size,
)
from sqlstream.logical.ranking import filtered
from sqlstream.logical.scope import Scope, Visible, column_reference, unique
from sqlstream.logical.time_bounds import TimeBounds, time_bounds
from sqlstream.logical.versions import AsOf, check_time, no_versions, versions
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

_KINDS = set(get_args(Kind))


@dataclass(frozen=True, slots=True)
class Relation:
    """A bound item of FROM: its plan, the name by which columns qualify, and what errors call it."""

    node: Node
    alias: str
    described: str


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A condition that must be true: as it is bound, with its type, and the places of the inputs that it names."""

    bound: exp.Expr
    expression: Expression
    places: frozenset[int]


@dataclass(frozen=True, slots=True)
class Step:
    """What joins one more relation to those before it, or makes it of their rows."""

    kind: Kind
    conditions: tuple[Conjunct, ...]
    span: Span
    # The time of the rows before, where they find what is valid then.
    as_of: AsOf | None = None
    made: Made | None = None


class JoinBinder:
    """Binds the FROM and the WHERE of one query block that reads several relations.

    Columns get names that are all different: those that occur before get a number.
    """

    def __init__(self, catalog: Catalog, judge: Judge, source: Source, ttls: Mapping[str, int]):
        self.catalog, self.judge, self.source = catalog, judge, source
        # Milliseconds, by the names of relations in lower case.
        self.ttls = ttls
        # What is read, None where a relation is made of the rows before it; and the columns of all.
        self.nodes: list[Node | None] = []
        self.fields: list[Schema] = []
        self.visible: list[Visible] = []
        self.steps: list[Step] = []
        # By names that USING has made one, the column that they mean.
        self.merged: dict[str, str] = {}
        # Which relation a column is of.
        self.places: dict[str, int] = {}
        # Relations of which only a match counts: they cannot be named above.
        self.hidden: set[int] = set()

    # -- relations

    def add(self, relation: Relation, join: exp.Join | None = None) -> None:
        """Add a relation of FROM; all but the first one come with a join."""
        place = len(self.nodes)
        self._check_alias(relation.alias, join.this if join is not None else None)
        fields = schema(relation.node)
        own = unique([*self.places, *(f.name for f in fields)])[len(self.places) :]
        columns = {f.name: name for f, name in zip(fields, own, strict=True)}
        self._append(_renamed(relation.node, fields, own), Visible(relation.alias, relation.described, columns))
        if join is not None:
            self.steps.append(self._step(join, place))
            if self.steps[-1].kind in ("semi", "anti"):
                self.hidden.add(place)

    def add_made(self, join: exp.Join) -> None:
        """Add UNNEST(..) or LATERAL (..), which is made of the rows of the relations before it."""
        place, span = len(self.nodes), span_of(join, self.source)
        kind = self._kind(join, span)
        if kind not in ("inner", "left") or join.args.get("using") or join.args.get("method"):
            hint = "Write CROSS JOIN, or LEFT JOIN .. ON TRUE."
            raise UnsupportedError("this join with rows that are made of the row itself", span, hint=hint)
        made = LateralBinder(self.catalog, self.judge, self.source, self.scope, [*self.places]).bind(join.this)
        if made.rows.volatile:
            raise UnsupportedError(
                "a random function in UNNEST or LATERAL", span, hint="Compute it in a subquery before."
            )
        self._check_alias(made.visible.alias, join.this)
        self._append(None, made.visible, made.fields)
        on = join.args.get("on")
        always = on is None or (isinstance(on.unnest(), exp.Boolean) and on.unnest().this)
        if on is not None and kind == "left" and not always:
            hint = "Write LEFT JOIN LATERAL (SELECT .. FROM UNNEST(..) AS x WHERE ..) AS y ON TRUE."
            raise UnsupportedError(
                "a condition for LEFT JOIN with UNNEST or LATERAL", span_of(on, self.source), hint=hint
            )
        conditions = [] if on is None or always else self.conjuncts(on, self._scope(self.hidden), "ON")
        self.steps.append(Step(kind, tuple(conditions), span, made=made))
        assert place == len(self.steps)

    def _append(self, node: Node | None, visible: Visible, fields: Schema | None = None) -> None:
        found = fields if fields is not None or node is None else schema(node)
        assert found is not None
        self.places |= {f.name: len(self.nodes) for f in found}
        self.nodes.append(node)
        self.fields.append(found)
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
        """What can be named: all relations so far but those of which only a match counts."""
        return self._scope(self.hidden)

    def _scope(self, hidden: Iterable[int] = ()) -> Scope:
        shown = tuple(v for place, v in enumerate(self.visible) if place not in hidden)
        known = {own for v in shown for own in v.columns.values()}
        fields = tuple(f for fields in self.fields for f in fields if f.name in known)
        return Scope("", fields, self.source, "the tables of FROM", {}, shown, self.merged)

    def _step(self, join: exp.Join, place: int) -> Step:
        span = span_of(join, self.source)
        kind = self._kind(join, span)
        on, using = join.args.get("on"), [c.name for c in join.args.get("using") or ()]
        if join.args.get("method") == "NATURAL":
            earlier = {name.lower() for v in self.visible[:place] for name in v.columns}
            using = [name for name in self.visible[place].columns if name.lower() in earlier]
        conditions = [self._equal(name, place, kind, span) for name in using]
        if on is not None:
            before = self._scope({p for p in self.hidden if p != place})
            conditions += self.conjuncts(on, before, "ON")
        version = join.this.args.get("version")
        as_of = self._as_of(version, place) if version is not None else None
        if as_of is not None and kind not in ("inner", "left"):
            hint = "Write JOIN or LEFT JOIN: a row of the tables before it finds what is valid at its time."
            raise UnsupportedError(f"{kind.upper()} JOIN with FOR SYSTEM_TIME AS OF", span, hint=hint)
        return Step(kind, tuple(conditions), span, as_of)

    def _as_of(self, version: exp.Version, place: int) -> AsOf:
        """Return the time of the rows before that FOR SYSTEM_TIME AS OF names."""
        span, time = span_of(version, self.source), version.expression.unnest()
        if not isinstance(time, exp.Column):
            hint = "Write FOR SYSTEM_TIME AS OF o.ts, where ts is a time attribute of a table before it."
            raise UnsupportedError("AS OF anything but a column", span, hint=hint)
        scope = self._scope({*self.hidden, place})
        return AsOf(ExpressionBinder(scope, self.catalog, self.judge).rewrite(time).name, time.sql(), span)

    def _kind(self, join: exp.Join, span: Span) -> Kind:
        method = join.args.get("method") or ""
        if method not in ("", "NATURAL"):
            hint = "Write ROW_NUMBER() .. = 1 over a join of the rows before." if method == "ASOF" else None
            raise UnsupportedError(f"{method} JOIN", span, hint=hint)
        word = (join.side or join.kind or "inner").lower()
        if join.kind in ("SEMI", "ANTI"):
            word = join.kind.lower()
        found: Kind | None = next((k for k in get_args(Kind) if k == word), None)
        return found or "inner"

    def _equal(self, name: str, place: int, kind: Kind, span: Span) -> Conjunct:
        """Return the condition of USING (name), which makes one column of two."""
        earlier = [v for p, v in enumerate(self.visible[:place]) if p not in self.hidden]
        left = self.merged.get(name.lower()) or next((c for v in earlier if (c := v.find(name)) is not None), None)
        right = self.visible[place].find(name)
        if left is None or right is None:
            where = self.visible[place].described if right is None else "the tables before it"
            raise BindError(f'column "{name}" of USING does not exist in {where}', span)
        if kind == "full":
            hint = "Write ON, and COALESCE(a.x, b.x)."
            raise UnsupportedError("FULL JOIN with USING", span, hint=hint)
        if kind not in ("semi", "anti"):
            self.merged[name.lower()] = right if kind == "right" else left
        bound = exp.EQ(this=column_reference(left), expression=column_reference(right))
        return self.conjunct(bound, Expression(to_duckdb(bound), "BOOLEAN", span))

    # -- what only has to match

    def add_hidden(self, node: Node) -> dict[str, str]:
        """Add an input of which only a match counts, and return the names of its columns here; `match` must follow."""
        fields = schema(node)
        own = unique([*self.places, *(f.name for f in fields)])[len(self.places) :]
        self.hidden.add(len(self.nodes))
        self._append(_renamed(node, fields, own), Visible("", "the subquery", {}))
        return {f.name: name for f, name in zip(fields, own, strict=True)}

    def match(self, kind: Kind, conditions: Sequence[Conjunct], span: Span) -> None:
        """Say which rows of the input that was added last match."""
        self.steps.append(Step(kind, tuple(conditions), span))

    # -- conditions

    def conjuncts(self, condition: exp.Expr, scope: Scope, clause: str) -> list[Conjunct]:
        """Return the conditions that must all be true for one to be."""
        found = []
        binder = ExpressionBinder(scope, self.catalog, self.judge)
        for part in parts_of(condition):
            binder.refuse_aggregates(part, f"in {clause}")
            bound = binder.rewrite(part)
            expression = binder.typed(bound, part)
            if expression.type not in ("BOOLEAN", NULL_TYPE):
                message = f"{clause} needs a condition, not a value of type {expression.type}"
                raise BindError(message, expression.span)
            found.append(self.conjunct(bound, expression))
        return found

    def conjunct(self, bound: exp.Expr, expression: Expression) -> Conjunct:
        """Return a bound condition with the inputs that it names."""
        return Conjunct(bound, expression, frozenset(self._places(bound)))

    def _places(self, bound: exp.Expr) -> Iterator[int]:
        return (self.places[c.name] for c in bound.find_all(exp.Column) if c.name in self.places)

    # -- the tree

    def tree(self, where: Sequence[Conjunct]) -> Node:
        """Return the joins, from left to right, with the conditions of WHERE where rows can be left out first."""
        rest = list(where)
        nodes: list[Node | None] = []
        for place, node in enumerate(self.nodes):
            own = [c for c in rest if c.places == {place} and self._is_certain(place) and node is not None]
            rest = [c for c in rest if c not in own]
            nodes.append(_filtered(node, own) if node is not None else None)
        tree = nodes[0]
        assert tree is not None
        for place, step in enumerate(self.steps, 1):
            conditions = list(step.conditions)
            if (step.kind == "inner" or step.made) and not any(s.kind in ("right", "full") for s in self.steps[place:]):
                held = [c for c in rest if max(c.places, default=0) <= place and place in c.places]
                conditions += held
                rest = [c for c in rest if c not in held]
            if step.made is not None:
                made = Lateral(tree, step.made.rows, step.made.fields, step.kind == "left", step.made.key)
                tree = _filtered(made, conditions)
                continue
            right = nodes[place]
            assert right is not None
            tree = self._joined(tree, right, place, replace(step, conditions=tuple(conditions)))
        return _filtered(tree, rest)

    def _is_certain(self, place: int) -> bool:
        """Tell whether a relation's columns are never NULL for want of a match."""
        step = self.steps[place - 1] if place > 0 else None
        # Which version is valid does not depend on what else is asked of it.
        own = step is not None and (step.kind in ("left", "full") or step.as_of is not None)
        return not own and all(s.kind not in ("right", "full") for s in self.steps[place:])

    def _joined(self, left: Node, right: Node, place: int, step: Step) -> Node:
        """Return the join of two inputs; a condition on one of them holds before where that means the same."""
        conditions = list(step.conditions)
        certain = step.kind not in ("right", "full") and step.as_of is None
        of_right = [c for c in conditions if c.places == {place} and certain]
        of_left = [c for c in conditions if place not in c.places and step.kind in ("inner", "right", "semi")]
        left, right = _filtered(left, of_left), _filtered(right, of_right)
        conditions = [c for c in conditions if c not in of_left and c not in of_right]
        aliases = (self.visible[0].alias if place == 1 else "", self.visible[place].alias)
        pairs = [(c, pair) for c in conditions if (pair := self._equality(c, place)) is not None]
        if step.as_of is not None:
            return self._temporal(left, right, place, step, conditions, pairs)
        keys = tuple(zip(*(self._comparable(c, pair) for c, pair in pairs), strict=True)) or ((), ())
        equal = [c for c, _ in pairs]
        if (found := self._windows(left, right, pairs, step)) is not None:
            others = [c for c in conditions if c not in equal]
            sides = found
            return IntervalJoin(
                (left, right), "", step.kind, keys, _all(others), aliases, step.span, sides, 0, 0, windowed=True
            )
        bounded = self._interval(left, right, [c for c in conditions if place in c.places], place)
        if bounded is not None:
            left, right, times, bounds, used = bounded
            assert bounds.before is not None
            assert bounds.after is not None
            others = [c for c in conditions if c not in equal and c not in used]
            return IntervalJoin(
                (left, right), "", step.kind, keys, _all(others), aliases, step.span, times, bounds.before, bounds.after
            )
        ttls = tuple(self.ttls.get(alias.lower()) for alias in aliases)
        others = [c for c in conditions if c not in equal]
        return Join((left, right), "", step.kind, keys, _all(others), aliases, step.span, ttls)

    def _equality(self, condition: Conjunct, place: int) -> tuple[exp.Expr, exp.Expr] | None:
        """Return both sides of an equality of something of the inputs before with something of one input."""
        node = condition.bound.unnest()
        if not isinstance(node, exp.EQ):
            return None
        sides = node.this, node.expression
        places = [set(self._places(side)) for side in sides]
        if places[1] == {place} and places[0] and place not in places[0]:
            return sides
        if places[0] == {place} and places[1] and place not in places[1]:
            return sides[1], sides[0]
        return None

    def _constants(
        self, conditions: Iterable[Conjunct], place: int
    ) -> list[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]]:
        return [(c, pair) for c in conditions if (pair := self._constant(c, place)) is not None]

    def _constant(self, condition: Conjunct, place: int) -> tuple[exp.Expr, exp.Expr] | None:
        """Return both sides of an equality of a constant with something of one input."""
        node = condition.bound.unnest()
        if not isinstance(node, exp.EQ) or condition.places != {place} or condition.expression.volatile:
            return None
        sides = node.this, node.expression
        if sides[0].find(exp.Column) is None:
            return sides
        return (sides[1], sides[0]) if sides[1].find(exp.Column) is None else None

    def _sides(self, pair: tuple[exp.Expr, exp.Expr], condition: Conjunct) -> tuple[Expression, Expression]:
        """Return the sides of an equality as they are; the types must be comparable."""
        self._comparable(condition, pair)
        fields = tuple(f for fields in self.fields for f in fields)
        types, given = self.judge.types(fields, list(pair), self.source), condition.expression
        left, right = (
            Expression(to_duckdb(s), t, given.span, given.volatile) for s, t in zip(pair, types, strict=True)
        )
        return left, right

    def _comparable(self, condition: Conjunct, pair: tuple[exp.Expr, exp.Expr]) -> tuple[Expression, Expression]:
        """Return the sides of an equality as values of one type."""
        fields, span = tuple(f for fields in self.fields for f in fields), condition.expression.span
        types = self.judge.types(fields, list(pair), self.source)
        volatile = condition.expression.volatile
        if types[0] == types[1]:
            sqls = [to_duckdb(side) for side in pair]
            return Expression(sqls[0], types[0], span, volatile), Expression(sqls[1], types[1], span, volatile)
        if "VARCHAR" in types:
            hint = "Convert one of them with CAST."
            raise BindError(f"{types[0]} and {types[1]} cannot be keys of a join", span, hint=hint)
        both = exp.Anonymous(this="coalesce", expressions=[side.copy() for side in pair])
        kind = self.judge.type(fields, both, self.source)
        found = [Expression(f"CAST({to_duckdb(side)} AS {kind})", kind, span, volatile) for side in pair]
        return found[0], found[1]

    def _windows(
        self, left: Node, right: Node, pairs: Sequence[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]], step: Step
    ) -> tuple[str, str] | None:
        """Return the columns of the windows' ends where rows of equal windows are joined, None where not."""
        windows = window_columns(left), window_columns(right)
        if changes(left) or changes(right) or windows[0] is None or windows[1] is None:
            return None
        equal = {(to_duckdb(a), to_duckdb(b)) for _, (a, b) in pairs}
        ends = windows[0].end, windows[1].end
        if ends[0] is None or ends[1] is None:
            return None
        if (quote(ends[0]), quote(ends[1])) in equal:
            return ends[0], ends[1]
        starts = windows[0].start, windows[1].start
        if (
            starts[0] is not None
            and starts[1] is not None
            and (quote(starts[0]), quote(starts[1])) in equal
            and (size := window_size(left)) is not None
            and size == window_size(right)
        ):
            return ends[0], ends[1]
        return None

    def _interval(
        self, left: Node, right: Node, conditions: Sequence[Conjunct], place: int
    ) -> tuple[Node, Node, tuple[str, str], TimeBounds, list[Conjunct]] | None:
        """Return inputs, times and bounds where conditions say how far times may lie apart, and those that say so."""
        if changes(left) or changes(right):
            return None
        for a in (*time_attributes(left), *processing_times(left)):
            for b in (*time_attributes(right), *processing_times(right)):
                types = [next(f.type for f in schema(n) if f.name == t) for n, t in ((left, a), (right, b))]
                # Days of a zone differ in length.
                if types[0] != types[1] or ("ZONE" in types[0] and self.judge.zone != "UTC"):
                    continue
                bounds = TimeBounds()
                used: list[Conjunct] = []
                for condition in conditions:
                    found = time_bounds(condition.bound, a, b, lambda n: microseconds(self.judge, n, self.source))
                    if found is not None:
                        bounds, used = bounds.and_(found), [*used, condition]
                if bounds.before is not None and bounds.after is not None:
                    if bounds.before + bounds.after < 0:
                        raise BindError("no times are within these bounds", used[0].expression.span)
                    return self._by_clock(left, a), self._by_clock(right, b), (a, b), bounds, used
        return None

    def _temporal(
        self,
        left: Node,
        right: Node,
        place: int,
        step: Step,
        conditions: Sequence[Conjunct],
        pairs: Sequence[tuple[Conjunct, tuple[exp.Expr, exp.Expr]]],
    ) -> Node:
        """Return the join with the versions that are valid at the times of the rows before."""
        assert step.as_of is not None
        described, as_of = self.visible[place].described, step.as_of
        if as_of.column in processing_times(left):
            sides = [self._sides(pair, c) for c, pair in pairs]
            fixed = [self._sides(pair, c) for c, pair in self._constants(conditions, place)]
            return lookup_join(left, right, step.kind, sides, fixed, _all(conditions), described, as_of, step.span)
        check_time(left, as_of)
        found = versions(right)
        if found is None:
            raise no_versions(described, as_of.span)
        types = {f.name: f.type for node in (left, right) for f in schema(node)}
        if types[as_of.column] != types[found.time]:
            message = f"the times of the rows ({types[as_of.column]}) and of the versions ({types[found.time]}) differ"
            raise BindError(message, as_of.span, hint="Declare both as TIMESTAMP, or both as TIMESTAMP_LTZ.")
        known = [*pairs, *self._constants(conditions, place)]
        keys = {to_duckdb(pair[1]): (c, pair) for c, pair in reversed(known) if to_duckdb(pair[1]) in found.sqls}
        if lacking := [sql for sql in found.sqls if sql not in keys]:
            own = {quote(column): name for name, column in self.visible[place].columns.items()}
            named = ", ".join(own.get(sql, sql) for sql in lacking)
            hint = f"Add {self.visible[place].alias}.{named.split(', ')[0]} = .. to ON."
            raise BindError(f"ON does not say which version of {described}: its key has {named}", step.span, hint=hint)
        used = [c for c, _ in keys.values()]
        equal = tuple(zip(*(self._comparable(c, pair) for c, pair in keys.values()), strict=True))
        others = _all([c for c in conditions if c not in used])
        aliases = (self.visible[0].alias if place == 1 else "", self.visible[place].alias)
        times = (as_of.column, found.time)
        return TemporalJoin((left, found.node), "", step.kind, equal, others, aliases, step.span, times)

    def _by_clock(self, node: Node, time: str) -> Node:
        return by_clock(node, time) if time in processing_times(node) else node


def parts_of(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that must all be true for one to be."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return [part for side in (inner.this, inner.expression) for part in parts_of(side)]
    return [condition]


def reads_join(node: Node) -> bool:
    """Tell whether the rows of a node are those of a join, filtered and with what is made of them."""
    if isinstance(node, Filter | Project | Lateral):
        return reads_join(node.input)
    return isinstance(node, Joining)


def _all(conditions: Sequence[Conjunct]) -> Expression | None:
    """Return one condition that is true where all are."""
    if not conditions:
        return None
    sql = " AND ".join(f"({to_duckdb(c.bound)})" for c in conditions)
    volatile = any(c.expression.volatile for c in conditions)
    return Expression(sql, "BOOLEAN", conditions[0].expression.span, volatile)


def _filtered(node: Node, conditions: Sequence[Conjunct]) -> Node:
    predicate = _all(conditions)
    return node if predicate is None else filtered(Filter(node, predicate))


def _renamed(node: Node, fields: Schema, names: Sequence[str]) -> Node:
    """Return a plan with other names for its columns."""
    if [f.name for f in fields] == list(names):
        return node
    items = (Item(n, Expression(quote(f.name), f.type)) for f, n in zip(fields, names, strict=True))
    return Project(node, tuple(items))
