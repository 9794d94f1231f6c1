"""EXPLAIN and DESCRIBE STATE: a job as text for people, at each stage of its compilation, and the state of its operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from sqlstream.catalog import IDLE_TIMEOUT, Column, Table
from sqlstream.compiler.catalog_answers import Answer
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.interface import SessionSink
from sqlstream.connectors.registry import sink_of
from sqlstream.connectors.tables import guarantee
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import unquoted
from sqlstream.errors import BindError, missing
from sqlstream.jobs.identity import as_recorded, is_planned
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.state_columns import ShownColumn, ShownTable, state_tables
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.steps import Leaves, paths
from sqlstream.logical.plan.tables import Scan
from sqlstream.physical.plan import Fragment, PhysicalPlan, ScanStage, SinkPlan, StatefulStage
from sqlstream.sql.nodes import DescribeState, StatementSet
from sqlstream.storage.zsets import WEIGHT_COLUMN
from sqlstream.warehouse.jobs import THE_CLOCK, OperatorRecord, read_record, readable_record
from sqlstream.warehouse.paths import Warehouse

_APPEND_ONLY = "append-only"
_CHANGELOG = "changelog"
# How many letters of an option are shown.
_WIDTH = 60
# The columns of DESCRIBE STATE.
_STATE_COLUMNS = ("operator", "table", "column", "type", "holds", "in a migration")


def explained(job: PlannedJob, stage: str) -> str:
    """Return a job as text at a stage: `plan` for people; `ast`, `logical`, `optimized` and `physical` for developers.

    `state` lists its state tables, `batch` is its query as one batch in DuckDB. Raises CannotVerify for `batch` if there is
    no such query.
    """
    match stage:
        case "plan":
            body = "\n".join([plan_text(job), *_notices(job)])
        case "ast":
            parts = job.statement.inserts if isinstance(job.statement, StatementSet) else (job.statement,)
            body = "\n".join(repr(part.query) for part in parts)
        case "logical":
            body = "\n".join(map(logical_text, job.logical))
        case "optimized":
            body = "\n".join(map(logical_text, job.optimized))
            body += f"\nrules that changed it: {', '.join(job.rules) or 'none'}"
        case "batch":
            # Imported here, because it is large and state queries do not need it.
            from sqlstream.jobs.verification import batch_query

            body = batch_query(job)
        case "state":
            body = state_text(job)
        case _:
            body = physical_text(job.physical, job.options.parallelism, spark=not job.is_immediate)
    return f"-- job {job.name} ({'bounded' if job.bounded else 'unbounded'})\n{body}"


def _notices(job: PlannedJob) -> Iterator[str]:
    """Yield a comment line per notice about an expression, and one if the job's expressions have DuckDB's values, not Flink's."""
    if job.semantics == "duckdb":
        yield "-- expressions have DuckDB's values, as they had when the job began"
    for notice in job.notices:
        yield f"-- {notice.span.text}: {notice.message}" if notice.span is not None else f"-- {notice.message}"


def as_it_goes_on(job: PlannedJob, warehouse: Warehouse) -> PlannedJob:
    """Return a job with ties and values as in the job of its name in the warehouse, if that has the same query."""
    differs = (job.depends_on_ties or job.has_semantics) and not job.is_query
    record = readable_record(warehouse.fs, warehouse.job(job.name)) if differs else None
    return as_recorded(job, record) if record is not None and is_planned(record, job) else job


def plan_text(job: PlannedJob) -> str:
    """Return the steps of a job, from sources to sinks, as text, each with its keys, time, state, bound and emitted rows."""
    plan = job.physical
    leaves = _leaves(job)
    twins = _twins(plan)
    lines: list[str] = []
    for number, scan in enumerate(plan.scans, 1):
        assert scan.node is not None
        lines += _step(number, _scan_step(scan, scan.node.table, plan.options_apart(number - 1)))
    for number, stage in enumerate(plan.stages, len(plan.scans) + 1):
        assert stage.node is not None
        index = number - len(plan.scans) - 1
        feeding = [
            [f.exchange is not None and f.exchange.stage == index for f in scan.fragments] for scan in plan.scans
        ]
        lines += _step(number, _operator_step(job, stage, stage.node, _fed_by(leaves, twins, feeding)))
    first = len(plan.scans) + len(plan.stages) + 1
    for number, sink in enumerate(plan.sinks, first):
        nodes = [s for s in job.optimized if s.table.name.lower() == sink.table.name.lower()]
        feeding = [[f.exchange is None and f.sink == number - first for f in scan.fragments] for scan in plan.scans]
        read = [part for node in nodes for part in _reads(node.input, _fed_by(leaves, twins, feeding))]
        lines += _step(number, _sink_step(plan, sink, read))
    return "\n".join(lines)


