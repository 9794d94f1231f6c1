"""From what to compute to how: cuts a logical plan into fragments at every stateful operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from sqlstream.catalog import Column, Table
from sqlstream.errors import UnsupportedError
from sqlstream.logical import nodes
from sqlstream.logical.nodes import Filter, Node, Project, Scan, Sink, Tumble, Union, quote, schema, window_size
from sqlstream.operators.aggregates import ALIASES, AggregateCall, is_aggregate, reason, strategy
from sqlstream.operators.step import Port
from sqlstream.operators.window_aggregate import WindowAggregate
from sqlstream.physical.plan import Exchange, Fragment, PhysicalPlan, ScanStage, SinkPlan, StatefulStage


@dataclass(frozen=True, slots=True)
class Branch:
    """A stateless path from one leaf (a scan or a stateful node) upwards: a SELECT over `_input`."""

    leaf: Scan | nodes.WindowAggregate
    sql: str

    def select(self, items: str, where: str = "") -> Branch:
        return Branch(self.leaf, f"SELECT {items} FROM ({self.sql}){where}")


def plan(sink: Sink) -> PhysicalPlan:
    """Return the physical plan of a job.

    Raises UnsupportedError for an aggregate that cannot run incrementally, and for a function that differs on replay
    where state depends on it.
    """
    planner = _Planner()
    refuse_replay_differences(sink)
    names = zip(schema(sink.input), sink.columns, strict=True)
    positions = ", ".join(f"{quote(own.name)} AS {quote(target.name)}" for own, target in names)
    casts = ", ".join(f"{assigned(c, sink.table)} AS {quote(c.name)}" for c in sink.columns)
    for branch in branches(sink.input):
        rows = branch.select(positions).sql
        planner.add(branch, Fragment(rows, (("rows", f"SELECT {casts} FROM _rows"),), None))
    columns = tuple((c.name, c.type) for c in sink.columns)
    return PhysicalPlan(tuple(planner.scans), tuple(planner.stages), SinkPlan(sink.table, columns, sink.limit))


def assigned(field: nodes.Field, table: Table) -> str:
    """Return the expression that stores a value in a column of a sink: converted, and not NULL where it must not be."""
    value = f"CAST({quote(field.name)} AS {field.type})"
    if not any(c.name == field.name and c.not_null for c in table.columns):
        return value
    message = f'column "{field.name}" of table "{table.name}" is NOT NULL, but the query gives NULL'.replace("'", "''")
    return f"CASE WHEN {quote(field.name)} IS NULL THEN error('{message}') ELSE {value} END"


def refuse_replay_differences(sink: Sink) -> None:
    """Refuse functions such as random() in a plan that keeps state: a repeated batch would not repeat their results."""
    found = list(nodes.walk(sink))
    if not any(isinstance(n, nodes.WindowAggregate) for n in found):
        return
    for expression in (e for n in found for e in expressions(n)):
        if expression.volatile:
            raise UnsupportedError(
                "a function whose result differs on replay cannot be used in a query that keeps state",
                expression.span,
                hint="A batch that is repeated after a crash must give the same rows; use a column of the input instead.",
            )


def expressions(node: Node) -> Iterator[nodes.Expression]:
    """Yield the expressions of one node."""
    match node:
        case Scan() | Tumble() | Union() | Sink():
            return
        case Filter():
            yield node.predicate
        case Project():
            yield from (i.expression for i in node.items)
        case nodes.WindowAggregate():
            yield from (k.expression for k in node.keys)
            yield from (e for a in node.aggregates for e in a.expressions)
        case _:
            assert_never(node)


def branches(node: Node) -> list[Branch]:
    """Return the stateless paths that end in this node; a union has one for each of its inputs."""
    match node:
        case Scan() | nodes.WindowAggregate():
            return [Branch(node, "SELECT * FROM _input")]
        case Filter():
            return [b.select("*", f" WHERE {node.predicate.sql}") for b in branches(node.input)]
        case Project():
            items = ", ".join(f"{i.expression.sql} AS {quote(i.name)}" for i in node.items)
            return [b.select(items) for b in branches(node.input)]
        case Tumble():
            return [b.select(f"*, {_window_bounds(node)}") for b in branches(node.input)]
        case Union():
            return [branch for child in node.inputs for branch in _renamed(child, schema(node))]
        case Sink():
            raise TypeError("a sink is not part of a path")
        case _:
            assert_never(node)


def _renamed(node: Node, target: nodes.Schema) -> list[Branch]:
    names = [(own.name, wanted.name) for own, wanted in zip(schema(node), target, strict=True)]
    items = ", ".join(f"{quote(own)} AS {quote(wanted)}" for own, wanted in names)
    return [branch.select(items) for branch in branches(node)]


def _window_bounds(node: Tumble) -> str:
    field = next(f for f in schema(node.input) if f.name == node.time_column)
    column = quote(node.time_column)
    time = f"timezone('UTC', {column})" if field.type == "TIMESTAMP WITH TIME ZONE" else column
    # Floor division for times before the epoch, too: the remainder must not be negative.
    since = f"((epoch_us({time}) - {node.offset}) % {node.size} + {node.size}) % {node.size}"
    start = f"make_timestamp(epoch_us({time}) - {since})"
    end = f"make_timestamp(epoch_us({time}) - {since} + {node.size})"
    last = f"make_timestamp(epoch_us({time}) - {since} + {node.size - 1000})"
    return f"{start} AS window_start, {end} AS window_end, {last} AS window_time"


class _Planner:
    """Collects stages while walking down from the sink; a stage is listed after everything that feeds it."""

    def __init__(self) -> None:
        self.scans: list[ScanStage] = []
        self.stages: list[StatefulStage] = []
        self.names: set[str] = set()

    def add(self, branch: Branch, fragment: Fragment) -> None:
        match branch.leaf:
            case Scan():
                self.scans.append(self._scan(branch.leaf, fragment))
            case nodes.WindowAggregate():
                self._stateful(branch.leaf, fragment)
            case _:
                assert_never(branch.leaf)

    def _scan(self, scan: Scan, fragment: Fragment) -> ScanStage:
        table = scan.table
        columns = ", ".join(
            quote(c.name) if c.expression is None else f"{c.expression} AS {quote(c.name)}" for c in table.columns
        )
        mark = table.watermark
        return ScanStage(
            name=self._unique(scan.alias),
            table=table,
            columns=f"SELECT {columns} FROM _input",
            time_column=mark.column if mark else None,
            watermark=mark.expression if mark else None,
            fragment=fragment,
        )

    def _stateful(self, node: nodes.WindowAggregate, fragment: Fragment) -> None:
        operator = window_operator(node)
        below = branches(node.input)
        parts = tuple(operator.parts.items())
        ports: list[Port] = []
        feeds = []
        for branch in below:
            on_time = not isinstance(branch.leaf, Scan)
            numbers = tuple((part, len(ports) + i) for i, (part, _) in enumerate(parts))
            ports += [Port(part, on_time) for part, _ in parts]
            feeds.append((branch, numbers))
        # The stages below must come first, but what feeds this one names its place: reserve the place by counting.
        place = len(self.stages) + sum(_stateful_below(branch.leaf) for branch in below)
        for branch, numbers in feeds:
            exchange = Exchange(place, operator.hash_columns, numbers)
            self.add(branch, Fragment(branch.sql, parts, exchange))
        assert len(self.stages) == place
        view_sql, view_columns = state_view(node, operator)
        self.stages.append(
            StatefulStage(
                name=self._unique(node.name or operator.kind, numbered=not node.name),
                operator=operator,
                ports=tuple(ports),
                fragment=fragment,
                key_columns=tuple(k.name for k in node.keys),
                view_sql=view_sql,
                view_columns=view_columns,
                bound=window_bound(node),
                hash_columns=operator.hash_columns,
                time_column=nodes.time_attribute(node),
            )
        )

    def _unique(self, name: str, *, numbered: bool = False) -> str:
        number = 1
        candidate = f"{name}_1" if numbered else name
        while candidate.lower() in self.names:
            number += 1
            candidate = f"{name}_{number}"
        self.names.add(candidate.lower())
        return candidate


def _stateful_below(node: Node) -> int:
    return sum(isinstance(n, nodes.WindowAggregate) for n in nodes.walk(node))


def window_operator(node: nodes.WindowAggregate) -> WindowAggregate:
    """Return the operator that computes a logical window aggregate."""
    calls = []
    for item in node.aggregates:
        call = AggregateCall(
            function=ALIASES.get(item.function, item.function),
            arguments=tuple(a.sql for a in item.arguments),
            argument_types=tuple(a.type for a in item.arguments),
            distinct=item.distinct,
            order_by=tuple(o.sql for o in item.order_by),
            order_types=tuple(o.type for o in item.order_by),
            filter=item.filter.sql if item.filter else None,
            result_type=item.type,
        )
        if strategy(call) is None:
            raise UnsupportedError(
                f"aggregate {item.function} cannot run incrementally", item.span, hint=_sentence(reason(call))
            )
        calls.append((item.name, call))
    window = node.window
    assert window.end is not None
    size = window_size(node.input)
    if size is None and window.start is None:
        size = 0
    return WindowAggregate(
        keys=tuple((Column(k.name, k.expression.type), k.expression.sql) for k in node.keys),
        end=quote(window.end),
        size=size,
        start=quote(window.start) if window.start else None,
        bounds=(window.start, window.end, window.time),
        calls=tuple(calls),
    )


def _sentence(phrase: str) -> str:
    """Return a phrase as a sentence; one that begins with a function's name keeps that as it is.

    >>> _sentence("rows of a stream have no order"), _sentence("arg_max does not take DISTINCT")
    ('Rows of a stream have no order.', 'arg_max does not take DISTINCT.')
    """
    first = phrase.partition(" ")[0]
    return f"{phrase if is_aggregate(first) else phrase[:1].upper() + phrase[1:]}."


def window_bound(node: nodes.WindowAggregate) -> str:
    size = window_size(node.input)
    span = f" of {size / 1_000_000:g} s" if size else ""
    return f"watermark: a window{span} is forgotten when the watermark passes its end"


def state_view(node: nodes.WindowAggregate, operator: WindowAggregate) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the view over an operator's state, and its columns.

    They are the keys, the window's bounds, the aggregates with their current values, and what the select list makes of them.
    """
    relations = {t.name: "{" + t.name + "}" for t in operator.tables}
    columns = [(f.name, f.type, quote(f.name)) for f in schema(node)]
    names = {name.lower() for name, _, _ in columns}
    # A key or a bound under a second name would say nothing new; an aggregate may be known by either.
    group = {quote(f.name) for f in schema(replace(node, aggregates=()))}
    for item in node.shown:
        if item.name.lower() not in names and item.expression.sql not in group:
            columns.append((item.name, item.expression.type, item.expression.sql))
    items = ", ".join(f"CAST({sql} AS {type}) AS {quote(name)}" for name, type, sql in columns)
    return f"SELECT {items} FROM ({operator.current(relations)})", tuple((n, t) for n, t, _ in columns)
