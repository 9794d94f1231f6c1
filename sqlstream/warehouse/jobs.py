"""The records of the jobs of a warehouse, which do not change while a job lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar, Literal

import msgspec

from sqlstream.catalog import VALUES, Column
from sqlstream.duck.sql import Select
from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.logical.plan.state_settings import AnyState, Semantics, Ties
from sqlstream.units import NO_TIME, Duration, ProcessingTime, upgraded_times
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import (
    GONE,
    Record,
    UnreadableFormat,
    Upgrade,
    damage,
    read_json,
    read_sealed,
    write_sealed,
)

FORMAT = 8
# Columns, as (name, type).
Columns = tuple[tuple[str, str], ...]
# The kind of sinks that are tables of the warehouse.
TABLE = "table"


class ScanRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table that a job reads, with its time column and watermark.

    `kind` is its connector; `location` identifies where it is, as in SinkRecord. `options` are those of the table, without
    secrets, of long ones a digest: scans of one table can have different ones. Records of earlier versions have none of these.
    `zone` is the time zone whose local times its watermark and its newest event time are; records of earlier versions have UTC.
    """

    name: str
    table: str
    time_column: str | None = None
    watermark_expression: str | None = None
    kind: str = ""
    location: str = msgspec.field(default="", name="place")
    options: Mapping[str, str] = {}
    zone: str = "UTC"

    @property
    def is_values(self) -> bool:
        """Whether its rows are literals of the query. A table that people declare can have the name of these, too."""
        return (self.kind or self.table) == VALUES


class TableRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state table, as it was declared (see `TableDeclaration`)."""

    name: str
    columns: Columns
    time_column: str | None = None
    merge: Select | None = None
    replaces: bool = False
    replicated: bool = False

    @classmethod
    def of(cls, table: TableDeclaration) -> TableRecord:
        """Return the record of a declaration."""
        columns = tuple((c.name, c.type) for c in table.columns)
        return cls(table.name, columns, table.time_column, table.merge, table.replaces, table.replicated)

    @property
    def declaration(self) -> TableDeclaration:
        columns = tuple(Column(name, type) for name, type in self.columns)
        return TableDeclaration(self.name, columns, self.time_column, self.merge, self.replaces, self.replicated)


class WindowRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The windows of an operator: the columns of its view that bound them. A window is forgotten `lateness` after its end.

    `start` or `end` is None if the view lacks it. With `grow`, rows can move the end of a window to a later time.
    """

    start: str | None
    end: str | None
    lateness: Duration = NO_TIME
    grow: bool = False


class ShapeItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an operator computes or stores: its name, its SQL over the rows of the input, and its type.

    `origin` is its SQL over the rows of the tables and operators below, if projections in between make a difference. `columns`
    are the state columns that store it, by table; none if it is computed from other items. In joins and process functions,
    `input` is the index (from 0) of the input that it belongs to.
    """

    name: str
    expression: str
    type: str
    kind: Literal["key", "aggregate", "column", "state"] = "column"
    origin: str = ""
    columns: Mapping[str, tuple[str, ...]] = {}
    input: int = 0

    @property
    def value(self) -> str:
        """The SQL that identifies the item: its `origin` where there is one, so names of columns in between do not matter."""
        return self.origin or self.expression


class RowPath(msgspec.Struct, frozen=True, omit_defaults=True):
    """How rows of a table or an operator, the `source`, reach another operator or a sink.

    `steps` are the stateless steps in between except projections, such as filters. `columns` has the SQL of arriving columns
    over the columns of the source, where it is not the column's own name. `input` is the index (from 0) of the input that the
    rows reach. If `source` is a table, `scan` is the name of its scan; records of earlier versions do not have it.
    """

    source: str
    steps: tuple[str, ...] = ()
    columns: Mapping[str, str] = {}
    input: int = 0
    scan: str = ""


class OperatorShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator computes, as plain data: two operators of equal shape have the same state for the same rows.

    `operator` is the declared kind of its node in the plan, such as "WindowAggregate". `items` are its aggregates, stored columns
    and states; `settings` are all other properties (windows, lateness, time to live, ranks, conditions): records of earlier
    versions have these as `texts`, by name (see `jobs.upgrades.older_settings`). `inputs` are the tables and operators whose
    rows it reads, `paths` how these rows reach it. With `named`, its name comes from the query.
    """

    operator: str
    keys: tuple[ShapeItem, ...] = ()
    items: tuple[ShapeItem, ...] = ()
    texts: Mapping[str, str] = msgspec.field(name="settings", default_factory=dict)
    inputs: tuple[str, ...] = ()
    paths: tuple[RowPath, ...] = ()
    named: bool = False
    settings: AnyState | None = msgspec.field(name="values", default=None)

    def of_kind(self, kind: str) -> tuple[ShapeItem, ...]:
        """Return the items of a kind."""
        return tuple(item for item in self.items if item.kind == kind)


