"""`sqlstream explain`: a job at each stage on its way."""

from __future__ import annotations

from typing import assert_never

from sqlstream.compiler import PlannedJob
from sqlstream.connectors.guarantees import guarantee
from sqlstream.logical.explain import logical_text
from sqlstream.physical.plan import Fragment, PhysicalPlan, ScanStage, StatefulStage


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
            body = physical_text(job.physical, job.options.parallelism)
    return f"-- job {job.name} ({'bounded' if job.bounded else 'unbounded'})\n{body}"


def physical_text(plan: PhysicalPlan, parallelism: int) -> str:
    """Return the physical plan: each stage with its SQL, where its rows go, its state and what bounds it."""
    lines = []
    nodes: list[ScanStage | StatefulStage] = [*plan.scans, *plan.stages]
    for node in nodes:
        match node:
            case ScanStage():
                lines.append(f'scan "{node.name}" of table {node.table.name}, {parallelism} tasks')
                if node.watermark is not None:
                    lines.append(f"  watermark: {node.watermark}")
            case StatefulStage():
                lines.append(f'operator "{node.name}": {node.operator.kind}, {parallelism} buckets')
                for table in node.operator.tables:
                    columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
                    lines.append(f"  state table {table.name}: {columns}")
                lines.append(f"  bounded by {node.bound}")
                lines.append(f"  view state.<job>.{node.name}: {', '.join(f'{n} {t}' for n, t in node.view_columns)}")
            case _:
                assert_never(node)
        lines += _fragment(node.fragment, plan)
    columns = ", ".join(f"{n} {t}" for n, t in plan.sink.columns)
    lines.append(f"sink {plan.sink.table.name} ({plan.sink.kind}): {columns}")
    lines.append(f"rows count {guarantee([s.table for s in plan.scans], plan.sink.table)}")
    return "\n".join(lines)


def _fragment(fragment: Fragment, plan: PhysicalPlan) -> list[str]:
    lines = [f"  fragment: {fragment.rows}"]
    lines += [f"    part {name}: {sql}" for name, sql in fragment.parts]
    if fragment.exchange is None:
        return [*lines, "  to the sink"]
    target = plan.stages[fragment.exchange.stage].name
    return [*lines, f"  exchange by hash of {', '.join(fragment.exchange.keys)} to operator {target}"]
