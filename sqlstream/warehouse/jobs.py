"""What a warehouse knows about its jobs: their records, their status, and what they have committed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import msgspec

from sqlstream.catalog import Column
from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.units import NO_TIME, Duration, ProcessingTime, upgraded_times
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.declarations import Remembered, TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import GONE, OtherFormat, Record, Upgrade, damage, read_json, read_sealed, write_sealed

FORMAT = 8
# Names and types.
Columns = tuple[tuple[str, str], ...]
# The kind of sink that is a warehouse table.
TABLE = "table"


class ScanRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table that a job reads, with the watermark that it declares.

    `kind` is its connector, `place` tells its place from others, as of a sink; records of earlier versions have neither.
    """

    name: str
    table: str
    time_column: str | None = None
    watermark_expression: str | None = None
    kind: str = ""
    place: str = ""


class TableRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table of state, as it was declared (see `TableDeclaration`)."""

    name: str
    columns: Columns
    time_column: str | None = None
    merge: str | None = None
    replaces: bool = False
    replicated: bool = False

    @classmethod
    def of(cls, table: TableDeclaration) -> TableRecord:
        columns = tuple((c.name, c.type) for c in table.columns)
        return cls(table.name, columns, table.time_column, table.merge, table.replaces, table.replicated)

    @property
    def declaration(self) -> TableDeclaration:
        columns = tuple(Column(name, type) for name, type in self.columns)
        return TableDeclaration(self.name, columns, self.time_column, self.merge, self.replaces, self.replicated)


class WindowRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of an operator's view that have the bounds of its windows, and how much later than its end each is forgotten.

    Windows that `grow` have later ends as rows come.
    """

    start: str | None
    end: str | None
    lateness: Duration = NO_TIME
    grow: bool = False


class ShapeItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an operator computes or keeps: its name, the SQL that makes it of a row of the input, and its type.

    `origin` is the SQL over what tables and operators below emit, where projections between them make a difference. `columns`
    are the columns of state that hold it, by table: none of what is computed of others. Of a join and a process function,
    `input` is the place of the input that it is of.
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
        """What tells it from others, whatever it and the columns on the way are called."""
        return self.origin or self.expression


class RowPath(msgspec.Struct, frozen=True, omit_defaults=True):
    """How rows of a table or an operator come to another one, or to a sink: what is done to them on the way.

    `steps` are the filters and all else but projections. `columns` are those of the rows that arrive, as SQL over those of the
    rows that leave, where somebody has to know them. `input` is the place of the input that they come to.
    """

    source: str
    steps: tuple[str, ...] = ()
    columns: Mapping[str, str] = {}
    input: int = 0


class OperatorShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator computes, as plain data: two of equal shape have the same state for the same rows.

    `operator` is the declared kind of the node in the plan, as "WindowAggregate". `items` are its aggregates, the columns that it
    keeps, its states; `settings` what else there is to say (windows, lateness, time to live, ranks, conditions), as text;
    `inputs` the tables and operators whose rows it reads, `paths` how they come. It is `named` where the query gives it its name.
    """

    operator: str
    keys: tuple[ShapeItem, ...] = ()
    items: tuple[ShapeItem, ...] = ()
    settings: Mapping[str, str] = {}
    inputs: tuple[str, ...] = ()
    paths: tuple[RowPath, ...] = ()
    named: bool = False

    def of_kind(self, kind: str) -> tuple[ShapeItem, ...]:
        """Return the items of a kind."""
        return tuple(item for item in self.items if item.kind == kind)


class OperatorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stateful operator: its state tables, and the view of them that people query.

    `view_sql` is a SELECT over the names of the state tables, which asks for the clock as operators do; `view_columns` are the
    names and types that it yields. `count_sql` selects how many windows are open in the same way, `more_views` what else people
    query, by name. Its watermark is `delay` behind the job's. Rows of the state tables that differ in the `hash_columns` have
    nothing to do with each other; those of an operator with keys are its `key_columns`. `unique` are columns that tell the rows
    of the result apart, where that is known, `window` is set where the result is one of windows, `ttl` where keys are forgotten
    for which no row came so long. `remembered` is what a time to live forgets, or would. `shape` is what it computes, by which
    the operators of a changed query are compared with those of the job. Records of earlier versions have none of the six.
    """

    name: str
    kind: str
    key_columns: tuple[str, ...]
    tables: tuple[TableRecord, ...]
    view_sql: str
    view_columns: Columns
    bound: str
    count_sql: str = ""
    more_views: tuple[tuple[str, str], ...] = ()
    delay: Duration = NO_TIME
    hash_columns: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    window: WindowRecord | None = None
    ttl: Duration = NO_TIME
    remembered: tuple[Remembered, ...] = ()
    shape: OperatorShape | None = None

    @property
    def views(self) -> Mapping[str, str]:
        """The SELECTs that people query, by name."""
        return {self.name: self.view_sql, **dict(self.more_views)}


class SinkRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the results go: the kind of sink, the table's name, and the columns written.

    With `changing` they are written with weights; of the rows of a `key` a table holds one: with `upserts` the last one. Where
    a batch can have several, columns behind the others tell their `order`. `place` tells the
    place of a table outside of the warehouse from others, if its options name one. `paths` say how rows come to it; records of
    earlier versions have none.
    """

    kind: str
    table: str
    columns: Columns
    changing: bool = False
    key: tuple[str, ...] = ()
    upserts: bool = False
    order: Columns = ()
    place: str = ""
    paths: tuple[RowPath, ...] = ()


class ScriptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job needs of its script beside its statement: the declarations in it, options, and options of its tables.

    All without secrets. Files of the tables that it declares must lie `within` folders, if there are any.
    """

    declarations: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    tables: Mapping[str, Mapping[str, str]] = {}
    within: tuple[str, ...] = ()


class PlanDigests(msgspec.Struct, frozen=True, omit_defaults=True):
    """What tells a job from others, whatever words describe it: digests over the values of its plan.

    `plan` is of all but the tables that it writes, `without_starts` of that but for where its sources begin, `tables` of those
    tables, with their keys. Digests are comparable where the `printer` of their expressions is the same one.
    """

    plan: str
    without_starts: str
    tables: str
    printer: str = ""


class JobRecord(Record, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """What stays the same while a job lives: its SQL, its plan, the shape of its state, and what it was made with.

    With `retains_state` a savepoint keeps its last version when it is dropped. `lives` are of a job that went back to savepoints:
    when it was created before, and up to which version it still has what it wrote then. A job that goes on with a changed query
    was `upgraded_from` the savepoint of this name; not if migrations made its state. There is no `script` in records of earlier
    versions, nor where it has secrets.
    `key_hash` is the version of the hash that spreads its keys (see `duck/key_hash.py`): those that earlier versions made have
    the first one. By its `digests` a job is known; one of an earlier version has none, and is known by its `plan_text`.
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

    def sink(self, table: str) -> SinkRecord | None:
        """Return the sink that is a table of the warehouse with a name, matched without regard to case."""
        return next((s for s in self.sinks if s.kind == TABLE and s.table.lower() == table.lower()), None)

    def has_written(self, created_at: ProcessingTime, version: int) -> bool:
        """Tell whether the job, as it was created at some time, wrote what it has now, up to a version."""
        return created_at == self.created_at or version <= dict(self.lives).get(created_at, -1)

    @classmethod
    def from_json(cls, text: str) -> JobRecord:
        """Return the record in a text. Raises OtherVersionError."""
        try:
            return read_json(text, cls)
        except OtherFormat as other:
            raise other.error(f'job "{other.content["job"]}"') from other


def write_record(fs: Filesystem, job: JobPaths, record: JobRecord) -> None:
    write_sealed(fs, job.record, msgspec.json.format(record.to_json(), indent=2), durable=True)


def readable_record(fs: Filesystem, job: JobPaths) -> JobRecord | None:
    """Return the record of a job, None also where it is damaged or of another version: one job must not spoil a list."""
    try:
        return read_record(fs, job)
    except (DamageError, OtherVersionError):
        return None


def read_record(fs: Filesystem, job: JobPaths) -> JobRecord | None:
    """Return the record of a job, None when there is none. Raises DamageError when it is not whole, and OtherVersionError."""
    try:
        text = read_sealed(fs, job.record)
    except FileNotFoundError:
        if last_committed(fs, job) is not None:
            raise damage(job.record, GONE, hint=_LOST_RECORD) from None
        return None
    except DamageError as error:
        # Earlier versions did not seal it.
        older = _unsealed(fs, job.record)
        if older is None:
            raise damage(error.path, error.fault, hint=_LOST_RECORD) from error
        text = older
    return JobRecord.from_json(text)


_LOST_RECORD = "Restore the file from a backup, or start the job anew with --fresh."


def _unsealed(fs: Filesystem, path: str) -> str | None:
    """Return a record as earlier versions wrote it."""
    try:
        text = fs.read_text(path)
        return text if msgspec.json.decode(text)["format"] < FORMAT else None
    except (ValueError, TypeError, KeyError):
        return None
