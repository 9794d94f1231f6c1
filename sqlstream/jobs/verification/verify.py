"""Verifies a job: compares the rows that it wrote with its query, run as one batch over the rows that it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain

import duckdb

from sqlstream.catalog import Table
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.registry import connector_of
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import Relation, Relations, Select, no_rows, quote_name, quote_text, quoted, subquery
from sqlstream.errors import UsageError
from sqlstream.jobs.verification.compare import ComparedTables, compare
from sqlstream.jobs.verification.functions import RunsFunctions
from sqlstream.jobs.verification.inputs import ReadAgain
from sqlstream.jobs.verification.lookups import looked_up
from sqlstream.jobs.verification.report import TableReport, Verification
from sqlstream.jobs.verification.sessions import RunsSessions
from sqlstream.jobs.verification.upgraded import EarlierJob
from sqlstream.jobs.verification.watermarks import JobWatermarks
from sqlstream.logical.bind.hints import with_session_ttl
from sqlstream.logical.plan.arrival import decided, has_arrival
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.physical.batch.query import TABLES, BatchQuery, Inputs
from sqlstream.physical.batch.rows import CannotVerify, StreamRules
from sqlstream.physical.plan import PhysicalPlan, SinkPlan
from sqlstream.runtime.batch_descriptors import Work, from_lines
from sqlstream.runtime.worker import JobSpec, connection
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.snapshot import JobHistory, JobVersion, VersionGone
from sqlstream.storage.views import table_view
from sqlstream.warehouse.jobs import TABLE, JobRecord
from sqlstream.warehouse.paths import Warehouse


def batch_query(planned: PlannedJob) -> str:
    """Return the query of a job as one batch: SQL with a SELECT for each table that it writes. Raises CannotVerify."""
    inputs = Inputs(partial(_in_text, planned.physical), TABLES.looked_up)
    texts = []
    for table, sinks in _by_table(_logical(planned)).items():
        texts.append(f"-- {table}\n{BatchQuery(inputs=inputs).of(sinks)};")
    return "\n\n".join(texts)


def _in_text(plan: PhysicalPlan, scan: Scan) -> Relation:
    """Return the relation that stands for a scan in a query for people: the table, with a hint that tells it from other scans.

    If the order of arrival decides ties, rows are taken to arrive in the order in which DuckDB reads the table.
    """
    relation = _table_in_text(plan, scan)
    if not has_arrival(scan):
        return relation
    # DuckDB reads the rows of a table in their order.
    return Relation(f"(SELECT *, row_number() OVER () AS {ARRIVED.name} FROM {relation})")


def _table_in_text(plan: PhysicalPlan, scan: Scan) -> Relation:
    if scan.table.is_values:
        return Relation(f"(VALUES {scan.table.options['rows']})")
    index = plan.index_of(scan)
    apart = plan.options_apart(index) if index is not None else {}
    options = ", ".join(f"{quote_text(name)} = {quote_text(value)}" for name, value in apart.items())
    # DuckDB reads it as a comment, which must not end too early.
    hint = f" /*+ OPTIONS({options.replace('*/', '* /')}) */" if options else ""
    return Relation(f"{quote_name(scan.table.name)}{hint}")


def verify_job(
    planned: PlannedJob, job: JobSpec, version: int | None = None, saved: Warehouse | None = None
) -> Verification:
    """Compare the rows that a job had written at a version (None: its newest) with a batch query over all rows read by then.

    With `saved`, the folder of a savepoint, it verifies the job in the savepoint; the warehouse tables that the job reads are
    taken from `job.warehouse`. Raises CannotVerify, and UsageError when there is no such version.
    """
    if planned.appends:
        raise CannotVerify("INSERT .. VALUES adds its rows each time it runs")
    warehouse = saved or Warehouse(job.warehouse)
    history = JobHistory(warehouse, job.name)
    record, snapshot, entry = _version(history, job.name, version)
    earlier = None
    if record.upgraded_from:
        earlier = EarlierJob.of(Warehouse(job.warehouse), planned, record)
    works = _descriptors(warehouse, job, entry.sequence, earlier)
    sinks = _logical(planned)
    _check_expired(sinks, entry)
    by_table = _by_table(sinks)
    with connection(job) as con, _usage_error_if_gone(job.name, snapshot.version):
        watermarks = JobWatermarks(job.plan, con, planned.physical.index_of)
        inputs = ReadAgain(job, con, planned.physical.index_of, watermarks)
        inputs.read(works)
        reports = []
        inputs.join(history.entries)
        runs = RunsFunctions(con, inputs.moments, watermarks, snapshot)
        for plan in (plan for plan in job.plan.sinks if not plan.malformed):
            if plan.kind == TABLE:
                actual = _written_by(con, warehouse, plan, record, snapshot)
            elif saved is not None:
                raise CannotVerify(
                    f'what the job wrote into table "{plan.table.name}" ({plan.kind}) is in no savepoint'
                )
            else:
                actual = _written_outside(con, job, plan, snapshot, history)
            own = by_table[plan.table.name.lower()]
            answers: Relations = _answers(own, inputs, runs, job, earlier)
            if earlier is not None:
                answers = earlier.added(con, plan, answers, partial(_answers, own, inputs, runs, job))
            reports.append(_compared(con, plan, own, actual, answers))
        notes = [*runs.notes(), *([earlier.note] if earlier is not None else [])]
        return Verification(record.job, snapshot.version, inputs.count(), tuple(reports), tuple(notes))


@contextmanager
def _usage_error_if_gone(name: str, version: int) -> Iterator[None]:
    """Turn VersionGone into UsageError."""
    try:
        yield
    except VersionGone as gone:
        raise UsageError(
            f'job "{name}" keeps no version {version}', hint=f"It keeps those from {gone.oldest} on."
        ) from gone


def _logical(planned: PlannedJob) -> list[ResultSink]:
    """Return the plans without the optimizer's rules, so that verification finds a fault of a rule; ties are as in the job."""
    ttl = planned.options.duration("table.exec.state.ttl")
    sinks = [with_session_ttl(sink, ttl) for sink in planned.logical]
    return decided(sinks) if planned.ties == "arrival" else sinks