# In `OperatorRecord.waits_for`: the operator's watermark is processing time, while other operators of the job use event time.
THE_CLOCK = "the clock"


class OperatorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stateful operator: its state tables, and its views, which people query.

    `view_sql` is a SELECT over the names of the state tables; it reads the batch's time and watermark as variables (see
    `duck/time_variables.py`). `view_columns` are its columns. `count_sql` is such a SELECT of the number of open windows,
    `more_views` are further views by name. The state has forgotten rows up to `delay` before the operator's watermark. Rows of
    state that differ in the `hash_columns` are independent; in an operator with keys these columns store the `key_columns`.
    `unique` are columns that identify a row of the result, if they are known. `window` is set if the result is per window, `ttl`
    if keys expire after so long without a row. `remembered` is the state that a time to live bounds, or could bound. `shape` is
    what the operator computes; an upgrade compares it with the operators of the changed query. Records of earlier versions lack
    `hash_columns` and the fields after it.

    `waits_for` are the names of the scans whose watermarks the operator waits for. It is empty if the operator does not read
    time, and THE_CLOCK if its watermark is processing time. Records of earlier versions have None: it waits for all scans.
    """

    name: str
    kind: str
    key_columns: tuple[str, ...]
    tables: tuple[TableRecord, ...]
    view_sql: Select
    view_columns: Columns
    bound: str
    count_sql: Select = Select("")
    more_views: tuple[tuple[str, Select], ...] = ()
    delay: Duration = NO_TIME
    hash_columns: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    window: WindowRecord | None = None
    ttl: Duration = NO_TIME
    remembered: tuple[ExpiringState, ...] = ()
    shape: OperatorShape | None = None
    waits_for: tuple[str, ...] | None = None

    def scans_of(self, timed: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the scans for whose watermarks it waits; `timed` names all scans that have a watermark."""
        return tuple(timed) if self.waits_for is None else self.waits_for

    @property
    def views(self) -> Mapping[str, Select]:
        """The views that people query, by name."""
        return {self.name: self.view_sql, **dict(self.more_views)}


class SinkRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sink: its kind, the name of its table, and the columns that are written.

    With `changing`, rows are written with weights. If there is a `key`, the table has one row per key; with `upserts` that is the
    last row written. If a batch can write several rows of a key, the columns `order`, which come after the others, order them.
    `location` identifies where a table outside of the warehouse is, if its options say so. `paths` say how rows reach the sink;
    records of earlier versions have none.
    """

    kind: str
    table: str
    columns: Columns
    changing: bool = False
    key: tuple[str, ...] = ()
    upserts: bool = False
    order: Columns = ()
    location: str = msgspec.field(default="", name="place")
    paths: tuple[RowPath, ...] = ()


class ScriptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job needs of its script besides its statement: declarations, options, and options of its tables; no secrets.

    Files of the tables that it declares must be `within` these folders, if there are any.
    """

    declarations: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    tables: Mapping[str, Mapping[str, str]] = {}
    within: tuple[str, ...] = ()


class PlanDigests(msgspec.Struct, frozen=True, omit_defaults=True):
    """The digests that identify a job. They cover the values of its plan, and no text of EXPLAIN.

    `plan` leaves out the tables that the job writes, `without_starts` also leaves out where its sources start; `tables` covers
    the written tables with their keys. `printer` is the PRINTER of `logical/plan/canonical.py` that has printed expressions:
    equal plans may have different digests if it differs.
    """

    plan: str
    without_starts: str
    tables: str
    printer: str = ""


