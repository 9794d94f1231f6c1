"""The interface of connectors: the base classes of the built-in connectors and of connectors in other packages.

A connector declares the options of its tables. It turns a table into a source (a job reads it), a sink (a job writes it) or a
lookup (a job looks up its rows by key); each has its own class, and a connector has a class for each kind that it supports.
`registry` lists the built-in connectors; another package declares its connector by an entry point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import uuid4

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, Position, Split
from sqlstream.connectors.guarantees import Delivery, Guarantee, Replay, Rollback
from sqlstream.connectors.options import TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Relation, Select
from sqlstream.errors import DataError, Span
from sqlstream.units import EPOCH, ProcessingTime
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from sqlstream.connectors.batch import Batch
    from sqlstream.connectors.formats.malformed import MalformedRow
    from sqlstream.connectors.worker_calls import Workers
    from sqlstream.warehouse.filesystem import Filesystem

# More rows than a split has whose number of rows is not known.
MANY_ROWS = 1 << 32
# The file, in a sink's folder of records, that holds the job's identity in the table.
_IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What a worker needs to read splits: the paths of the project and the warehouse, and the time of the batch."""

    project: str
    warehouse: str
    time: ProcessingTime = EPOCH


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """The well-formed rows of a split with their numbers, by which a message can name a row.

    `plan` has run `ReadPlan.take`; its rows have the column ROW (`internal_columns`), a number from 0. `places` takes numbers
    that count from 1 (ROW + 1), and maps them to the positions and texts of the rows.
    """

    plan: ReadPlan
    places: Callable[[Sequence[int]], Mapping[int, MalformedRow]]