def _leaves(job: PlannedJob) -> Leaves:
    """Return the scans and stateful nodes, from which other steps read, with the numbers of their steps."""
    plan = job.physical
    scans: list[tuple[Node, int]] = [
        (scan, index + 1)
        for sink in job.optimized
        for scan in walk(sink)
        if isinstance(scan, Scan) and (index := plan.index_of(scan)) is not None
    ]
    return scans + [(s.node, n) for n, s in enumerate(plan.stages, len(plan.scans) + 1) if s.node is not None]


def _twins(plan: PhysicalPlan) -> Mapping[int, Sequence[int]]:
    """Map the step number of a scan to the numbers of all scans with the same table and options, if there are several.

    A table is scanned twice if one reader needs the columns of the rows' order in the source, and another one does not.
    """
    by_table: defaultdict[str, list[tuple[int, Scan]]] = defaultdict(list)
    for number, stage in enumerate(plan.scans, 1):
        if stage.node is not None:
            by_table[stage.node.table.name].append((number, stage.node))
    alike = {
        number: [other for other, its_node in scans if its_node.is_same(node)]
        for scans in by_table.values()
        for number, node in scans
        if len(scans) > 1
    }
    return {number: numbers for number, numbers in alike.items() if len(numbers) > 1}


def _fed_by(leaves: Leaves, twins: Mapping[int, Sequence[int]], feeding: Sequence[Sequence[bool]]) -> Leaves:
    """Return the leaves of a step. Of equal scans (`_twins`) choose the one that has a fragment whose rows go to the step.

    `feeding` has, for each scan, whether the rows of each of its fragments go to the step.
    """
    if not twins:
        return leaves
    return [
        (node, next((twin for twin in twins.get(number, ()) if any(feeding[twin - 1])), number))
        for node, number in leaves
    ]


def _step(number: int, parts: tuple[str, list[tuple[str, str]]]) -> list[str]:
    title, facts = parts
    return [f"{number}. {title}", *(f"   {name + ':':<10} {text}" for name, text in facts if text)]


