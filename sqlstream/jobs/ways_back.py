"""Whether a job can go back to a savepoint: what it has written and read since must be taken back, or come again."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Table
from sqlstream.connectors.warehouse.publishing import find_published, is_published
from sqlstream.runtime.times import from_spark_millis
from sqlstream.storage import begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.restoring import Interrupted
from sqlstream.warehouse.commits import committed_spark_millis, last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import TABLE, JobRecord, read_record
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.savepoints import Savepoint

# Sinks outside of the warehouse that keep nothing, and those that take back what a job wrote after a version.
KEEP_NOTHING = ("print", "blackhole")
GO_BACK = ("filesystem", *KEEP_NOTHING)
# Sources that have a place of the job's own on a server.
WITH_SLOTS = ("postgres-cdc",)
# Those whose rows cannot be asked for again.
ONCE = ("socket",)


def ahead(warehouse: Warehouse, saved: JobRecord, tables: Iterable[Table] = ()) -> list[str]:
    """Return the tables that would keep what a job writes after a savepoint, as errors name them.

    Of `tables` of the warehouse those are among them that are to be published.
    """
    found = [f'"{sink.table}" ({sink.kind})' for sink in saved.sinks if sink.kind not in (*GO_BACK, TABLE)]
    published = [table.name for table in tables if is_published(table)]
    published += [sink.table for sink in saved.sinks if sink.kind == TABLE and find_published(warehouse, sink.table)]
    return found + [f'"{name}" (published)' for name in dict.fromkeys(published)]


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


def way_back(warehouse: Warehouse, saved: JobRecord) -> str:
    """Say when `run --from` goes back to a savepoint of a job that has just been taken."""
    once = [f'"{scan.table}" ({scan.kind})' for scan in saved.scans if scan.kind in (*WITH_SLOTS, *ONCE)]
    if once:
        return f"run --from cannot go back to it, because rows of {', '.join(once)} do not come again"
    tables = ahead(warehouse, saved)
    return "run --from goes back to it" + (f" until the job writes into {', '.join(tables)}" if tables else "")
