"""Whether a job can go back to a savepoint: which sinks keep rows written after it, and which sources can read again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlstream.catalog import Table
from sqlstream.connectors.guarantees import Rollback
from sqlstream.connectors.registry import find, source_of
from sqlstream.connectors.warehouse.publishing import find_published, is_published
from sqlstream.jobs.savepoints.restored_files import InterruptedRestore
from sqlstream.runtime.times import from_spark_millis, in_millis, least
from sqlstream.storage import begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.units import EventTime
from sqlstream.warehouse.commits import committed_spark_millis, last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import TABLE, THE_CLOCK, JobRecord, ScanRecord, read_record
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint


def rollback(kind: str) -> Rollback:
    """Return what a sink does with the rows written after a savepoint when its job goes back to that savepoint.

    `kind` is the name of the sink's connector in a record. If the connector is not installed, the rows stay.
    """
    connector = find(kind)
    sink = connector.sink_type if connector is not None else None
    return Rollback.ROWS_STAY if sink is None else sink.rollback


def ahead(warehouse: Warehouse, saved: JobRecord, tables: Iterable[Table] = ()) -> list[str]:
    """Return the tables, as errors name them, that would keep the rows written after a savepoint if the job went back to it.

    These are outside of the warehouse, or published; tables of the warehouse in `tables` count as published if they will be.
    """
    outside = [sink for sink in saved.sinks if sink.kind != TABLE]
    staying = [f'"{sink.table}" ({sink.kind})' for sink in outside if rollback(sink.kind) is Rollback.ROWS_STAY]
    published = [table.name for table in tables if is_published(table)]
    published += [sink.table for sink in saved.sinks if sink.kind == TABLE and find_published(warehouse, sink.table)]
    return staying + [f'"{name}" (published)' for name in dict.fromkeys(published)]


def has_gone_on(warehouse: Warehouse, savepoint: Savepoint) -> bool:
    """Return whether sinks of a job may have rows that a savepoint of the job does not have.

    They may if the job has committed a batch since, if a batch has begun, or if rows of the last batch wait to be sent.
    """
    job = savepoint.record.job
    return _has_more(warehouse, job, read_record(warehouse.fs, warehouse.job(job)), savepoint)


def had_gone_on(half: InterruptedRestore, savepoint: Savepoint) -> bool:
    """Return the answer of `has_gone_on` for a job whose restore or upgrade was interrupted.

    It looks at the savepoint from which the job was being restored, in place of the job's files. True if that savepoint is gone.
    """
    if half.savepoint is None:
        return True
    return _has_more(half.savepoint.warehouse, half.savepoint.record.job, half.record, savepoint)


def _has_more(warehouse: Warehouse, job: str, record: JobRecord | None, savepoint: Savepoint) -> bool:
    fs, paths, savepoint_record = warehouse.fs, warehouse.job(job), savepoint.record
    if record is None or not record.has_written(savepoint_record.job_created_at, savepoint_record.version):
        return True
    entry = JobLog(savepoint.warehouse.fs, savepoint.warehouse.job(savepoint_record.job).log).entry(
        savepoint_record.version
    )
    if entry is None or last_committed(fs, paths) != savepoint_record.version or may_have_begun(fs, paths, entry):
        return True
    # Rows that wait to be sent are in folders below the folders of sinks.
    return any(path.removeprefix(f"{paths.output}/").count("/") > 1 for path in fs.walk(paths.output))


def may_have_begun(fs: Filesystem, paths: JobPaths, entry: LogEntry) -> bool:
    """Return whether a batch after the newest version may have begun, so that sinks may have rows of it."""
    if begun.may_have_begun(fs, paths, entry):
        return True
    # Jobs without Spark of earlier versions recorded no begin, not even of the empty batch after a change of the watermark.
    try:
        reached = from_spark_millis(committed_spark_millis(fs, paths, entry.version))
    except FileNotFoundError:
        # The job runs, and has committed a newer version by now.
        return True
    follows = reached != entry.watermark or _has_moved(read_record(fs, paths), entry)
    return follows and not fs.exists(paths.begun)


def _has_moved(record: JobRecord | None, entry: LogEntry) -> bool:
    """Return whether an operator has a later watermark after the version of an entry than it had in that version's batch."""
    operators = record.operators if record is not None else ()
    waiting = {one.name: one.waits_for for one in operators if one.waits_for}
    return any(
        (watermark := entry.clock if scans == (THE_CLOCK,) else _least(entry, scans)) is not None
        and in_millis(watermark) != entry.watermark_of(name)
        for name, scans in waiting.items()
    )


def _least(entry: LogEntry, scans: Iterable[str]) -> EventTime | None:
    return least(entry.sources[s].watermark for s in scans if s in entry.sources)


def way_back(warehouse: Warehouse, saved: JobRecord, declared: Iterable[Table] = ()) -> str:
    """Return a clause for people: when `run --from` can go back to a savepoint that was just taken.

    `declared` are the tables of the job whose declarations the caller knows.
    """
    tables_by_name: dict[tuple[str, str | None], list[Table]] = {}
    for table in declared:
        tables_by_name.setdefault((table.name.lower(), table.connector), []).append(table)
    scans = [(scan, tables_by_name.get((scan.table.lower(), scan.kind), [])) for scan in saved.scans]
    once = dict.fromkeys(f'"{scan.table}" ({scan.kind})' for scan, tables in scans if not _rewinds(scan, tables))
    if once:
        return f"run --from cannot go back to it, because rows of {', '.join(once)} do not come again"
    tables = ahead(warehouse, saved)
    return "run --from goes back to it" + (f" until the job writes into {', '.join(tables)}" if tables else "")


def _rewinds(scan: ScanRecord, tables: Sequence[Table]) -> bool:
    """Return whether a source can read its rows again, by its declared table or else by its connector.

    Of a table that is declared with several sets of options, all must be able to.
    """
    # Records of earlier versions name no connector.
    if scan.kind in (TABLE, ""):
        return True
    if tables:
        return all(source_of(table).rewinds for table in tables)
    connector = find(scan.kind)
    return connector is not None and connector.source_type is not None and connector.source_type.rewinds is True