def _by_table(sinks: Iterable[ResultSink]) -> dict[str, list[ResultSink]]:
    sinks_by_table: dict[str, list[ResultSink]] = {}
    for sink in sinks:
        sinks_by_table.setdefault(sink.table.name.lower(), []).append(sink)
    return sinks_by_table


def _version(history: JobHistory, name: str, version: int | None) -> tuple[JobRecord, JobVersion, LogEntry]:
    record = history.record
    if record is None:
        raise UsageError(f'job "{name}" does not exist')
    snapshot = history.newest if version is None else history.at_version(version)
    if snapshot is None:
        problem = "has no version yet" if version is None else f"keeps no version {version}"
        oldest = f"It keeps those from {history.oldest} on." if history.oldest is not None else None
        raise UsageError(f'job "{name}" {problem}', hint=oldest)
    entry = next(e for e in history.entries if e.version == snapshot.version)
    return record, snapshot, entry


def _descriptors(warehouse: Warehouse, job: JobSpec, last: int, earlier: EarlierJob | None) -> Iterator[Sequence[Work]]:
    """Return the input of the batches of a job, in their order, up to the number `last`. Raises CannotVerify without it.

    Batches before an upgrade are in the savepoint of the upgrade.
    """
    before = -1 if earlier is None else earlier.sequence
    texts = Descriptors(warehouse.fs, warehouse.job(job.name).splits).texts(last, before + 1)
    read: Iterator[Sequence[Work]] | None = iter(()) if earlier is None else earlier.read()
    if texts is None or read is None:
        raise CannotVerify(
            f'job "{job.name}" does not say what all its batches have read',
            detail="So it is of jobs whose state a migration made, and of forks with another query: their state need not be what"
            " the query makes of all input. So it is also of jobs that ran on a version of sqlstream that kept less.",
            hint="Run the query as a job of another name over all input, and compare the tables. What an upgrade did to the"
            f" state, `sqlstream diff {job.name}.OPERATOR SAVEPOINT VERSION` shows.",
        )
    return chain(read, map(from_lines, texts))


def _check_expired(sinks: Sequence[ResultSink], entry: LogEntry) -> None:
    """Raise CannotVerify when keys have expired and the result of an operator depends on when they did."""
    forgot = [name for name, metrics in entry.operators.items() if metrics.expired_keys]
    for node in (node for sink in sinks for node in walk(sink)):
        if forgot and isinstance(node, StatefulNode) and node.depends_on_expiry:
            raise CannotVerify(f"{node.label} has forgotten keys: what it knew of them depends on when", node.span)


def _written_by(
    con: duckdb.DuckDBPyConnection, warehouse: Warehouse, plan: SinkPlan, record: JobRecord, snapshot: JobVersion
) -> Relation:
    """Return a temporary table with the rows that a job had written into a table of the warehouse at a version."""
    rows = table_view(warehouse, plan.table.name, [(record, snapshot)])
    return _as_actual(con, plan, subquery(rows))


