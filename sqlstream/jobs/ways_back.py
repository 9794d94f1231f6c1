"""Whether a job can go back to a savepoint: what it has written and read since must be taken back, or come again."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Table
from sqlstream.connectors.guarantees import Rollback
from sqlstream.connectors.registry import find, source_of
from sqlstream.connectors.warehouse.publishing import find_published, is_published
from sqlstream.runtime.times import from_spark_millis
from sqlstream.storage import begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.restoring import Interrupted
from sqlstream.warehouse.commits import committed_spark_millis, last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import TABLE, JobRecord, ScanRecord, read_record
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.savepoints import Savepoint


def rollback(kind: str) -> Rollback:
    """Return what becomes of rows after a savepoint in tables of a connector, which a record names.

    Without its package they stay.
    """
    connector = find(kind)
    sink = connector.sink_type if connector is not None else None
    return Rollback.ROWS_STAY if sink is None else sink.rollback


def ahead(warehouse: Warehouse, saved: JobRecord, tables: Iterable[Table] = ()) -> list[str]:
    """Return the tables that would keep what a job writes after a savepoint, as errors name them.

    Of `tables` of the warehouse those are among them that are to be published.
    """
    outside = [sink for sink in saved.sinks if sink.kind != TABLE]
    staying = [f'"{sink.table}" ({sink.kind})' for sink in outside if rollback(sink.kind) is Rollback.ROWS_STAY]
    published = [table.name for table in tables if is_published(table)]
    published += [sink.table for sink in saved.sinks if sink.kind == TABLE and find_published(warehouse, sink.table)]
    return staying + [f'"{name}" (published)' for name in dict.fromkeys(published)]


def has_gone_on(warehouse: Warehouse, savepoint: Savepoint) -> bool:
    """Tell whether sinks of a job may have more than a savepoint of it says.

    That is so if the job has committed a batch since, if one has begun, or if rows of the last one wait to be sent.
    """
    job = savepoint.record.job
    return _has_more(warehouse, job, read_record(warehouse.fs, warehouse.job(job)), savepoint)


def had_gone_on(half: Interrupted, savepoint: Savepoint) -> bool:
    """Tell the same of a job whose restore or upgrade was interrupted: what it is laid out from says how far it was."""
    if half.savepoint is None:
        return True
    return _has_more(half.savepoint.warehouse, half.savepoint.record.job, half.record, savepoint)


def _has_more(warehouse: Warehouse, job: str, record: JobRecord | None, savepoint: Savepoint) -> bool:
    fs, paths, taken = warehouse.fs, warehouse.job(job), savepoint.record
    if record is None or not record.has_written(taken.job_created_at, taken.version):
        return True
    entry = JobLog(savepoint.warehouse.fs, savepoint.warehouse.job(taken.job).log).entry(taken.version)
    if entry is None or last_committed(fs, paths) != taken.version or may_have_begun(fs, paths, entry):
        return True
    # What waits is in folders below those of the sinks.
    return any(path.removeprefix(f"{paths.output}/").count("/") > 1 for path in fs.walk(paths.output))


def may_have_begun(fs: Filesystem, paths: JobPaths, entry: LogEntry) -> bool:
    """Tell whether a batch may have begun after the newest version of a job, of which sinks may have rows then."""
    if begun.may_have_begun(fs, paths, entry):
        return True
    # Of the batch that follows when the watermark has moved only jobs on Spark say that it begins, and they say so of each.
    try:
        reached = from_spark_millis(committed_spark_millis(fs, paths, entry.version))
    except FileNotFoundError:
        # The job runs, and is further by now.
        return True
    return reached != entry.watermark and not fs.exists(paths.begun)


def way_back(warehouse: Warehouse, saved: JobRecord, declared: Iterable[Table] = ()) -> str:
    """Say when `run --from` goes back to a savepoint of a job that has just been taken, some of whose sources are declared."""
    tables_by_name = {(table.name.lower(), table.connector): table for table in declared}
    scans = [(scan, tables_by_name.get((scan.table.lower(), scan.kind))) for scan in saved.scans]
    once = [f'"{scan.table}" ({scan.kind})' for scan, table in scans if not _rewinds(scan, table)]
    if once:
        return f"run --from cannot go back to it, because rows of {', '.join(once)} do not come again"
    tables = ahead(warehouse, saved)
    return "run --from goes back to it" + (f" until the job writes into {', '.join(tables)}" if tables else "")


def _rewinds(scan: ScanRecord, table: Table | None) -> bool:
    """Tell whether rows of a source come again, as it is declared, or as its connector says of its tables."""
    # Records of earlier versions name no connector.
    if scan.kind in (TABLE, ""):
        return True
    if table is not None:
        return source_of(table).rewinds
    connector = find(scan.kind)
    return connector is not None and connector.source_type is not None and connector.source_type.rewinds is True
