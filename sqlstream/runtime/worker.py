"""The description of a job for its workers, and their DuckDB connections."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock

import duckdb

from sqlstream.catalog import DuckFunction
from sqlstream.connectors.interface import SinkContext
from sqlstream.duck import databases, key_hash
from sqlstream.duck.key_hash import BY_VALUE
from sqlstream.errors import SqlStreamError
from sqlstream.functions.databases import FunctionDatabase, open_database
from sqlstream.functions.process.instances import close_all
from sqlstream.options import memory_bytes
from sqlstream.physical.plan import PhysicalPlan, ScanStage
from sqlstream.secrets import remember
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.caches import forget_folder
from sqlstream.units import NO_TIME, Duration, VersionRetention
from sqlstream.warehouse.paths import BucketedPaths, Warehouse
from sqlstream.warehouse.process_folders import SPILL, process_folder

# Bytes of an operator's changes that the fragments behind it process together; more would take more memory, fewer would make
# small segments.
CHUNK = 64 << 20
# Indexes of large state may take, besides, this fraction (one fourth) of the memory that DuckDB has.
INDEX_SHARE = 4


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as its workers need it: the plan, the path of the warehouse, and the `memory` that a worker may use, as text.

    `labels` are the buckets' labels in frames. `retention` is how long old versions stay readable. `idle_timeout` is how long a
    source may be without rows before it is idle, unless its table has the option; 0 means for ever. `zone` is the time zone of
    the job.
    """

    name: str
    plan: PhysicalPlan
    warehouse: str
    labels: tuple[int, ...]
    functions: tuple[DuckFunction, ...]
    memory: str
    zone: str
    retention: VersionRetention
    fingerprint: str
    # Where relative paths start.
    project: str = ""
    idle_timeout: Duration = NO_TIME
    # How many rows the state of an operator may have, by its name, and what follows when it has more: "stop" or "warn".
    max_rows: Mapping[str, int] = field(default_factory=dict)
    # How these limits were set, by the name of the operator, for errors: SET 'option', or --set option.
    max_rows_as_set: Mapping[str, str] = field(default_factory=dict)
    max_rows_action: str = "stop"
    # The version of the hash that maps a key to its bucket; the exchanges of the plan have it already.
    key_hash: int = BY_VALUE
    # The folder of a profile of this run (see `profiling`); "" if it is not profiled.
    profile: str = ""

    @property
    def clock_zone(self) -> str:
        """The time zone of processing time as a watermark."""
        return self.zone if self.plan.has_local_clock else "UTC"

    def zone_of(self, scan: ScanStage) -> str:
        """Return the time zone whose local times the event times and the watermark of a scan are; UTC for a TIMESTAMP."""
        if scan.by_clock:
            return self.clock_zone
        return self.zone if scan.has_instants else "UTC"

    def remember_secrets(self) -> None:
        """Register the secrets in the options of all tables, so that errors in this process do not show them."""
        tables = [s.table for s in self.plan.scans] + [s.table for s in self.plan.sinks]
        fragments = [f for s in self.plan.scans for f in s.fragments] + [
            f for s in self.plan.stages for f in s.fragments
        ]
        tables += [lookup.table for f in fragments for lookup in f.lookups]
        for table in tables:
            remember(table.options)

    def open_bucket(self, stage: int, bucket: int, manifest: str | None) -> Bucket:
        """Open a stage's state for the bucket with a label, from the JSON of its manifest; without one it is empty."""
        at = self.plan.stages[stage]
        warehouse = Warehouse(self.warehouse)
        paths = warehouse.job(self.name).operator(at.name)
        first = bucket == min(self.labels)
        return Bucket.open(
            warehouse.fs,
            paths.root,
            bucket,
            at.operator.tables,
            manifest,
            *self.retention,
            is_first=first,
            index_memory=memory_bytes(self.memory) // INDEX_SHARE,
        )

    def sink_paths(self, warehouse: Warehouse, sink: int) -> BucketedPaths:
        """Return the folders of a sink's results: of its table in the warehouse, or of the job's output for another sink."""
        table = self.plan.sinks[sink]
        if table.kind == "table":
            return warehouse.table(table.table.name).job(self.name)
        return BucketedPaths(self.output(sink))

    def sink_context(self, sink: int) -> SinkContext:
        """Return the context of a sink outside of the warehouse, with defaults for `committed` and `workers`."""
        fs = Warehouse(self.warehouse).fs
        return SinkContext(fs, self.project, self.output(sink), job=self.name, warehouse=self.warehouse)

    def output(self, sink: int) -> str:
        """Return the job's folder for the results and records of a sink outside of the warehouse."""
        return f"{Warehouse(self.warehouse).job(self.name).root}/output/{sink}"


