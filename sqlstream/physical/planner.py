"""Makes the physical plan of a logical plan: cuts it into fragments at every stateful operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlstream.catalog import Column, Table, Watermark
from sqlstream.connectors.formats.changelogs import source_table
from sqlstream.connectors.registry import source_of
from sqlstream.duck.internal_columns import PARTITION
from sqlstream.duck.sql import Items, Relation, Rows, Select, quote_name, quote_text
from sqlstream.duck.time_variables import NOW, reached
from sqlstream.errors import BindError
from sqlstream.logical.plan.expressions import Field
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.names import check_name
from sqlstream.operators.operator import Operator, Port
from sqlstream.physical.branches import Branch, branches, watermark_variable
from sqlstream.physical.families.family import OperatorPlan, state_tables
from sqlstream.physical.families.registry import operator_plan
from sqlstream.physical.plan import (
    CLOCK,
    Exchange,
    Fragment,
    PhysicalPlan,
    ScanStage,
    SinkPlan,
    StatefulStage,
    StateView,
)
from sqlstream.physical.refusals import refuse
from sqlstream.physical.row_order import COPY, OrderedPlan, in_order, keeps_last
from sqlstream.physical.scans import keeping_malformed, numbered, scanned
from sqlstream.physical.unfit_rows import unfit_rows
from sqlstream.storage.zsets import WEIGHT, last_rows, summed


def plan(sinks: Sequence[ResultSink], *, keeps_malformed: bool = True) -> PhysicalPlan:
    """Return the physical plan of a job; scans and operators that several sinks need run once.

    `keeps_malformed` is false for a plan that writes nothing: malformed rows are then skipped, even where a table for them is
    declared.

    Raises UnsupportedError for what `refuse` refuses, and for an aggregate that cannot run incrementally. Raises BindError for
    the name of a table or an operator that is not valid, and for a LATE_ROWS or `errors-to` table whose name is in use.
    """
    planner = _Planner()
    refuse(sinks)
    sink_plans: dict[str, SinkPlan] = {}
    tables = [sink.table.name.lower() for sink in sinks]
    paths = Counter[str]()
    for sink in sinks:
        name = sink.table.name.lower()
        changing = {s.table.name.lower() for s in sinks if s.input.is_changelog}
        ordered = in_order(sink, several=tables.count(name) > 1) if keeps_last(sink) else None
        order = ordered.columns if isinstance(ordered, OrderedPlan) else ()
        sink_plans.setdefault(name, _sink(sink, sinks, name in changing, order))
        number = list(sink_plans).index(name)
        pairs = zip(sink.input.schema, sink.columns, strict=True)
        positions = ", ".join(f"{quote_name(own.name)} AS {quote_name(target.name)}" for own, target in pairs)
        casts = ", ".join(f"{assigned(c, sink.table)} AS {quote_name(c.name)}" for c in sink.columns)
        if order:
            positions += "".join(f", {c.name}" for c in order if c != COPY)
            order_items = "".join(f", {c.name}" for c in order)
            rows = Relation(f"(SELECT {casts}{order_items}, CAST(1 AS BIGINT) AS {WEIGHT} FROM _rows)")
        for branch in branches(ordered.node if isinstance(ordered, OrderedPlan) else sink.input):
            stored = last_rows(sink.table.primary_key, order, rows) if order else Select(f"SELECT {casts} FROM _rows")
            if name in changing:
                # Changes that cancel each other once columns are left out, or values cast, are none.
                branch = branch.with_weight()
                weighted = Relation(f"(SELECT {casts}, {WEIGHT} FROM _rows)")
                stored = summed([Column(c.name, c.type) for c in sink.columns], weighted)
            numbered = f"{positions}, {paths[name]} AS {COPY.name}" if COPY in order else positions
            paths[name] += 1
            path = branch.select(Items(numbered)).query
            planner.add(branch, Fragment(path, (("rows", stored),), None, number, branch.lookups, branch.output))
    scans = tuple(replace(scan, fragments=tuple(f), unfit=unfit_rows(sinks, node)) for node, scan, f in planner.scans)
    scans = keeping_malformed(scans, sink_plans) if keeps_malformed else scans
    stages = tuple(replace(stage, fragments=tuple(f)) for _, stage, f in planner.stages)
    asking = [n for sink in sinks for n in walk(sink) if n.reads_watermark]
    variables = {watermark_variable(n): planner.indexes(n) for n in asking if len(n.timed_by) > 1}
    return PhysicalPlan(scans, stages, tuple(sink_plans.values()), bool(asking), tuple(sorted(variables.items())))


def _sink(sink: ResultSink, sinks: Sequence[ResultSink], changing: bool, order: tuple[Column, ...]) -> SinkPlan:
    columns, keys = tuple((c.name, c.type) for c in sink.columns), keys_of(sink)
    alone = [s.table.name.lower() for s in sinks].count(sink.table.name.lower()) == 1
    return SinkPlan(sink.table, columns, sink.limit, changing or bool(order), keys if alone else (), order)


def assigned(field: Field, table: Table) -> str:
    """Return the SQL of the value of a sink's column: cast to its type; NULL in a NOT NULL column of `table` is an error."""
    value = f"CAST({quote_name(field.name)} AS {field.type})"
    if not any(c.name == field.name and c.not_null for c in table.columns):
        return value
    message = f'column "{field.name}" of table "{table.name}" is NOT NULL, but the query gives NULL'
    return f"CASE WHEN {quote_name(field.name)} IS NULL THEN error({quote_text(message)}) ELSE {value} END"


