"""EXPLAIN and `sqlstream explain`: a job at each stage on its way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from sqlstream.catalog import IDLE_TIMEOUT, Column
from sqlstream.compiler import PlannedJob
from sqlstream.connectors.guarantees import guarantee
from sqlstream.logical.explain import logical_text
from sqlstream.physical.plan import Fragment, PhysicalPlan, ScanStage, StatefulStage
from sqlstream.sql.nodes import StatementSet
from sqlstream.storage.zsets import WEIGHT_COLUMN


def explained(job: PlannedJob, stage: str) -> str:
    """Return a job as text: `ast`, `logical`, `optimized` or `physical`."""
    match stage:
        case "ast":
            parts = job.statement.inserts if isinstance(job.statement, StatementSet) else (job.statement,)
            body = "\n".join(repr(part.query) for part in parts)
        case "logical":
            body = "\n".join(map(logical_text, job.logical))
        case "optimized":
            body = "\n".join(map(logical_text, job.optimized))
            body += f"\nrules that changed it: {', '.join(job.rules) or 'none'}"
        case _:
            body = physical_text(job.physical, job.options.parallelism, spark=not job.is_immediate)
    return f"-- job {job.name} ({'bounded' if job.bounded else 'unbounded'})\n{body}"


def physical_text(plan: PhysicalPlan, parallelism: int, *, spark: bool = True) -> str:
    """Return the physical plan by Spark stages: what runs between two exchanges runs in the same tasks.

    Per scan and operator it says which rows come out, their time attribute, the state and its bound, and the SQL.
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
                lines.append(f"  time attribute: {node.time_column}, watermark {node.watermark}{idle}")
            lines.append("  state: none")
        case StatefulStage(operator=operator):
            lines = [f'operator "{node.name}": {operator.kind}']
            kind = "changing" if WEIGHT_COLUMN in operator.outputs else "append-only"
            key = f", key {', '.join(node.unique)}" if node.unique else ""
            lines.append(f"  rows: {_columns(operator.outputs)} ({kind}{key})")
            if node.time_column is not None:
                lines.append(f"  time attribute: {node.time_column}, in order up to the watermark")
            lines += [f"  state table {table.name}: {_columns(table.columns)}" for table in operator.tables]
            lines.append(f"  state bounded by {node.bound}")
            lines.append(f"  view state.<job>.{node.name}: {', '.join(f'{n} {t}' for n, t in node.view_columns)}")
            for view in node.more_views:
                shown = ", ".join(f"{n} {t}" for n, t in view.columns)
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
    return ", ".join(f"{c.name} {c.type}" for c in columns)
