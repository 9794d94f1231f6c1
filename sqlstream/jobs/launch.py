"""A planned job before its start: its description for workers, its record for the warehouse, and checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version

from sqlstream import distribution, profiling
from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.warehouse.publishing import find_published, is_published
from sqlstream.duck.key_hash import BY_VALUE
from sqlstream.duck.types import has_intervals
from sqlstream.errors import UsageError, missing
from sqlstream.jobs.identity import planned_digests, written_key
from sqlstream.jobs.upgrades.shapes import shapes, sink_paths
from sqlstream.physical.plan import PhysicalPlan, ResultWindows, ScanStage, StatefulStage, hashing
from sqlstream.runtime.worker import JobSpec
from sqlstream.secrets import planned as planned_options
from sqlstream.sql.nodes import head
from sqlstream.units import NO_TIME, now
from sqlstream.warehouse.jobs import (
    TABLE,
    JobRecord,
    OperatorRecord,
    OperatorShape,
    ScanRecord,
    ScriptRecord,
    SinkRecord,
    TableRecord,
    WindowRecord,
    read_record,
)
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import digest


def fresh_jobs(compiled: Iterable[Compiled], fresh: bool | Collection[str]) -> set[str]:
    """Return the names of the jobs to start from scratch: all (True), none (False), or the jobs that `fresh` names.

    Raises UsageError for a name that no job has.
    """
    names = {job.name.lower(): job.name for job in compiled if isinstance(job, PlannedJob) and not job.is_query}
    if isinstance(fresh, bool):
        return set(names.values()) if fresh else set()
    if isinstance(fresh, str):
        # A text would be taken for the names that its letters are.
        fresh = (fresh,)
    for name in fresh:
        if name.lower() not in names:
            hint = missing("job", name, names.values()) if names else None
            raise UsageError(f'there is no job "{name}" in the SQL to start anew', hint=hint)
    return {names[name.lower()] for name in fresh}


def check_fresh(fresh: bool | Collection[str], *, restores: bool, upgrades: bool) -> None:
    """Raise UsageError when jobs are to start from scratch, and a savepoint or an upgrade is requested as well."""
    if fresh and restores:
        raise UsageError(
            "a job begins anew, or from a savepoint",
            hint="Leave out --fresh, or --from (in Python fresh, or savepoint).",
        )
    if fresh and upgrades:
        raise UsageError(
            "a job begins anew, or is upgraded",
            hint="Leave out --fresh, or --upgrade and --migrate (in Python fresh, or upgrade and migrate).",
        )


def only_jobs(
    compiled: Iterable[Compiled], selection: Collection[str], restored: Collection[str] = ()
) -> list[Compiled]:
    """Return only the jobs whose names are in `selection`, in any case.

    Raises UsageError for a name that no job has, and if a job that begins from a savepoint, in `restored`, is left out.
    """
    jobs = [one for one in compiled if isinstance(one, PlannedJob) and not one.is_query]
    names = [job.name for job in jobs]
    for name in selection:
        if name.lower() not in map(str.lower, names):
            raise UsageError(f'there is no job "{name}" in the SQL', hint=missing("job", name, names))
    lower_names = {name.lower() for name in selection}
    for name in restored:
        if name.lower() not in lower_names:
            hint = f'Add --job "{name}", or leave out --from.'
            raise UsageError(f'job "{name}" is to begin from a savepoint, and is not among the jobs to run', hint=hint)
    return [job for job in jobs if job.name.lower() in lower_names]


def job_spec(
    planned: PlannedJob,
    warehouse: str,
    labels: Sequence[int],
    *,
    name: str | None = None,
    project: str = "",
    key_hash: int = BY_VALUE,
) -> JobSpec:
    """Return the description of a job for workers, under its own name or `name`; its plan has no logical nodes.

    `labels` name the buckets of state, relative paths start at `project`, `key_hash` is the version of the hash of keys.
    """
    options, plan = planned.options, planned.physical
    return JobSpec(
        name=name or planned.name,
        plan=hashing(_without_nodes(plan), key_hash),
        warehouse=warehouse,
        labels=tuple(labels),
        functions=planned.functions,
        memory=options.memory,
        zone=options.text("table.local-time-zone"),
        retention=options.retention,
        fingerprint=planned.fingerprint,
        idle_timeout=options.duration("table.exec.source.idle-timeout"),
        project=project,
        max_rows=options.max_rows([stage.name for stage in plan.stages]),
        max_rows_as_set=options.max_rows_as_set([stage.name for stage in plan.stages]),
        max_rows_action=options.text("sqlstream.state.max-rows-action").lower(),
        key_hash=key_hash,
        profile=profiling.folder(),
    )


def _without_nodes(plan: PhysicalPlan) -> PhysicalPlan:
    return replace(
        plan,
        scans=tuple(replace(scan, node=None) for scan in plan.scans),
        stages=tuple(replace(stage, node=None) for stage in plan.stages),
    )


def key_hash_of(record: JobRecord | None) -> int:
    """Return the version of the hash of keys: the newest, or the record's if state is hashed by columns with intervals."""
    for operator in record.operators if record is not None else ():
        types = {name: type for table in operator.tables for name, type in table.columns}
        if any(has_intervals(types[name]) for name in operator.hash_columns if name in types):
            assert record is not None
            return record.key_hash
    return BY_VALUE


