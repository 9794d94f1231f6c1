"""DESCRIBE STATE and EXPLAIN STATE: the state tables of a job's operators, and of the operators of a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlstream.compiler.catalog_answers import Answer
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import BindError, missing
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.state_columns import ShownColumn, ShownTable, state_tables
from sqlstream.sql.nodes import DescribeState
from sqlstream.warehouse.jobs import OperatorRecord, read_record
from sqlstream.warehouse.paths import Warehouse

_COLUMNS = ("operator", "table", "column", "type", "holds", "in a migration")


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
    return Answer(_COLUMNS, tuple(_rows(operators)))


def _rows(operators: Iterable[OperatorRecord]) -> Iterator[tuple[str, ...]]:
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
