"""EXPLAIN and `sqlstream explain`: a job at each stage on its way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from sqlstream.catalog import IDLE_TIMEOUT, Column
from sqlstream.compiler import PlannedJob
from sqlstream.connectors.guarantees import guarantee
from sqlstream.logical.explain import logical_text
from sqlstream.physical.plan import PhysicalPlan, ScanStage, StatefulStage


def explained(job: PlannedJob, stage: str) -> str:
    """Return a job as text: `ast`, `logical`, `optimized` or `physical`."""
    match stage:
        case "ast":
            body = repr(job.statement.query)
        case "logical":
            body = logical_text(job.logical)
        case "optimized":
            body = logical_text(job.optimized)
            body += f"\nrules that changed it: {', '.join(job.rules) or 'none'}"
        case _:
            body = physical_text(job.physical, job.options.parallelism, spark=not job.is_immediate)
    return f"-- job {job.name} ({'bounded' if job.bounded else 'unbounded'})\n{body}"


def physical_text(plan: PhysicalPlan, parallelism: int, *, spark: bool = True) -> str:
    """Return the physical plan by Spark stages: what runs between two exchanges runs in the same tasks.

    Per scan and operator it says which rows come out, their time attribute, the state and its bound, and the SQL.
    """
    lines = []
    targets: list[int | None] = [*range(len(plan.stages)), None]
    for number, target in enumerate(targets, 1):
        nodes = list(plan.feeding(target))
        tasks = f"{len(nodes) * parallelism} tasks"
        lines.append(f"Spark stage {number}: {tasks}" if spark else "in this process, without Spark")
        for node in nodes:
            lines += [f"  {line}" for line in _node(node)]
        if target is not None:
            keys = ", ".join(exchange.keys) if (exchange := nodes[0].fragment.exchange) else ""
            name = plan.stages[target].name
            by = f"by hash of {keys} to" if keys else "of all rows into one bucket of"
            lines.append(f'  exchange: {by} operator "{name}", {parallelism} buckets')
    columns = ", ".join(f"{n} {t}" for n, t in plan.sink.columns)
    lines.append(f"  sink {plan.sink.table.name} ({plan.sink.kind}): {columns}")
    lines.append(f"  rows count {guarantee([s.table for s in plan.scans], plan.sink.table)}")
    return "\n".join(lines)


def _node(node: ScanStage | StatefulStage) -> list[str]:
    match node:
        case ScanStage(table=table):
            lines = [f'scan "{node.name}" of table {table.name} ({table.connector})']
            lines.append(f"  rows: {_columns(table.columns)} (append-only)")
            if node.watermark is not None:
                timeout = table.options.get(IDLE_TIMEOUT)
                idle = f", idle after {timeout}" if timeout else ""
                lines.append(f"  time attribute: {node.time_column}, watermark {node.watermark}{idle}")
            lines.append("  state: none")
        case StatefulStage(operator=operator):
            lines = [f'operator "{node.name}": {operator.kind}']
            lines.append(f"  rows: {_columns(operator.outputs)} (append-only)")
            if node.time_column is not None:
                lines.append(f"  time attribute: {node.time_column}, in order up to the watermark")
            lines += [f"  state table {table.name}: {_columns(table.columns)}" for table in operator.tables]
            lines.append(f"  state bounded by {node.bound}")
            lines.append(f"  view state.<job>.{node.name}: {', '.join(f'{n} {t}' for n, t in node.view_columns)}")
        case _:
            assert_never(node)
    lines.append(f"  fragment: {node.fragment.rows}")
    return lines + [f"    part {name}: {sql}" for name, sql in node.fragment.parts]


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns)