class TableSource(ABC):
    """A table that jobs read. The driver discovers splits, workers read them. A repeated batch reads the same splits."""

    replay: Replay
    # Why each row counts exactly once, or why not.
    replay_reason: str
    # Whether a job that goes back to a savepoint can read rows again that committed batches have read.
    rewinds: bool
    # What each job owns on a server, such as "replication slot on the server", and cannot share with a fork. None: nothing.
    slot: str | None
    # Columns that order the rows of a batch, oldest first. `read` returns them if its table has them as METADATA columns.
    order: ClassVar[tuple[Column, ...]] = ()
    split_type: ClassVar[type[Any]]
    # The METADATA columns that number the rows of a split: ROW, behind PATH if a number alone does not tell the split of a row
    # (see `first_row`). Without them the rows of a split are numbered as `read` returns them.
    numbering: ClassVar[tuple[Column, ...]] = ()
    # Whether each partition has its own watermark; the minimum is the source's. If so, splits are PartitionSplits,
    # `Discovery.partitions` lists the partitions, and `read` returns a row's partition (`internal_columns.PARTITION`) if its
    # table has it as a METADATA column.
    has_partitions: ClassVar[bool] = False
    # Whether `Discovery.watermarks` provides the watermarks of partitions, in place of the table's WATERMARK expression.
    has_watermarks: ClassVar[bool] = False
    # Whether `bytes` of a split counts bytes of its file. Otherwise it is only a weight, to balance tasks.
    measured: ClassVar[bool] = False

    def __init__(self, table: Table):
        self.table = table

    @property
    def bounded(self) -> bool:
        """Whether reading the table ends by itself."""
        return "source.monitor-interval" not in self.table.options

    def check(self, span: Span | None) -> None:
        """Raise a SqlStreamError unless a job can read this table; `span` is where its query names it."""

    def check_input(self, project: str) -> None:
        """Raise UsageError if the input does not exist. Called before a job starts."""

    # -- on the driver

    def position(self, project: str, data: bytes | None = None) -> Position:
        """Return the position at the table's start, or the one that `Position.to_bytes` encoded as `data`."""
        return Offsets() if data is None else Offsets.from_bytes(data)

    @abstractmethod
    def discovery(self, position: Any, context: DiscoveryContext) -> Discovery:
        """Return the Discovery of the input after `position`, which it moves as it hands out splits."""

    # -- on workers

    def bytes_read(self, splits: Sequence[Any]) -> int | None:
        """Return how many bytes the splits just read had, as stored or sent; None if the source does not count them."""
        return sum(split.bytes for split in splits) if self.measured else None

    def split(self, values: Sequence[Any]) -> Split:
        """Return the split that `Split.to_list` encoded as `values`."""
        split: Split = self.split_type(*values)
        return split

    def located(self, split: Any, context: ReadContext) -> Split:
        """Return the split with the current paths of its files, as the project may have been moved."""
        current: Split = split
        return current

    @abstractmethod
    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        """Return the plan that reads some splits: the table's physical columns, in declared order and with declared types."""

    def take(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        """Return the plan of `read` after `ReadPlan.take`: if malformed rows are skipped, all rows have been read by then."""
        plan = self.read(con, splits, context)
        plan.take(con)
        return plan

    def read_again(
        self, con: duckdb.DuckDBPyConnection, error: duckdb.Error, splits: Sequence[Any], context: ReadContext
    ) -> ReadPlan | None:
        """Return another plan for splits whose plan from `read` failed with `error`; None if the error is final."""
        return None

    def explained(self, error: duckdb.Error, splits: Sequence[Any]) -> DataError | None:
        """Translate DuckDB's error for users; None if the error is not about reading these splits."""
        return None

    def most_rows(self, split: Any) -> int:
        """Return an upper bound of the rows of a split. The greatest ROW is below `first_row` plus this bound."""
        return MANY_ROWS

    def first_row(self, split: Any) -> tuple[str, int]:
        """Return the least (PATH, ROW) of the rows of a split; PATH is "" if `numbering` has no PATH.

        Only sources with `numbering` implement it.
        """
        raise NotImplementedError

    def name_of(self, split: Any) -> str | None:
        """Return the name of a split in messages, such as `file "x.json" of table "t"`; None if splits mean nothing to users."""
        return None

    def place(self, split: Any, number: int) -> str:
        """Return the start of a message about a row of a split, such as `row 3 of file "x.csv" of table "t"`.

        `number` is the row's position among the split's rows, from 1.
        """
        return f'a row of table "{self.table.name}"'

    def malformed_rows(self, splits: Sequence[Any]) -> Iterator[MalformedRow]:
        """Yield the malformed rows of some splits. It reads the splits again, so it is called only if there are such rows."""
        yield from ()

    def malformed(self, row: MalformedRow) -> DataError:
        """Return the error that names a malformed row."""
        message = f'row {row.number} of "{row.path}" of table "{self.table.name}" is malformed'
        return DataError(message, detail=f"{row.reason}: {row.text}")

    def numbered(self, con: duckdb.DuckDBPyConnection, split: Any) -> NumberedRows | None:
        """Return the rows of a split with their numbers; None if rows have no numbers.

        Messages use them to name rows whose event time is out of bounds.
        """
        return None


class TableSink(ABC):
    """A table that jobs write.

    With `overwrites` it takes INSERT OVERWRITE. With `takes_changes` it accepts changelogs. Otherwise it accepts append-only
    results; the hint of the error about a changelog says to write it into `for_changes`. With `replaces` it is upserted: a row
    replaces the one with the same PRIMARY KEY. A subclass may define these attributes as properties, if they depend on the
    table's options.
    """

    delivery: Delivery
    delivery_reason: str
    # What happens to rows written after a savepoint when a job goes back to it. ROWS_REMOVED obliges the sink to remove them.
    rollback: ClassVar[Rollback] = Rollback.ROWS_STAY
    takes_changes: bool = False
    overwrites: ClassVar[bool] = False
    for_changes: str = "a warehouse table (one without a connector)"
    replaces: bool = False

    def __init__(self, table: Table):
        self.table = table

    def check(self, span: Span | None) -> None:
        """Raise a SqlStreamError unless a job can write this table; `span` is where its query names it."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink needs to know of its job. `project` is a path; `records` is a folder in `fs` for the sink's own files.

    `committed` is the number of the last batch committed before the job started, -1 if there is none. `warehouse` is the path of
    the job's warehouse. `workers` are the engine's worker processes; if it has none, the sink starts its own.
    """

    fs: Filesystem
    project: str
    records: str
    committed: int = -1
    job: str = ""
    warehouse: str = ""
    workers: Workers | None = None

    @property
    def has_identity(self) -> bool:
        """Whether `identity` has been called for this job and table."""
        return self.fs.exists(f"{self.records}/{_IDENTITY}")

    def identity(self) -> str:
        """Return the job's unique, permanent name in the table: `<job>-<8 hexadecimal digits>`.

        A job that is dropped and created again, or starts afresh, gets another one. Call it on the driver only: the first call
        writes a file.
        """
        path = f"{self.records}/{_IDENTITY}"
        if not self.has_identity:
            write_sealed(self.fs, path, f"{self.job}-{uuid4().hex[:8]}", durable=True)
        return read_sealed(self.fs, path).strip()


class Writer(ABC):
    """Writes the rows of one task, on a worker."""

    @abstractmethod
    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        """Write `rows`, a SELECT that `con` can run. Return their number, and a list of JSON values for `Committer.commit`.

        The rows must stay invisible until they are committed, as a task may run again.
        """


class Committer(ABC):
    """Makes the rows of each batch visible, on the driver."""

    @abstractmethod
    def commit(self, batch: int, written: Sequence[Any]) -> None:
        """Make the rows of a batch visible, all or none. After a crash a batch may be committed again.

        `written` joins the lists that `Writer.write` returned for the batch; if they are all empty, `commit` is not called.
        """

    def recover(self) -> None:
        """Finish a commit that a crash interrupted, and remove rows that no batch will commit. Called at each start."""

    def committed(self, batch: int) -> None:
        """React to the job's own commit of a batch: the job will write neither this batch nor an earlier one again.

        Called after commits, and at each start, where it may repeat the last call. One call may stand for several batches. An
        exception fails the job, which later continues after the batch.
        """

    def ended(self) -> None:
        """Note that the job has ended for good: its last batch is committed. Called again if it was interrupted."""

    def notices(self) -> Sequence[str]:
        """Return notices for users about what `recover` did."""
        return ()


class WorkerSink(TableSink):
    """A sink that tasks write on workers. The driver makes their rows visible, a batch at a time."""

    @abstractmethod
    def writer(self, context: SinkContext) -> Writer:
        """Return the writer of one task. Called on a worker."""

    @abstractmethod
    def committer(self, context: SinkContext) -> Committer:
        """Return the committer of one run of the job. Called on the driver, which then calls `recover`."""

    @classmethod
    def discard(cls, context: SinkContext) -> None:
        """Delete what a dropped job has written into its tables, as far as the sink's records say."""


class BatchWriter(ABC):
    """Writes the batches of one run of a job, on the driver."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the rows of a batch. After a crash the batch may come again, with the same number and the same rows.

        A sink that stores `batch.number` with the rows, in one transaction, can skip a batch that it has.
        """

    def recover(self) -> None:
        """Look up which batches the table has, and finish or undo a write that a crash interrupted. Called at each start."""

    def committed(self, batch: int) -> None:
        """React to the job's commit of a batch, see `Committer.committed`. The thread may be another one than for `write`."""

    def notices(self) -> Sequence[str]:
        """Return notices for users about what `recover` did."""
        return ()

    def close(self) -> None:
        """Close connections and other resources."""


class DriverSink(TableSink):
    """A sink that the driver writes. Tasks store the rows in Parquet files of the job, which the driver reads as a `Batch`."""

    @abstractmethod
    def open(self, context: SinkContext) -> BatchWriter:
        """Return the writer of one run of the job. Raises a SqlStreamError if the table cannot be written."""


class SessionSink(TableSink):
    """A sink whose rows go to the session that started the job, which shows them."""


class LookupFunction(Protocol):
    """Returns the rows of a table that match some keys, with the table's physical columns.

    `keys` has a row per key, and the table's key columns with their types. It has no NULLs and no duplicates. The result may also
    contain rows of other keys, which callers drop.
    """

    def __call__(self, keys: pa.Table) -> pa.Table: ...


class TableLookup(ABC):
    """A table in which jobs look up rows by key. A lookup sees the table as it is at that moment."""

    def __init__(self, table: Table):
        self.table = table

    @abstractmethod
    def function(self, *, warehouse: str, project: str) -> LookupFunction:
        """Return the lookup function, which a worker process keeps for later batches."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The current rows of a table.

    `relation` has the table's physical columns, and `paths` are the files and folders that it reads. `streams` maps names to
    Arrow streams, and `functions` names to functions from a text to a text: a connection that runs the SQL must have registered
    them under these names.
    """

    relation: Relation
    paths: tuple[str, ...] = ()
    streams: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[[str], str]] = field(default_factory=dict)

    def register(self, con: duckdb.DuckDBPyConnection) -> None:
        """Register the streams and functions in a connection."""
        from duckdb.sqltypes import VARCHAR

        for name, stream in self.streams.items():
            con.register(name, stream)
        for name, function in self.functions.items():
            con.create_function(name, function, [VARCHAR], VARCHAR)