def keys_of(sink: ResultSink) -> tuple[str, ...]:
    """Return columns of a sink that no two rows of the result share at a time, empty if none are known.

    Columns that are all in the table's PRIMARY KEY are preferred.
    """
    pairs = {own.name: target.name for own, target in zip(sink.input.schema, sink.columns, strict=True)}
    keys = [tuple(target for own, target in pairs.items() if own in names) for names in sink.input.unique_keys]
    primary = set(sink.table.primary_key)
    return next((f for f in keys if set(f) <= primary), next(iter(keys), ()))


class _Planner:
    """Collects scans and stages while walking down from the sinks; a stage is listed after everything that feeds it.

    Equal scans, and equal operators, are planned once, with a fragment for each reader of their rows.
    """

    def __init__(self) -> None:
        self.scans: list[tuple[Scan, ScanStage, list[Fragment]]] = []
        self.stages: list[tuple[Stateful, StatefulStage, list[Fragment]]] = []
        self.names: set[str] = set()
        # The indexes of the scans whose rows reach each stage.
        self._read: list[frozenset[int]] = []

    def add(self, branch: Branch, fragment: Fragment) -> None:
        """Add a fragment to the scan or stage at the leaf of a path, which is planned if it is new."""
        self._leaf(branch.leaf).append(fragment)

    def _leaf(self, leaf: Scan | Stateful) -> list[Fragment]:
        """Return the list of fragments of a scan or a stage, which is planned if it is new."""
        if isinstance(leaf, Scan):
            for scan, _, fragments in self.scans:
                if scan.is_same(leaf):
                    return fragments
            self.scans.append((leaf, self._scan(leaf), []))
            return self.scans[-1][2]
        for node, _, fragments in self.stages:
            if node == leaf:
                return fragments
        self._stateful(leaf)
        return self.stages[-1][2]

    def _scans_of(self, leaf: Scan | Stateful) -> frozenset[int]:
        """Return the indexes of the scans whose rows a leaf passes on, which has been planned."""
        if isinstance(leaf, Scan):
            return frozenset(index for index, (own, _, _) in enumerate(self.scans) if own.is_same(leaf))
        return next(self._read[index] for index, (own, _, _) in enumerate(self.stages) if own == leaf)

    def _scan(self, scan: Scan) -> ScanStage:
        table, keyed = scan.table, bool(scan.table.primary_key)
        watermark = table.watermark
        if scan.by_clock:
            # Without such a column the scan reports no newest event time; its watermark is the clock all the same.
            time = next((c.name for c in table.columns if c.processing_time), None)
            watermark = Watermark(time, quote_name(time)) if time else None
        check_name("a table in FROM", scan.alias, scan.span)
        goes_by_rows = watermark is not None and not scan.by_clock
        has_partitions = goes_by_rows and source_of(table).has_partitions
        has_watermarks = goes_by_rows and source_of(table).has_watermarks
        if has_partitions:
            table = replace(table, columns=(*table.columns, PARTITION))
        return ScanStage(
            name=self._unique(scan.alias),
            table=source_table(table),
            columns=scanned(table),
            numbered=numbered(table),
            time_column=watermark.column if watermark else None,
            watermark=_shown(watermark, table) if watermark else NOW if scan.by_clock else None,
            fragments=(),
            by_clock=scan.by_clock,
            changes=("keyed" if keyed else "whole") if table.has_changes else None,
            has_partitions=has_partitions,
            has_watermarks=has_watermarks,
            node=scan.declared,
        )

    def _stateful(self, node: Stateful) -> None:
        plan = operator_plan(node)
        operator = plan.operator
        ports: list[Port] = []
        feeds = []
        for feed in plan.feeds():
            parts = tuple((part, operator.parts[part]) for part in feed.parts)
            numbers = tuple((part, len(ports) + i) for i, part in enumerate(feed.parts))
            ports += [Port(part, feed.branch.never_late or node.inputs_never_late) for part, _ in parts]
            feeds.append((self._leaf(feed.branch.leaf), feed.branch, parts, numbers))
        read = frozenset().union(*(self._scans_of(branch.leaf) for _, branch, _, _ in feeds))
        # The recursion above has planned all stages that feed this one: its position is the next one.
        index = len(self.stages)
        for fragments, branch, parts, numbers in feeds:
            everywhere = operator.broadcast.issuperset(part for part, _ in parts)
            exchange = Exchange(
                index, () if everywhere else operator.hashed_of([part for part, _ in parts]), numbers, everywhere
            )
            fragments.append(Fragment(branch.query, parts, exchange, lookups=branch.lookups, output=branch.output))
        name = self._unique(node.name or operator.kind, numbered=not node.name)
        check_name("an operator", name, node.span)
        stage = StatefulStage(
            name=name,
            operator=operator,
            ports=tuple(ports),
            fragments=(),
            key_columns=node.key_columns,
            view=plan.view,
            count_sql=operator.open_windows(state_tables(operator), reached(node.delay_below)),
            bound=plan.bound,
            hash_columns=operator.hash_columns,
            time_column=plan.time_column,
            unique=tuple(sorted(next(iter(node.unique_keys), ()))),
            more_views=tuple(self._more_views(plan, name)),
            delay=node.delay_below,
            opening=_opening(operator, index, ports),
            fires_timers=node.has_processing_timers,
            remembered=plan.remembered,
            windows=plan.result_windows,
            node=node,
            timed_by=self.indexes(node, read),
            reads_time=node.reads_time,
            goes_by_clock=node.goes_by_clock,
        )
        self.stages.append((node, stage, []))
        self._read.append(read)

    def indexes(self, node: Node, read: Container[int] | None = None) -> tuple[int, ...]:
        """Return the indexes of the scans whose least watermark is a node's watermark; (CLOCK,) if that is processing time.

        A table that is scanned twice, with and without the order of its rows, counts twice, unless `read` has the indexes of the
        scans that the node reads.
        """
        if isinstance(node, StatefulNode) and node.waits_for_clock:
            return (CLOCK,)
        below = [scan.declared for scan in node.timed_by if isinstance(scan, Scan)]
        alike = (i for i, (own, _, _) in enumerate(self.scans) if any(own.declared.is_same(s) for s in below))
        return tuple(i for i in alike if read is None or i in read)

    def _more_views(self, plan: OperatorPlan[Any], name: str) -> Iterator[StateView]:
        """Yield the views of an operator's further state, and of the late rows that it stores."""
        for part, view in plan.side_views():
            yield StateView(self._unique(f"{name}_{part}"), view)
        for late, view in plan.late_views(name):
            yield self._late_rows(plan.node, late, view)

    def _late_rows(self, node: Stateful, name: str, view: Rows) -> StateView:
        """Return the view of late rows, under the name in LATE_ROWS. Raises BindError if the name is in use."""
        if name.lower() in self.names:
            message = f'LATE_ROWS: "{name}" is the name of something else in the job'
            raise BindError(message, node.span, hint="Take another.")
        self.names.add(name.lower())
        return StateView(name, view, "late rows, kept for the life of the job")

    def _unique(self, name: str, *, numbered: bool = False) -> str:
        number = 1
        candidate = f"{name}_1" if numbered else name
        while candidate.lower() in self.names:
            number += 1
            candidate = f"{name}_{number}"
        self.names.add(candidate.lower())
        return candidate


def _opening(operator: Operator, index: int, ports: Sequence[Port]) -> tuple[Fragment, ...]:
    """Return the fragments that make an operator's initial rows."""
    numbers, rows = {port.part: number for number, port in enumerate(ports)}, Select("SELECT * FROM _input")
    return tuple(
        Fragment(rows, ((part, sql),), Exchange(index, operator.hashed, ((part, numbers[part]),)))
        for part, sql in operator.opening.items()
    )


def _shown(watermark: Watermark, table: Table) -> str:
    """Return the SQL of a watermark as a TIMESTAMP: of a TIMESTAMP WITH TIME ZONE, the local time in the session's time zone."""
    kind = next(c.type for c in table.columns if c.name == watermark.column)
    return f"CAST({watermark.expression} AS TIMESTAMP)" if kind == "TIMESTAMP WITH TIME ZONE" else watermark.expression