def _scan_step(scan: ScanStage, table: Table, apart: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the step of a scan: its title, and (label, text) pairs. `apart` are options that the table's other scans lack."""
    time = ""
    if scan.by_clock:
        time = f"{scan.time_column or 'the clock'}, that of the batch (processing time)"
    elif scan.watermark is not None:
        timeout = table.options.get(IDLE_TIMEOUT)
        watermark = "as the source says" if scan.has_watermarks else unquoted(scan.watermark)
        time = f"{scan.time_column}, watermark {watermark}" + (f", idle after {timeout}" if timeout else "")
    kind = {None: _APPEND_ONLY, "whole": _CHANGELOG, "keyed": _CHANGELOG}[scan.changes]
    options = ", ".join(
        f"{name} = {value[:_WIDTH]}{'...' * (len(value) > _WIDTH)}" if value else f"no {name}"
        for name, value in apart.items()
    )
    facts = [("options", options), ("columns", _columns(table.columns)), ("time", time), ("emits", kind)]
    return f"read {table.name} ({table.connector or 'warehouse table'})", facts


def _operator_step(
    job: PlannedJob, stage: StatefulStage, node: Stateful, leaves: Leaves
) -> tuple[str, list[tuple[str, str]]]:
    changing = WEIGHT_COLUMN in stage.operator.outputs
    key = f", key {', '.join(stage.unique)}" if stage.unique else ""
    bound = stage.bound
    for prefix in ("watermark: ", "time to live: "):
        bound = bound.removeprefix(prefix)
    reads = [part for below in node.children for part in _reads(below, leaves)]
    views = ", ".join(f"state.{job.name}.{name}" for name in (stage.name, *(v.name for v in stage.more_views)))
    facts = [
        ("reads", "; ".join(dict.fromkeys(reads))),
        ("key", node.key_text or f"none ({node.without_key})"),
        ("computes", node.calls_text),
        ("ties", f"by {ties}" if (ties := node.ties) is not None else ""),
        ("time", stage.time_column or ""),
        ("waits for", _waits_for(job.physical, stage)),
        ("keeps", node.states_text),
        ("state", views),
        ("bound", bound.replace("nothing: ", "none: ")),
        ("emits", f"{node.emission}; {_CHANGELOG if changing else _APPEND_ONLY}{key}"),
    ]
    return node.title, facts


def _waits_for(plan: PhysicalPlan, stage: StatefulStage) -> str:
    """Return the watermarks, or the clock, that an operator waits for, as text; "" if the job has only one of them."""
    if plan.has_clock and plan.waits_for(stage) == (THE_CLOCK,):
        return THE_CLOCK
    names = " and ".join(plan.waits_for(stage)) if len(plan.timed) > 1 or plan.has_clock else ""
    return f"the watermark{'s' if len(plan.waits_for(stage)) > 1 else ''} of {names}" if names else ""


def _reads(node: Node, leaves: Leaves) -> list[str]:
    """Return the numbers of the steps whose rows a node reads, each with what happens to the rows on the way, as text."""
    return [" ".join([str(n), *([", ".join(done)] if done else [])]) for n, done in paths(node, leaves)]


def _sink_step(plan: PhysicalPlan, sink: SinkPlan, read: Iterable[str]) -> tuple[str, list[tuple[str, str]]]:
    into = f"{sink.table.name} ({sink.table.connector or 'warehouse table'})"
    shown = isinstance(sink_of(sink.table), SessionSink)
    title = f"print {sink.table.name}" if shown else f"write {into}"
    retracting = f"{_CHANGELOG}: rows are added and retracted"
    limit = f", ends after {sink.limit} rows" if sink.limit is not None else ""
    last = "the last row of" if sink.order else "a row for"
    keyed = f", {last} each {', '.join(sink.table.primary_key)}" if sink.upserts else ""
    facts = [
        ("reads", "; ".join(dict.fromkeys(read))),
        ("columns", ", ".join(f"{n} {t}" for n, t in sink.columns)),
        ("rows", f"{retracting if sink.changing and not sink.order else _APPEND_ONLY}{keyed}{limit}"),
        ("guarantee", guarantee([s.table for s in plan.scans], sink.table)),
    ]
    return title, facts


def physical_text(plan: PhysicalPlan, parallelism: int, *, spark: bool = True) -> str:
    """Return the physical plan as text, by Spark stages: nodes between two exchanges run in the same tasks.

    Each scan and operator has lines about its emitted rows, their time attribute, its state and the state's bound, and its SQL.
    Without `spark` the text says that the plan runs in this process.
    """
    lines = []
    targets = [*plan.levels, None]
    for number, level in enumerate(targets, 1):
        into = level if level is not None else (None,)
        feeding = [(node, fragment) for target in into for node, fragment in plan.feeding(target)]
        nodes = list({node.name: node for node, _ in feeding}.values())
        tasks = f"{len(nodes) * parallelism} tasks"
        lines.append(f"Spark stage {number}: {tasks}" if spark else "in this process, without Spark")
        for node in nodes:
            lines += [f"  {line}" for line in _node(node)]
            lines += [f"    {line}" for one, fragment in feeding if one is node for line in _fragment(fragment, plan)]
        for target in level or ():
            stage = plan.stages[target]
            keys = ", ".join(stage.hash_columns)
            by = f"by hash of {keys} to" if keys else "of all rows into one bucket of"
            lines.append(f'  exchange: {by} operator "{stage.name}", {parallelism} buckets')
    for sink in plan.sinks:
        columns = ", ".join(f"{n} {t}" for n, t in sink.columns)
        lines.append(f"  sink {sink.table.name} ({sink.kind}): {columns}")
        if sink.malformed:
            lines[-1] += " (malformed rows)"
            continue
        lines.append(f"  rows count {guarantee([s.table for s in plan.scans], sink.table)}")
    return "\n".join(lines)


def _node(node: ScanStage | StatefulStage) -> list[str]:
    match node:
        case ScanStage(table=table):
            lines = [f'scan "{node.name}" of table {table.name} ({table.connector})']
            kind = {None: "append-only", "whole": "changing", "keyed": "changes in their order"}[node.changes]
            lines.append(f"  rows: {_columns(table.columns)} ({kind})")
            if node.watermark is not None:
                timeout = table.options.get(IDLE_TIMEOUT)
                idle = f", idle after {timeout}" if timeout else ""
                watermark = "as the source says" if node.has_watermarks else node.watermark
                lines.append(f"  time attribute: {node.time_column}, watermark {watermark}{idle}")
            lines.append("  state: none")
        case StatefulStage(operator=operator):
            lines = [f'operator "{node.name}": {operator.kind}']
            kind = "changing" if WEIGHT_COLUMN in operator.outputs else "append-only"
            key = f", key {', '.join(node.unique)}" if node.unique else ""
            lines.append(f"  rows: {_columns(operator.outputs)} ({kind}{key})")
            if node.time_column is not None:
                lines.append(f"  time attribute: {node.time_column}, in order up to the watermark")
            if operator.manner:
                lines.append(f"  changes: {operator.manner}")
            lines += [f"  state table {table.name}: {_columns(table.columns)}" for table in operator.tables]
            lines.append(f"  state bounded by {node.bound}")
            lines.append(f"  view state.<job>.{node.name}: {', '.join(f'{n} {t}' for n, t in node.view.columns)}")
            for view in node.more_views:
                shown = ", ".join(f"{n} {t}" for n, t in view.rows.columns)
                lines.append(f"  view state.<job>.{view.name}: {shown}{f' ({view.note})' if view.note else ''}")
        case _:
            assert_never(node)
    return lines


def _fragment(fragment: Fragment, plan: PhysicalPlan) -> list[str]:
    target = f'operator "{plan.stages[fragment.exchange.stage].name}"' if fragment.exchange else ""
    several = len(plan.sinks) > 1 or len(plan.stages) > 1
    to = f" to {target or 'sink ' + plan.sinks[fragment.sink].table.name}" if several else ""
    looked_up = [
        f"look up in table {lookup.table.name} ({lookup.table.connector or 'warehouse'})"
        f" by {', '.join(column for _, column in lookup.keys)}: {lookup.rows}"
        for lookup in fragment.lookups
    ]
    return [*looked_up, f"fragment{to}: {fragment.rows}", *(f"  part {name}: {sql}" for name, sql in fragment.parts)]


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns if c.name != ARRIVED.name)