def check_only_writer(warehouse: Warehouse, planned: PlannedJob, name: str, *, is_new: bool = True) -> None:
    """Raise UsageError when another job writes a table that only one job may write.

    Such tables are published, or have a PRIMARY KEY; the latter matters for new jobs only (`is_new`). Two jobs would each change
    the rows of a key, or the published table, as if there were no other.
    """
    tables = [s.table for s in planned.physical.sinks if s.kind == TABLE]
    alone = {t.name: "has a PRIMARY KEY" for t in tables if t.primary_key and is_new}
    alone |= {t.name: "is published" for t in tables if is_published(t) or find_published(warehouse, t.name)}
    for other in warehouse.jobs() if alone else ():
        record = read_record(warehouse.fs, warehouse.job(other))
        if record is None or other.lower() == name.lower():
            continue
        for table, why in alone.items():
            if record.sink(table) is not None:
                raise UsageError(
                    f'table "{table}" {why}, and job "{record.job}" writes it already',
                    head(planned.statement),
                    detail=f'Under the name "{name}" this is another job.',
                    hint="Write into another table, or write both queries into one job, with UNION ALL, "
                    f'or drop that job and what it wrote: sqlstream drop "{record.job}".',
                )


# Options that say where a table outside of the warehouse is.
_LOCATION_OPTIONS = ("path", "topic", "url", "table", "table-name", "catalog", "class", "function")
# The letters of an option that a record has.
_LONGEST = 200


def _location(table: Table) -> str:
    """Return a digest of the options that say where a table is; "" if it has none, or is in the warehouse. No secret is in it."""
    options = {key: table.options[key] for key in _LOCATION_OPTIONS if key in table.options}
    return digest(repr((table.connector, options))) if table.connector is not None and options else ""


def _options(table: Table) -> dict[str, str]:
    """Return the options of a table without secrets; of long ones, such as the rows of VALUES, a digest."""
    options = planned_options(table.options)
    return {name: value if len(value) <= _LONGEST else digest(value) for name, value in options.items()}


def job_record(planned: PlannedJob, job: JobSpec, partitions: int) -> JobRecord:
    """Return the record of a job that is created now, with its number of tasks, `partitions`."""
    plan = planned.physical
    return JobRecord(
        job=job.name,
        sql=planned.sql,
        plan_fingerprint=planned.fingerprint,
        plan_text=planned.plan_text,
        created_at=now(),
        versions={
            "sqlstream": distribution.VERSION,
            **{package: version(package) for package in ("pyspark", "duckdb")},
        },
        bucket_labels=job.labels,
        partitions=partitions,
        scans=tuple(_scan_record(job, scan) for scan in plan.scans),
        operators=tuple(_operator_record(plan, s, shape) for s, shape in zip(plan.stages, shapes(plan), strict=True)),
        sinks=tuple(
            SinkRecord(
                s.kind,
                s.table.name,
                s.columns,
                s.changing,
                written_key(s),
                s.upserts,
                tuple((c.name, c.type) for c in s.order),
                _location(s.table),
                paths=sink_paths(planned.optimized, plan, s.table.name),
            )
            for s in plan.sinks
        ),
        retains_state=planned.options.retains_state,
        script=_script(planned),
        key_hash=job.key_hash,
        digests=planned_digests(planned),
        ties=planned.ties,
        semantics=planned.semantics,
        clock_zone=job.clock_zone,
    )


def _scan_record(job: JobSpec, scan: ScanStage) -> ScanRecord:
    table = scan.table
    kind = table.connector or TABLE
    location, options = _location(table), _options(table)
    zone = job.zone_of(scan)
    return ScanRecord(scan.name, table.name, scan.time_column, scan.watermark, kind, location, options, zone)


def _operator_record(plan: PhysicalPlan, stage: StatefulStage, shape: OperatorShape) -> OperatorRecord:
    return OperatorRecord(
        name=stage.name,
        kind=stage.operator.kind,
        key_columns=stage.key_columns,
        tables=tuple(map(TableRecord.of, stage.operator.tables)),
        view_sql=stage.view.sql,
        view_columns=stage.view.columns,
        bound=stage.bound,
        count_sql=stage.count_sql,
        more_views=tuple((v.name, v.rows.sql) for v in stage.more_views),
        delay=stage.delay,
        hash_columns=stage.hash_columns,
        unique=stage.unique,
        window=_window(stage.windows),
        ttl=stage.node.key_ttl if stage.node is not None else NO_TIME,
        remembered=stage.remembered,
        shape=shape,
        waits_for=plan.waits_for(stage),
    )


def _script(planned: PlannedJob) -> ScriptRecord | None:
    """Return the part of the job's script that its record stores; None for INSERT .. VALUES, and for a script with secrets."""
    script = planned.script
    if script is None or planned.appends:
        return None
    return ScriptRecord(script.declarations, script.options, script.tables, script.within)


def _window(windows: ResultWindows | None) -> WindowRecord | None:
    """Return the columns of an operator's view that bound its windows, None if its result is not per window."""
    if windows is None:
        return None
    columns = windows.columns
    return WindowRecord(columns.start, columns.end, windows.lateness, windows.grow)