def _written_outside(
    con: duckdb.DuckDBPyConnection, job: JobSpec, plan: SinkPlan, snapshot: JobVersion, history: JobHistory
) -> Relation:
    """Return a temporary table with the current rows of a table with a connector. Raises CannotVerify."""
    shown = f'table "{plan.table.name}" ({plan.kind})'
    if history.newest is None or snapshot.version != history.newest.version:
        raise CannotVerify(f"{shown} has no older versions", hint="Leave out --at.")
    current_rows = connector_of(plan.table).snapshot(con, plan.table, job.project)
    if current_rows is None:
        raise CannotVerify(f"{shown} cannot be read")
    current_rows.register(con)
    return _as_actual(con, plan, current_rows.relation)


def _as_actual(con: duckdb.DuckDBPyConnection, plan: SinkPlan, rows: Relation) -> Relation:
    columns = ", ".join(quote_name(name) for name, _ in plan.columns)
    table = quoted(f"_actual_{plan.table.name.lower()}")
    con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {columns} FROM {rows}")
    return table


def _corrections() -> Iterator[tuple[str, StreamRules]]:
    """Yield causes, each with the corrections for it and all causes before it."""
    yield "", StreamRules()
    yield "untimed", StreamRules(untimed=True)
    yield "late", StreamRules(untimed=True, late=True)
    yield "expired", StreamRules(untimed=True, late=True, expired=True)
    yield "due", StreamRules(untimed=True, late=True, expired=True, due=True)
    yield "batches", StreamRules(untimed=True, late=True, expired=True, due=True, batches=True)


def _answers(
    sinks: Sequence[ResultSink],
    inputs: ReadAgain,
    runs: RunsFunctions,
    job: JobSpec,
    earlier: EarlierJob | None,
    *,
    is_before: bool = False,
) -> dict[str, Relation]:
    """Return temporary tables with the batch answers, by cause, each with one more correction; equal queries share a table.

    For an upgraded job (`earlier`), the answers are over the rows that `EarlierJob.part` selects.
    """
    con, at = inputs.con, runs.at
    read: Callable[[Scan], Relation] = inputs.relation
    if earlier is not None:
        read = earlier.part(read, is_before=is_before)
        at = earlier.version if is_before else at
    tables: dict[Select, Relation] = {}
    by_cause = {}
    sessions = RunsSessions(con)
    for cause, corrections in _corrections():
        relations = Inputs(
            read,
            partial(_lookup, con, job),
            is_read=True,
            processed=runs,
            sessions=sessions,
            watermark=inputs.watermarks.sql,
            reached=partial(inputs.watermarks.reached, version=at),
        )
        query = BatchQuery(corrections, relations).of(sinks)
        if query not in tables:
            tables[query] = Relation(f"_{'earlier' if is_before else 'answer'}_{len(tables)}")
            try:
                con.execute(f"CREATE OR REPLACE TEMP TABLE {tables[query]} AS {query}")
            except duckdb.Error as error:
                raise CannotVerify("the batch over all rows fails", detail=str(error).splitlines()[0]) from error
        by_cause[cause] = tables[query]
    return by_cause


def _lookup(con: duckdb.DuckDBPyConnection, job: JobSpec, node: LookupJoin) -> Relation:
    """Return the current rows of a lookup table."""
    table = node.table
    if table.connector is None:
        return subquery(_written(Warehouse(job.warehouse), table))
    current_rows = connector_of(table).snapshot(con, table, job.project)
    if current_rows is None:
        raise CannotVerify(f'lookup table "{table.name}" ({table.connector}) cannot be read whole', node.span)
    current_rows.register(con)
    columns = ", ".join(
        quote_name(c.name) if c.expression is None else f"{c.expression} AS {quote_name(c.name)}" for c in table.visible
    )
    return subquery(Select(f"SELECT {columns} FROM {current_rows.relation}"))


def _written(warehouse: Warehouse, table: Table) -> Select:
    """Return the rows that jobs have written into a table of the warehouse."""
    jobs = [JobHistory(warehouse, name) for name in warehouse.writers(table.name)]
    versions = [(job.record, job.newest) for job in jobs if job.record is not None and job.record.sink(table.name)]
    return table_view(warehouse, table.name, versions) if versions else no_rows(table.visible)


def _compared(
    con: duckdb.DuckDBPyConnection,
    plan: SinkPlan,
    sinks: Sequence[ResultSink],
    actual: Relation,
    answers: Relations,
) -> TableReport:
    columns = tuple(name for name, _ in plan.columns)
    keys = plan.table.primary_key if plan.table.connector is None and plan.changing else ()
    tainted = frozenset(name for sink in sinks for name in looked_up(sink))
    return compare(con, ComparedTables(plan.table.name, columns, actual, answers, keys, tainted))