def described_state(statement: DescribeState, warehouse: Warehouse) -> Answer:
    """Return a row for each state column of an operator, or of all operators of a job.

    Raises BindError for a job or an operator that does not exist.
    """
    job, operator = statement.job, statement.operator
    record = read_record(warehouse.fs, warehouse.job(job.text))
    if record is None:
        hint = missing("job", job.text, warehouse.jobs())
        raise BindError(f'job "{job.text}" does not exist', job.span, hint=hint)
    operators = [o for o in record.operators if operator is None or o.name.lower() == operator.text.lower()]
    if not operators and operator is not None:
        hint = missing("operator", operator.text, [o.name for o in record.operators])
        raise BindError(f'job "{record.job}" has no operator "{operator.text}"', operator.span, hint=hint)
    return Answer(_STATE_COLUMNS, tuple(_state_rows(operators)))


def _state_rows(operators: Iterable[OperatorRecord]) -> Iterator[tuple[str, ...]]:
    for operator in operators:
        for table in state_tables(operator):
            for c in table.shown:
                yield operator.name, table.name, c.name, c.type, c.holds, _in_migration(table, c)


def _in_migration(table: ShownTable, column: ShownColumn) -> str:
    return "may be left out" if table.follows or column.filled is not None else "needed"


def state_text(planned: PlannedJob) -> str:
    """Return the state tables of a query's operators as text, with their columns, and whether a migration may leave these out."""
    record = job_record(planned, job_spec(planned, "", (0,)), 1)
    lines = []
    for operator in record.operators:
        for table in state_tables(operator):
            follows = " (follows from the others)" if table.follows else ""
            lines.append(f"{operator.name}.{table.name}{follows}")
            names = max(len(c.name) for c in table.shown)
            types = max(len(c.type) for c in table.shown)
            for c in table.shown:
                may = ", may be left out" if c.filled is not None else ""
                lines.append(f"   {c.name:{names}}  {c.type:{types}}  {c.holds}{may}")
    return "\n".join(lines) or "no operator keeps state"