class JobRecord(Record, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """What stays the same while a job lives: its SQL, its plan, the shape of its state, and the versions of libraries.

    With `retains_state`, a savepoint of the last version is taken when the job is dropped. A job that goes back to a savepoint
    begins a new life with a new `created_at`: `lives` are the earlier ones, each as the time of its creation and the last of its
    versions that the job still has. `upgraded_from` is the savepoint from which the job continued with a changed query; it is
    empty if migrations made its state. `script` is None in records of earlier versions, and if the script has secrets. `key_hash`
    is the version of the hash of keys (see `duck/key_hash.py`), 1 for jobs of earlier versions. `digests` identify the job; in
    records of earlier versions, which have none, `plan_text` does. `ties` says what decides which of several rows is first if
    they are equal in an ORDER BY: "arrival" or "columns". `semantics` says whether expressions have Flink's or DuckDB's values.
    `clock_zone` is the time zone of processing time as a watermark; records of earlier versions have UTC.
    """

    upgrades: ClassVar[Mapping[int, Upgrade]] = {7: partial(upgraded_times, names=("created_at",))}

    job: str
    sql: str
    plan_fingerprint: str
    plan_text: str
    created_at: ProcessingTime
    versions: Mapping[str, str]
    bucket_labels: tuple[int, ...]
    partitions: int
    scans: tuple[ScanRecord, ...]
    operators: tuple[OperatorRecord, ...]
    sinks: tuple[SinkRecord, ...]
    retains_state: bool = False
    lives: tuple[tuple[ProcessingTime, int], ...] = ()
    upgraded_from: str = ""
    script: ScriptRecord | None = None
    key_hash: int = 1
    digests: PlanDigests | None = None
    ties: Ties = "columns"
    semantics: Semantics = "duckdb"
    clock_zone: str = "UTC"

    def zone_of(self, scans: Iterable[str]) -> str:
        """Return the time zone whose local times the least watermark of some scans is, by their names; UTC if they differ."""
        of_scan = {scan.name: scan.zone for scan in self.scans} | {THE_CLOCK: self.clock_zone}
        zones = {of_scan.get(name, "UTC") for name in scans}
        return zones.pop() if len(zones) == 1 else "UTC"

    def sink(self, table: str) -> SinkRecord | None:
        """Return the sink that is a table of the warehouse, by the table's name without regard to case; None if there is none."""
        return next((s for s in self.sinks if s.kind == TABLE and s.table.lower() == table.lower()), None)

    def watermark_groups(self, timed: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the sets of scans whose least watermark is the watermark of an operator, each set once, by the scans' names.

        If no operator waits for a scan, the only set is `timed`, the names of all scans that have a watermark.
        """
        every = tuple(timed)
        return list(dict.fromkeys(filter(None, (one.scans_of(every) for one in self.operators)))) or [every]

    def label(self, scan: ScanRecord) -> str:
        """Return the text that users see for a scan: its table, and its own name if the job scans the table more than once."""
        is_alone = [s.table.lower() for s in self.scans].count(scan.table.lower()) == 1
        return scan.table if is_alone or scan.name == scan.table else f"{scan.table} as {scan.name}"

    def origins(self, path: RowPath) -> tuple[str, ...]:
        """Return the name of the operator or the scan that the rows of a path come from.

        There are several if a record of an earlier version does not say which scan of a table it is.
        """
        if path.scan:
            return (path.scan,)
        if any(operator.name == path.source for operator in self.operators):
            return (path.source,)
        return tuple(s.name for s in self.scans if s.table.lower() == path.source.lower()) or (path.source,)

    def has_written(self, created_at: ProcessingTime, version: int) -> bool:
        """Return whether the job still has a version that it wrote in the life that began at `created_at` (see `lives`)."""
        return created_at == self.created_at or version <= dict(self.lives).get(created_at, -1)

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """Return the record in a JSON text. Raises OtherVersionError."""
        try:
            return read_json(text, cls)
        except UnreadableFormat as other:
            raise other.error(f'job "{other.content["job"]}"') from other


def write_record(fs: Filesystem, job: JobPaths, record: JobRecord) -> None:
    """Write the record of a job; it survives a power failure."""
    write_sealed(fs, job.record, msgspec.json.format(record.to_json(), indent=2), durable=True)


def readable_record(fs: Filesystem, job: JobPaths) -> JobRecord | None:
    """Return the record of a job, None also if it is damaged or of another version, so that one job does not spoil a list."""
    try:
        return read_record(fs, job)
    except (DamageError, OtherVersionError):
        return None


def read_record(fs: Filesystem, job: JobPaths) -> JobRecord | None:
    """Return the record of a job, None if there is no such job. Raises DamageError and OtherVersionError."""
    try:
        text = read_sealed(fs, job.record)
    except FileNotFoundError:
        if last_committed(fs, job) is not None:
            raise damage(job.record, GONE, hint=_LOST_RECORD) from None
        return None
    except DamageError as error:
        # Earlier versions wrote it without a digest.
        older = _unsealed(fs, job.record)
        if older is None:
            raise damage(error.path, error.fault, hint=_LOST_RECORD) from error
        text = older
    return JobRecord.from_json(text)


_LOST_RECORD = "Restore the file from a backup, or start the job anew with --fresh."


def _unsealed(fs: Filesystem, path: str) -> str | None:
    """Return a record of an earlier version, without a digest; None if the file is no such record."""
    try:
        text = fs.read_text(path)
        return text if msgspec.json.decode(text)["format"] < FORMAT else None
    except (ValueError, TypeError, KeyError):
        return None
