"""The shapes of the operators of a plan: what each computes and keeps, as plain data that a job records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from msgspec.structs import replace
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field
from sqlstream.logical.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank, whole_ranks
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.over.over import OverOperator
from sqlstream.physical.plan import PhysicalPlan, StatefulStage
from sqlstream.physical.windows import used_columns
from sqlstream.sql.dialect import to_duckdb
from sqlstream.units import Duration, duration
from sqlstream.warehouse.jobs import OperatorShape, RowPath, ShapeItem

# The SQL of the columns of a node over what tables and operators below it emit, but for columns that are those themselves.
Origins = Mapping[str, str]


def shapes(plan: PhysicalPlan) -> tuple[OperatorShape, ...]:
    """Return the shapes of the stages of a plan, in their order."""
    names = [(stage.node, stage.name) for stage in plan.stages if stage.node is not None]
    return tuple(_Shaping(stage, names).shape() for stage in plan.stages)


def shape_kind(node: Stateful | type[Stateful]) -> str:
    """Return the kind of a node as shapes have it, whatever its class is called: "WindowAggregate" for a window_aggregate."""
    return "".join(part.capitalize() for part in node.node_kind.split("_"))


class _Shaping:
    """Makes the shape of one stage; `names` are those of all operators of the plan."""

    def __init__(self, stage: StatefulStage, names: Sequence[tuple[Stateful, str]]):
        assert stage.node is not None
        self._node, self._operator, self._names = stage.node, stage.operator, names
        self._holds = stage.operator.holds
        self._origins = [_origins(child) for child in self._node.children]

    def shape(self) -> OperatorShape:
        node = self._node
        settings = {name: text for name, text in self._settings() if text}
        found = [
            RowPath(path.source, path.steps, input=place)
            for place, child in enumerate(node.children)
            for path in _paths(child, self._names)
        ]
        inputs = tuple(dict.fromkeys(path.source for path in found))
        return OperatorShape(
            shape_kind(node),
            tuple(self._keys()),
            tuple(self._items()),
            settings,
            inputs,
            tuple(found),
            bool(node.name),
        )

    # -- keys

    def _keys(self) -> Iterator[ShapeItem]:
        node = self._node
        match node:
            case SessionWindow() | CountWindows() | Normalize():
                yield from self._key_items([(k, [self._column(k)]) for k in node.keys])
            case WindowAggregate() | Aggregate():
                yield from self._key_items([(k.name, [k.expression]) for k in node.keys])
            case WindowRank() | Rank() | Over():
                yield from self._key_items([(k.column or k.sql, [k]) for k in node.keys])
            case SetOperation():
                yield from self._key_items([(f.name, [Expression.of_column(f.name, f.type)]) for f in node.schema])
            case Join() | IntervalJoin() | TemporalJoin():
                yield from self._key_items([(p[0].column or p[0].sql, p) for p in zip(*node.keys, strict=True)])
            case Process():
                keyed = [read.keys for read in node.reads if not read.broadcast]
                found = zip(node.key_names, zip(*keyed, strict=True), strict=True) if node.key_names else ()
                yield from self._key_items([(name, keys) for name, keys in found])
            case Sort():
                return
            case _:
                assert_never(node)

    def _key_items(self, keys: Sequence[tuple[str, Sequence[Expression]]]) -> Iterator[ShapeItem]:
        """Yield keys, each with its expressions, one for each input that has keys."""
        stored = self._operator.hash_columns if keys else ()
        places = [i for i in range(len(self._origins)) if not self._is_broadcast(i)]
        for number, (name, expressions) in enumerate(keys):
            written = " = ".join(e.sql for e in expressions)
            one_input = len(expressions) == 1
            origins = [self._origins[0 if one_input else place] for place in places[: len(expressions)]]
            origin = " = ".join(_inlined(e, o) for e, o in zip(expressions, origins, strict=True))
            columns = {
                t.name: (stored[number],)
                for t in self._operator.tables
                if number < len(stored) and any(c.name == stored[number] for c in t.columns)
            }
            yield ShapeItem(name, written, expressions[0].type, "key", origin if origin != written else "", columns)

    def _is_broadcast(self, place: int) -> bool:
        return isinstance(self._node, Process) and self._node.reads[place].broadcast

    def _column(self, name: str, place: int = 0) -> Expression:
        field = next(f for f in self._node.children[place].schema if f.name == name)
        return Expression.of_column(name, field.type)

    # -- items

    def _items(self) -> Iterator[ShapeItem]:
        node = self._node
        match node:
            case WindowAggregate() | Aggregate():
                for call in node.aggregates:
                    yield self._aggregate(call)
                if self._keeps_rows(node):
                    # The results are made anew of them.
                    taken = {call.name for call in node.aggregates}
                    yield from self._kept(Field(c.name, c.type) for c in used_columns(node) if c.name not in taken)
            case SessionWindow() | CountWindows() | WindowRank() | Rank() | Sort():
                yield from self._kept(node.input.schema)
            case Over():
                yield from self._kept(node.input.schema)
                for one in node.calls:
                    yield self._aggregate(one.call, one.manner)
            case SetOperation():
                yield from self._kept(f for f in node.input.schema if f.name == node.side)
            case Normalize():
                yield from self._kept(f for f in node.schema if f.name not in node.keys)
            case Join() | IntervalJoin() | TemporalJoin():
                for place, below in enumerate(node.inputs):
                    yield from self._kept(below.schema, place)
            case Process():
                yield from self._of_function(node)
            case _:
                assert_never(node)

    def _kept(self, fields: Iterable[Field], place: int = 0) -> Iterator[ShapeItem]:
        for field in fields:
            expression = Expression.of_column(field.name, field.type)
            yield self._item(field.name, expression.sql, _inlined(expression, self._origins[place]), field.type, place)

    def _item(self, name: str, written: str, origin: str, type: str, place: int) -> ShapeItem:
        return ShapeItem(
            name,
            written,
            type,
            origin=origin if origin != written else "",
            columns=self._holds.get(name, {}),
            input=place,
        )

    def _aggregate(self, call: AggregateItem, manner: str = "") -> ShapeItem:
        written = f"{call.sql}{manner}"
        columns = {} if self._makes_anew(call) else self._holds.get(call.name, {})
        origin = _inlined_call(call, self._origins[0]) + manner
        return ShapeItem(call.name, written, call.type, "aggregate", origin if origin != written else "", columns)

    def _keeps_rows(self, node: Aggregate | WindowAggregate) -> bool:
        """Tell whether the rows of an aggregate are kept: a call may have the name of a column, and hold something else."""
        used = used_columns(node)
        own = {given.name: (column.name,) for given, (column, _) in zip(used, stored_columns(used), strict=True)}
        return all(own[c.name] in self._holds.get(c.name, {}).values() for c in used)

    def _makes_anew(self, call: AggregateItem) -> bool:
        """Tell whether a call has the name of a kept column, and is itself computed of rows."""
        node = self._node
        return (
            isinstance(node, Aggregate | WindowAggregate)
            and self._keeps_rows(node)
            and any(c.name == call.name for c in used_columns(node))
        )

    def _of_function(self, node: Process) -> Iterator[ShapeItem]:
        for state in node.function.states:
            what = f"broadcast {state.kind}" if state.broadcast else state.kind
            type = f"{state.key_type} to {state.type}" if state.key_type else state.type
            yield ShapeItem(state.name, what, type, "state", columns=self._holds.get(state.name, {}))
        for place, read in enumerate(node.reads):
            for item in read.columns:
                origin = _inlined(item.expression, self._origins[place])
                found = self._item(item.name, item.expression.sql, origin, item.expression.type, place)
                own = self._holds.get(f"{node.function.tables[place].name}.{item.name}", {})
                yield ShapeItem(found.name, found.expression, found.type, origin=found.origin, columns=own, input=place)

    # -- settings

    def _settings(self) -> Iterator[tuple[str, str]]:
        node = self._node
        yield "changes below", "yes" if any(child.is_changelog for child in node.children) else ""
        match node:
            case WindowAggregate():
                yield "windows", self._windows(node.input)
                yield (
                    "window bounds",
                    ", ".join(f"{p} {n}" for p, n in zip(("start", "end", "time"), _bounds(node), strict=True) if n),
                )
                yield "lateness", duration(node.lateness) if node.lateness else ""
                early = node.early
                yield "early results", f"{early.every} {early.by}" if early else ""
                yield "late rows", node.late_rows or ""
            case SessionWindow():
                yield "windows", self._windows(node)
                yield "late rows", node.late_rows or ""
            case CountWindows():
                yield "windows", f"{node.size} rows every {node.slide}"
                yield "time", self._time(node.time_column)
                yield "time to live", _ttl(node.ttl)
            case Aggregate():
                yield "time to live", _ttl(node.ttl)
                yield "empty sets", ", ".join(map(str, node.empty_sets))
            case WindowRank() | Rank():
                yield "function", node.function
                yield "order", ", ".join(_inlined(o, self._origins[0]) for o in node.order)
                yield "n", str(node.limit) if node.limit is not None else ""
                if isinstance(node, Rank):
                    yield "time to live", _ttl(node.ttl)
                else:
                    yield "windows", self._windows(node.input)
                    yield "late rows", node.late_rows or ""
            case SetOperation():
                yield "function", node.function
                yield "distinct", "yes" if node.distinct else ""
                yield "time to live", _ttl(node.ttl)
            case Over() | Sort():
                yield "time", self._time(node.time)
                yield "order", ", ".join(_inlined(o, self._origins[0]) for o in node.order)
                yield "clock", "processing time" if node.by_clock else ""
                if isinstance(node, Over):
                    yield "time to live", _ttl(node.ttl)
                if isinstance(self._operator, OverOperator):
                    yield "rows in frames", self._operator.reach
            case Normalize():
                return
            case Join() | IntervalJoin() | TemporalJoin():
                yield from self._of_join(node)
            case Process():
                yield from self._of_call(node)
            case _:
                assert_never(node)

    def _of_join(self, node: Join | IntervalJoin | TemporalJoin) -> Iterator[tuple[str, str]]:
        yield "join", node.kind
        together = {name: sql for origins in self._origins for name, sql in origins.items()}
        yield "condition", _inlined(node.condition, together) if node.condition else ""
        for place, below in enumerate(node.inputs):
            yield f"changes of input {place}", "yes" if below.is_changelog else ""
        if isinstance(node, Join):
            for place, ttl in enumerate(node.ttls):
                yield f"time to live of input {place}", _ttl(ttl)
            return
        for place, time in enumerate(node.times):
            yield f"time of input {place}", self._time(time, place)
        if isinstance(node, IntervalJoin):
            yield "interval", f"{node.before} before to {node.after} after"

    def _of_call(self, node: Process) -> Iterator[tuple[str, str]]:
        yield "function", node.function.name
        for state in node.function.states:
            yield f"time to live of {state.name}", _ttl(node.ttl_of(state))
        for place, read in enumerate(node.reads):
            origins = self._origins[place]
            yield f"order of input {place}", ", ".join(_inlined(o, origins) for o in read.order)
            yield f"time of input {place}", self._time(read.time, place) if read.time else ""
            yield f"broadcast of input {place}", "yes" if read.broadcast else ""
            yield f"changes of input {place}", "yes" if node.inputs[place].is_changelog else ""
        yield "timers", "yes" if node.function.has_timers else ""
        yield "changes", node.function.changelog_mode or ""
        if node.function.changelog_mode == "upsert":
            yield "result", ", ".join(f"{c.name} {c.type}" for c in node.function.outputs)
        yield "late rows", node.late_rows or ""

    def _time(self, column: str, place: int = 0) -> str:
        return _inlined(self._column(column, place), self._origins[place])

    def _windows(self, node: Node) -> str:
        """Return which windows the rows of a node are in."""
        match node:
            case TimeWindows():
                time = _inlined(_column_of(node.input, node.time_column), _origins(node.input))
                offset = f" offset {duration(node.offset)}" if node.offset else ""
                zone = f" in {node.zone}" if node.zone else ""
                every = "" if node.kind == "TUMBLE" else f" every {duration(node.slide)}"
                return f"{node.kind} {time}{every} size {duration(node.size)}{offset}{zone}"
            case SessionWindow():
                time = _inlined(_column_of(node.input, node.time_column), _origins(node.input))
                gap = duration(node.gap) if isinstance(node.gap, int) else _inlined(node.gap, _origins(node.input))
                return f"SESSION {time} gap {gap}"
            case CountWindows():
                return f"{node.size} rows every {node.slide}"
        if isinstance(node, WindowAggregate):
            return self._windows(node.input)
        found = dict.fromkeys(self._windows(child) for child in node.children)
        return ", ".join(filter(None, found))


def _bounds(node: WindowAggregate) -> tuple[str | None, str | None, str | None]:
    return node.window.start, node.window.end, node.window.time


def _ttl(ttl: Duration | None) -> str:
    return duration(ttl) if ttl else ""


def _column_of(node: Node, name: str) -> Expression:
    return next(Expression.of_column(f.name, f.type) for f in node.schema if f.name == name)


# -- how rows come


def sink_paths(sinks: Iterable[ResultSink], plan: PhysicalPlan, table: str) -> tuple[RowPath, ...]:
    """Return how rows come to the sink of a table."""
    names = [(stage.node, stage.name) for stage in plan.stages if stage.node is not None]
    found = []
    for sink in sinks:
        if sink.table.name.lower() == table.lower():
            pairs = [(own.name, target.name) for own, target in zip(sink.input.schema, sink.columns, strict=True)]
            for path in _paths(sink.input, names):
                found.append(RowPath(path.source, path.steps, {target: path.columns[own] for own, target in pairs}))
    return tuple(found)


def _paths(node: Node, names: Sequence[tuple[Stateful, str]]) -> list[RowPath]:
    """Return how rows come to a node from the tables and operators below it; `names` are those of the operators."""
    if isinstance(node, Scan):
        return [RowPath(node.table.name, columns={f.name: _own(f.name) for f in node.schema})]
    if isinstance(node, Stateful) and (name := _name_of(node, names)) is not None:
        # By what calls compute: their names may be made up.
        known = _calls_of(node)
        return [RowPath(name, columns={f.name: known.get(f.name, _own(f.name)) for f in node.schema})]
    if isinstance(node, Projection):
        return [
            replace(path, columns={i.name: _inlined(i.expression, _moved(path)) for i in node.items})
            for path in _paths(node.input, names)
        ]
    if isinstance(node, Union):
        found = []
        for child in node.inputs:
            pairs = list(zip(child.schema, node.schema, strict=True))
            for path in _paths(child, names):
                found.append(replace(path, columns={to.name: path.columns[own.name] for own, to in pairs}))
        return found
    if isinstance(node, Filter) and whole_ranks(node) is not None:
        return _paths(node.input, names)
    if isinstance(node, Filter):
        return [
            replace(path, steps=(*path.steps, f"WHERE {_inlined(node.predicate, _moved(path))}"))
            for path in _paths(node.children[0], names)
        ]
    step = _step(node)
    found = []
    for child in node.children:
        for path in _paths(child, names):
            own = {f.name: path.columns.get(f.name, _own(f.name)) for f in node.schema}
            found.append(replace(path, columns=own, steps=(*path.steps, *step)))
    return found


def _step(node: Node) -> tuple[str, ...]:
    """Return what a node does to rows on their way, as records have it: what EXPLAIN says may change, this does not."""
    match node:
        case Expand():
            return (f"Expand {node.column} {', '.join(map(str, node.numbers))}",)
        case LookupJoin():
            table = node.table
            by = ", ".join(f"{table.name}.{column} = {key.sql}" for key, column in node.keys)
            where = f" where {node.condition.sql}" if node.condition else ""
            return (f"LookupJoin {node.kind} {table.name} ({table.connector or 'warehouse table'}) by {by}{where}",)
        case Lateral():
            return (f"Lateral{' outer' if node.outer else ''} {node.rows.sql}",)
        case SideOutputRead():
            return (f"SideOutput {node.name}",)
        case LateRows():
            return (f'LateRows "{node.input_name}"' if node.input_name else "LateRows",)
    # Of operators, and of windows that one above makes itself, their own shapes say it.
    return ()


def _name_of(node: Stateful, names: Sequence[tuple[Stateful, str]]) -> str | None:
    same = [name for other, name in names if other is node] or [name for other, name in names if other == node]
    return next(iter(same), None)


def _calls_of(node: Stateful) -> Mapping[str, str]:
    match node:
        case Aggregate() | WindowAggregate():
            below = _origins(node.input)
            keys = {k.name: _inlined(k.expression, below) for k in node.keys}
            return {**keys, **{a.name: _inlined_call(a, below) for a in node.aggregates}}
        case Over():
            below = _origins(node.input)
            return {one.call.name: _inlined_call(one.call, below) + one.manner for one in node.calls}
    return {}


def _moved(path: RowPath) -> Origins:
    """Return the columns of a path that are not under their own names."""
    return {name: sql for name, sql in path.columns.items() if sql != _own(name)}


# -- where columns come from


def _origins(node: Node) -> Origins:
    """Return what the columns of a node are, over those that the tables and operators below it emit."""
    match node:
        case Projection():
            below = _origins(node.input)
            found = {i.name: _inlined(i.expression, below) for i in node.items}
            return {name: sql for name, sql in found.items() if sql != _own(name)}
        case Filter() | TimeWindows() | Expand():
            return _origins(node.input)
        case Aggregate() | WindowAggregate():
            below = _origins(node.input)
            keys = {k.name: _inlined(k.expression, below) for k in node.keys}
            calls = {a.name: _inlined_call(a, below) for a in node.aggregates}
            return {name: sql for name, sql in {**keys, **calls}.items() if sql != _own(name)}
    return {}


def _own(name: str) -> str:
    return Expression.of_column(name, "").sql


def _inlined(expression: Expression, origins: Origins) -> str:
    """Return the SQL of an expression with every column as what it is over the tables and operators below."""
    if expression.column is not None and _own(expression.column) == expression.sql:
        return origins.get(expression.column, expression.sql)
    if origins.keys().isdisjoint(expression.reads.columns):
        return expression.sql
    try:
        tree = parse_one(f"SELECT x ORDER BY {expression.sql}", dialect="duckdb")
        made = tree.transform(lambda part: _replaced(part, origins))
        return to_duckdb(made).partition(" ORDER BY ")[2]
    except SqlglotError:
        # It is compared as it is written.
        return expression.sql


def _replaced(part: exp.Expression, origins: Origins) -> exp.Expression:
    if isinstance(part, exp.Column) and part.name in origins:
        return exp.Paren(this=parse_one(origins[part.name], dialect="duckdb"))
    return part


def _inlined_call(call: AggregateItem, origins: Origins) -> str:
    """Return an aggregate call over what the tables and operators below emit."""
    if all(origins.keys().isdisjoint(e.reads.columns) for e in call.expressions):
        return call.sql
    distinct = "DISTINCT " if call.distinct else ""
    inside = distinct + (", ".join(_inlined(a, origins) for a in call.arguments) or "*")
    inside += f" ORDER BY {', '.join(_inlined(o, origins) for o in call.order_by)}" if call.order_by else ""
    where = f" FILTER (WHERE {_inlined(call.filter, origins)})" if call.filter else ""
    kept = f" [{call.python.accumulator}]" if call.python is not None and call.python.merges else ""
    return f"{call.function}({inside}){where}{kept}"
