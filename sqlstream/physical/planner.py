"""From what to compute to how: cuts a logical plan into fragments at every stateful operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from sqlstream.catalog import Table, Watermark
from sqlstream.errors import UnsupportedError
from sqlstream.logical import nodes
from sqlstream.logical.nodes import (
    Expand,
    Filter,
    Node,
    Project,
    Scan,
    Session,
    Sink,
    Stateful,
    Union,
    Windows,
    quote,
    schema,
)
from sqlstream.operators.step import Port
from sqlstream.operators.windowing import PARTIALS
from sqlstream.physical.plan import Exchange, Fragment, PhysicalPlan, ScanStage, SinkPlan, StatefulStage
from sqlstream.physical.windows import (
    at_their_time,
    in_windows,
    made_above,
    operator_of,
    state_bound,
    state_view,
)


@dataclass(frozen=True, slots=True)
class Branch:
    """A stateless path from one leaf (a scan or a stateful node) upwards: a SELECT over `_input`."""

    leaf: Scan | Stateful
    sql: str

    def select(self, items: str, where: str = "") -> Branch:
        return Branch(self.leaf, f"SELECT {items} FROM ({self.sql}){where}")

    def over(self, select: Callable[[str], str]) -> Branch:
        return Branch(self.leaf, select(self.sql))


def plan(sinks: Sequence[Sink]) -> PhysicalPlan:
    """Return the physical plan of a job: what several sinks need in common is read and computed once.

    Raises UnsupportedError for an aggregate that cannot run incrementally, and for a function that differs on replay
    where state depends on it.
    """
    planner = _Planner()
    refuse_replay_differences(sinks)
    refuse_two_clocks(sinks)
    found: dict[str, SinkPlan] = {}
    for sink in sinks:
        columns = tuple((c.name, c.type) for c in sink.columns)
        found.setdefault(sink.table.name.lower(), SinkPlan(sink.table, columns, sink.limit))
        number = list(found).index(sink.table.name.lower())
        names = zip(schema(sink.input), sink.columns, strict=True)
        positions = ", ".join(f"{quote(own.name)} AS {quote(target.name)}" for own, target in names)
        casts = ", ".join(f"{assigned(c, sink.table)} AS {quote(c.name)}" for c in sink.columns)
        for branch in branches(sink.input):
            rows = branch.select(positions).sql
            planner.add(branch, Fragment(rows, (("rows", f"SELECT {casts} FROM _rows"),), None, number))
    return PhysicalPlan(
        tuple(replace(scan, fragments=tuple(f)) for _, scan, f in planner.scans),
        tuple(replace(stage, fragments=tuple(f)) for _, stage, f in planner.stages),
        tuple(found.values()),
    )


def assigned(field: nodes.Field, table: Table) -> str:
    """Return the expression that stores a value in a column of a sink: converted, and not NULL where it must not be."""
    value = f"CAST({quote(field.name)} AS {field.type})"
    if not any(c.name == field.name and c.not_null for c in table.columns):
        return value
    message = f'column "{field.name}" of table "{table.name}" is NOT NULL, but the query gives NULL'.replace("'", "''")
    return f"CASE WHEN {quote(field.name)} IS NULL THEN error('{message}') ELSE {value} END"


def refuse_replay_differences(sinks: Sequence[Sink]) -> None:
    """Refuse functions such as random() in a plan that keeps state: a repeated batch would not repeat their results."""
    found = [n for sink in sinks for n in nodes.walk(sink)]
    if not any(isinstance(n, Stateful) for n in found):
        return
    for expression in (e for n in found for e in expressions(n)):
        if expression.volatile:
            raise UnsupportedError(
                "a function whose result differs on replay cannot be used in a query that keeps state",
                expression.span,
                hint="A batch that is repeated after a crash must give the same rows; use a column of the input instead.",
            )


def refuse_two_clocks(sinks: Sequence[Sink]) -> None:
    """Refuse a job with windows over processing time and a table with a watermark: a job has one watermark."""
    scans = [n for sink in sinks for n in nodes.walk(sink) if isinstance(n, Scan)]
    if any(s.clock for s in scans):
        for scan in scans:
            if scan.clock is None and scan.table.watermark is not None:
                raise UnsupportedError(
                    "windows over processing time beside a table with a watermark in one job",
                    scan.span,
                    hint="Make two jobs of it, or use the event time, or the processing time, for all of them.",
                )


def expressions(node: Node) -> Iterator[nodes.Expression]:
    """Yield the expressions of one node."""
    match node:
        case Scan() | Windows() | Expand() | Session() | Union() | Sink():
            return
        case Filter():
            yield node.predicate
        case Project():
            yield from (i.expression for i in node.items)
        case nodes.WindowAggregate():
            yield from (k.expression for k in node.keys)
            yield from (e for a in node.aggregates for e in a.expressions)
        case nodes.WindowRank():
            yield from (*node.keys, *node.order)
        case _:
            assert_never(node)


def branches(node: Node, made_above: Node | None = None) -> list[Branch]:
    """Return the stateless paths that end in this node; a union has one for each of its inputs.

    The windows of `made_above` are left to the operator that the paths lead to.
    """
    match node:
        case Windows() | Session() if node is made_above:
            return [b.over(lambda rows: at_their_time(node, rows)) for b in branches(node.input)]
        case Scan() | Session() | nodes.WindowAggregate() | nodes.WindowRank():
            return [Branch(node, "SELECT * FROM _input")]
        case Filter():
            return [b.select("*", f" WHERE {node.predicate.sql}") for b in branches(node.input, made_above)]
        case Project():
            items = ", ".join(f"{i.expression.sql} AS {quote(i.name)}" for i in node.items)
            return [b.select(items) for b in branches(node.input, made_above)]
        case Windows():
            return [b.over(lambda rows: in_windows(node, rows)) for b in branches(node.input)]
        case Expand():
            numbers = ", ".join(map(str, node.numbers))
            return [
                b.select(f"*, unnest([{numbers}]) AS {quote(node.column)}") for b in branches(node.input, made_above)
            ]
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


def feeding(node: Stateful) -> list[Branch]:
    """Return the stateless paths that lead to a stateful node."""
    return branches(node.input, made_above(node))


class _Planner:
    """Collects scans and stages while walking down from the sinks; a stage is listed after everything that feeds it.

    Equal ones are one, with a fragment for each of those that want its rows.
    """

    def __init__(self) -> None:
        self.scans: list[tuple[Scan, ScanStage, list[Fragment]]] = []
        self.stages: list[tuple[Stateful, StatefulStage, list[Fragment]]] = []
        self.names: set[str] = set()

    def add(self, branch: Branch, fragment: Fragment) -> None:
        """Let the leaf of a path send its rows through a fragment."""
        self._leaf(branch.leaf).append(fragment)

    def _leaf(self, leaf: Scan | Stateful) -> list[Fragment]:
        """Return the fragments of a scan or a stage, which is planned when it is new."""
        if isinstance(leaf, Scan):
            for scan, _, fragments in self.scans:
                if (scan.table, scan.clock) == (leaf.table, leaf.clock):
                    return fragments
            self.scans.append((leaf, self._scan(leaf), []))
            return self.scans[-1][2]
        for node, _, fragments in self.stages:
            if node == leaf:
                return fragments
        self._stateful(leaf)
        return self.stages[-1][2]

    def _scan(self, scan: Scan) -> ScanStage:
        table = scan.table
        columns = ", ".join(
            quote(c.name) if c.expression is None else f"{c.expression} AS {quote(c.name)}" for c in table.columns
        )
        mark = Watermark(scan.clock, quote(scan.clock)) if scan.clock else table.watermark
        return ScanStage(
            name=self._unique(scan.alias),
            table=table,
            columns=f"SELECT {columns} FROM _input",
            time_column=mark.column if mark else None,
            watermark=_shown(mark, table) if mark else None,
            fragments=(),
            by_clock=scan.clock is not None,
        )

    def _stateful(self, node: Stateful) -> None:
        operator = operator_of(node)
        parts = tuple(operator.parts.items())
        ports: list[Port] = []
        feeds = []
        for branch in feeding(node):
            on_time = not isinstance(branch.leaf, Scan)
            numbers = tuple((part, len(ports) + i) for i, (part, _) in enumerate(parts))
            ports += [Port(part, on_time) for part, _ in parts]
            feeds.append((self._leaf(branch.leaf), branch, numbers))
        # By now all that feed this stage have their places.
        place = len(self.stages)
        for fragments, branch, numbers in feeds:
            fragments.append(Fragment(branch.sql, parts, Exchange(place, operator.hash_columns, numbers)))
        view_sql, view_columns = state_view(node, operator)
        stage = StatefulStage(
            name=self._unique(node.name or operator.kind, numbered=not node.name),
            operator=operator,
            ports=tuple(ports),
            fragments=(),
            key_columns=_key_columns(node),
            view_sql=view_sql,
            view_columns=view_columns,
            count_sql=operator.count("{" + PARTIALS + "}"),
            bound=state_bound(node),
            hash_columns=operator.hash_columns,
            time_column=nodes.time_attribute(node),
        )
        self.stages.append((node, stage, []))

    def _unique(self, name: str, *, numbered: bool = False) -> str:
        number = 1
        candidate = f"{name}_1" if numbered else name
        while candidate.lower() in self.names:
            number += 1
            candidate = f"{name}_{number}"
        self.names.add(candidate.lower())
        return candidate


def _shown(mark: Watermark, table: Table) -> str:
    """Return a watermark's expression; an instant is, as for windows, the time that the session's zone shows."""
    kind = next(c.type for c in table.columns if c.name == mark.column)
    return f"CAST({mark.expression} AS TIMESTAMP)" if kind == "TIMESTAMP WITH TIME ZONE" else mark.expression


def _key_columns(node: Stateful) -> tuple[str, ...]:
    match node:
        case Session():
            return node.keys
        case nodes.WindowAggregate():
            return tuple(k.name for k in node.keys)
        case nodes.WindowRank():
            return tuple(k.sql.strip('"') for k in node.keys)
        case _:
            assert_never(node)