class Reach(Enum):
    """What tables of a connector can read or write, besides the files of their job and its warehouse.

    `sqlstream serve` decides by it which tables SQL of the role `submit` may declare.
    """

    # Nothing: rows are generated, shown or dropped.
    NOTHING = "nothing"
    # The file that the option `path` names, relative to the project.
    FILE = "file"
    # What the option `path` names: a folder, a file or a glob, in the home folder if it begins with "~", or a URI of a store.
    STORE = "store"
    # Servers, other paths, or a user's code.
    ELSEWHERE = "elsewhere"


class Connector:
    """A kind of table: a table belongs to the connector that its option `connector` names."""

    name: ClassVar[str]
    # A line for the manual.
    summary: ClassVar[str]
    # An admin alone may declare tables that reach elsewhere.
    reach: ClassVar[Reach] = Reach.ELSEWHERE
    options: ClassVar[tuple[TableOption, ...]] = ()
    # Whether tables may have options that no connector or format declares, as a user's class reads them.
    any_options: ClassVar[bool] = False
    # The formats of its tables. If there are any, tables also have the option `format` and the options of their format.
    formats: ClassVar[tuple[str, ...]] = ()
    needs_format: ClassVar[bool] = True
    # Whether a format decodes single values (messages), not whole files.
    of_values: ClassVar[bool] = False
    # Whether rows may be changes, if the table names a column of operations.
    changelogs: ClassVar[bool] = False
    # The keys that METADATA columns may be FROM, each with a line for the manual.
    metadata: ClassVar[Mapping[str, str]] = {}
    # Whether tables may be PARTITIONED BY columns.
    partitioned: ClassVar[bool] = False
    # The tables whose columns it can infer, in words for a hint.
    infers: ClassVar[str] = ""

    source_type: ClassVar[type[TableSource] | None] = None
    sink_type: ClassVar[type[TableSink] | None] = None
    lookup_type: ClassVar[type[TableLookup] | None] = None

    def source(self, table: Table) -> TableSource | None:
        """Return the table as a source; None if jobs cannot read it."""
        return self.source_type(table) if self.source_type else None

    def sink(self, table: Table) -> TableSink | None:
        """Return the table as a sink; None if jobs cannot write it."""
        return self.sink_type(table) if self.sink_type else None

    def lookup(self, table: Table) -> TableLookup | None:
        """Return the table as a lookup table; None if jobs cannot look up rows in it."""
        return self.lookup_type(table) if self.lookup_type else None

    def validate(self, table: Table) -> None:
        """Raise BindError or UnsupportedError unless the table's options and columns fit together.

        It has been checked before that each option exists, and that its value has the option's type.
        """

    def own_options(self, table: Table) -> Sequence[TableOption]:
        """Return the options that depend on the table, such as options per column."""
        return ()

    def prepare(self, table: Table) -> Table:
        """Return a declared table ready for use. Raises a SqlStreamError if something it needs, like a package, is missing."""
        return table

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        """Return the columns of a table that declares none, as its source has them; None if the connector cannot infer them."""
        return None

    def can_infer(self, table: Table) -> bool:
        """Whether `columns` may succeed for this table at another time, such as when its server is up."""
        return False

    def identifying_options(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options that identify the input: if one of them changes, the job that reads the table is another job.

        `left_out` are the table's options without the mutable ones; by default all of them identify the input.
        """
        return left_out

    def snapshot(self, con: duckdb.DuckDBPyConnection, table: Table, project: str) -> Snapshot | None:
        """Return the current rows of a table, for state queries; None if state queries cannot read it."""
        return None

    def source_promises(self) -> Sequence[Guarantee]:
        """Return the guarantee of each kind of source among its tables, under the kind's name, for the manual."""
        kind = self.source_type
        return [Guarantee(kind.replay.times, kind.replay_reason, self.shown)] if kind else []

    def sink_promises(self) -> Sequence[Guarantee]:
        """Return the guarantee of each kind of sink among its tables, under the kind's name, for the manual."""
        kind = self.sink_type
        return [Guarantee(kind.delivery.times, kind.delivery_reason, self.shown)] if kind else []

    @property
    def shown(self) -> str:
        """The name as the manual shows it."""
        return f"`{self.name}`"

    @property
    def has_snapshots(self) -> bool:
        """Whether state queries can read its tables."""
        return type(self).snapshot is not Connector.snapshot