# Jobs of this process whose databases stay open.
KEPT = 8
# DuckDB keeps some hundred bytes of each temporary table and of each Arrow table that was registered, as long as the database is
# open. So a job gets another database after this number of connections, which are a few hundred batches.
MOST_CONNECTIONS = 2_000


@dataclass
class _JobDatabase:
    """A database of a job, how many connections it has had, and how many are in use."""

    database: FunctionDatabase
    had: int = 0
    used: int = 0


_databases: dict[tuple[object, ...], _JobDatabase] = {}
_lock = Lock()


@contextmanager
def connection(job: JobSpec) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection of this process for the job; its temporary tables are dropped with it.

    The database behind it is cached per process and job: registering functions costs more than a small batch. A forked
    process never uses its parent's database.
    """
    entry = _take(job)
    try:
        con = entry.database.cursor()
        try:
            yield databases.prepared(con, job.zone)
        finally:
            con.close()
    finally:
        with _lock:
            entry.used -= 1


def _take(job: JobSpec) -> _JobDatabase:
    """Return the database of a job, in use once more."""
    key = _key(job)
    with _lock:
        entry = _databases.get(key)
        # Functions may have resources that take long to open.
        if entry is not None and entry.had >= MOST_CONNECTIONS and not entry.used and not job.functions:
            del _databases[key]
            entry.database.discard()
            entry = None
        if entry is None:
            entry = _databases[key] = _JobDatabase(_open(job))
            # One in use stays: its functions, and what it has registered, are still needed.
            idle = [old for old, one in _databases.items() if one is not entry and not one.used]
            for old in idle[: max(0, len(_databases) - KEPT)]:
                _databases.pop(old).database.close()
        entry.had += 1
        entry.used += 1
    return entry


def _key(job: JobSpec) -> tuple[object, ...]:
    return os.getpid(), job.fingerprint, job.functions, job.memory


def release(job: JobSpec) -> None:
    """Release what this process caches for a job: its database, the indexes and sums of its state, resources of functions.

    Raises JobError if a resource cannot be closed.
    """
    with _lock:
        entry = _databases.pop(_key(job), None)
    try:
        if entry is not None:
            entry.database.close()
    finally:
        forget_folder(Warehouse(job.warehouse).job(job.name).root)
        for stage in job.plan.stages:
            stage.operator.release()


def release_resources() -> None:
    """Close the resources of all functions of this process, which is about to end; failures are ignored.

    Databases stay open, as one may be in the middle of a query.
    """
    for key, entry in list(_databases.items()):
        if key[0] == os.getpid():
            with suppress(SqlStreamError):
                entry.database.close_resources()
    close_all()


def _open(job: JobSpec) -> FunctionDatabase:
    settings: dict[str, str | int | bool] = {
        "threads": 1,
        "memory_limit": job.memory,
        "temp_directory": process_folder(SPILL, shared=True),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # Bags of rows: keeping the order of the input would only cost memory.
        "preserve_insertion_order": False,
        **databases.FORGETS_FILES,
    }
    return open_database(job.functions, settings, prepare=key_hash.register)
