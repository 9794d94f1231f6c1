"""What a connector is: the classes that the connectors of this package derive from, and those of other packages.

A connector says which options its tables have, and makes of a table a source (a job reads it), a sink (a job writes it) or a
lookup (a job looks up rows in it by keys), each a class of its own: it has those that it can be. It is known by its place in
`registry`, or by an entry point of another package.
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

# In a sink's folder of records: the name that it has in its table.
_IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Where a worker reads: the project's folder, the warehouse, and the time at which the batch was decided."""

    project: str
    warehouse: str
    time: ProcessingTime = EPOCH


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """The rows of a split that can be read, with their numbers (`internal_columns.ROW`), and where the nth ones stand."""

    plan: ReadPlan
    places: Callable[[Sequence[int]], Mapping[int, MalformedRow]]


class TableSource(ABC):
    """A table that jobs read. The driver discovers splits, workers read them; a batch that is repeated reads the same ones."""

    replay: Replay
    # Why a row counts once, or why not.
    replay_reason: str
    # Whether rows that committed batches have read can be read again, as a job needs that goes back to a savepoint.
    rewinds: bool
    # What each job has of its own on a server, such as "replication slot on the server"; no fork can share it. None: nothing.
    slot: str | None
    # Columns that say which of two rows of a batch came later; `read` gives them, as metadata, where they are asked for.
    order: ClassVar[tuple[Column, ...]] = ()
    split_type: ClassVar[type[Any]]
    # Whether each partition has a watermark of its own, of which the least counts. Then splits are PartitionSplits, `read` gives
    # the name of the partition as metadata where it is asked for (`internal_columns.PARTITION`), and `Discovery.partitions` says
    # which there are.
    has_partitions: ClassVar[bool] = False
    # Whether `Discovery.watermarks` says how far partitions are, in place of the expression that the table declares.
    has_watermarks: ClassVar[bool] = False
    # Whether the `bytes` of splits are those of files; else they only say how much work a split is.
    measured: ClassVar[bool] = False

    def __init__(self, table: Table):
        self.table = table

    @property
    def bounded(self) -> bool:
        """Whether reading the table comes to an end by itself."""
        return "source.monitor-interval" not in self.table.options

    def check(self, span: Span | None) -> None:
        """Raise unless a job can read this table; `span` is where its query names it."""

    def check_input(self, project: str) -> None:
        """Raise UsageError when there is nothing to read, before a job starts."""

    # -- on the driver

    def position(self, project: str, data: bytes | None = None) -> Position:
        """Return the position of a table that was not read yet, or the one whose `to_bytes` this is."""
        return Offsets() if data is None else Offsets.from_bytes(data)

    @abstractmethod
    def discovery(self, position: Any, context: DiscoveryContext) -> Discovery:
        """Return what finds the input, from a position on."""

    # -- on workers

    def bytes_read(self, splits: Sequence[Any]) -> int | None:
        """Return how many bytes splits had that were read just now, as they are stored or sent; None where nobody counts."""
        return sum(split.bytes for split in splits) if self.measured else None

    def split(self, values: Sequence[Any]) -> Split:
        """Return the split whose `to_list` this is."""
        found: Split = self.split_type(*values)
        return found

    def located(self, split: Any, context: ReadContext) -> Split:
        """Return a split with the paths that its files have now: a project may be moved."""
        found: Split = split
        return found

    @abstractmethod
    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        """Return how to read some splits: the table's physical columns, in their order."""

    def take(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        """Return what `read` does, once the rows were taken where malformed ones are skipped."""
        plan = self.read(con, splits, context)
        plan.take(con)
        return plan

    def read_again(
        self, con: duckdb.DuckDBPyConnection, error: duckdb.Error, splits: Sequence[Any], context: ReadContext
    ) -> ReadPlan | None:
        """Return another way to read splits that `read` fails at, with DuckDB's error; None where there is none."""
        return None

    def explained(self, error: duckdb.Error, splits: Sequence[Any]) -> DataError | None:
        """Return DuckDB's error of reading some splits as people should see it, None when it is about something else."""
        return None

    def name_of(self, split: Any) -> str | None:
        """Return what messages call a split, such as `file "x.json" of table "t"`; None where people know no splits."""
        return None

    def place(self, split: Any, number: int) -> str:
        """Return where the nth row of a split stands, counted from 1, as a message begins with it."""
        return f'a row of table "{self.table.name}"'

    def malformed_rows(self, splits: Sequence[Any]) -> Iterator[MalformedRow]:
        """Yield the rows that cannot be read as the table declares, when there are some: splits are read again."""
        yield from ()

    def malformed(self, row: MalformedRow) -> DataError:
        """Return the error that names a malformed row."""
        message = f'row {row.number} of "{row.path}" of table "{self.table.name}" is malformed'
        return DataError(message, detail=f"{row.reason}: {row.text}")

    def numbered(self, con: duckdb.DuckDBPyConnection, split: Any) -> NumberedRows | None:
        """Return the rows of a split with their numbers, None where rows have none: to find those with impossible times."""
        return None


class TableSink(ABC):
    """A table that jobs write. With `takes_changes` it takes changelogs, else only append-only results; then `for_changes` says
    into what a changelog can be written.

    With `replaces` a row takes the place of the one that has its PRIMARY KEY. What a class says of these, a property may say of
    a table by its options.
    """

    delivery: Delivery
    delivery_reason: str
    # What becomes of rows after a savepoint. A sink that does not remove them must not say that it does.
    rollback: ClassVar[Rollback] = Rollback.ROWS_STAY
    takes_changes: bool = False
    for_changes: str = "a warehouse table (one without a connector)"
    replaces: bool = False

    def __init__(self, table: Table):
        self.table = table

    def check(self, span: Span | None) -> None:
        """Raise unless a job can write this table; `span` is where its query names it."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Where a job writes a table: the project's folder, and a folder of the job's own for records about what was written.

    `committed` is the last batch that the job had committed when it started, -1 before the first. `warehouse` is that of the job,
    and `workers` are those of its engine; an engine without any leaves it to the sink to start some.
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
        """Whether the job has a name in the table already."""
        return self.fs.exists(f"{self.records}/{_IDENTITY}")

    def identity(self) -> str:
        """Return a name that this job has in the table for good, and no other job has: `<job>-<8 hexadecimal digits>`.

        A job that was dropped, or starts afresh, gets another one. Call it on the driver.
        """
        path = f"{self.records}/{_IDENTITY}"
        if not self.has_identity:
            write_sealed(self.fs, path, f"{self.job}-{uuid4().hex[:8]}", durable=True)
        return read_sealed(self.fs, path).strip()


class Writer(ABC):
    """What a task writes with."""

    @abstractmethod
    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[Any]]:
        """Write the rows of a SELECT; return their number, and what the committer must know, as JSON can hold it.

        Nobody may see the rows before they are committed: a task may be run again.
        """


class Committer(ABC):
    """What the driver makes the rows of a batch visible with."""

    @abstractmethod
    def commit(self, batch: int, written: Sequence[Any]) -> None:
        """Make visible what the tasks of a batch wrote, all of it or nothing. A batch may be committed again after a crash."""

    def recover(self) -> None:
        """Finish what a process that died was committing, and remove what nobody will commit."""

    def committed(self, batch: int) -> None:
        """Learn that the job has committed a batch, and all before it: none of them comes again.

        Called after commits, and at a start, then maybe with a batch that was told before. One call may stand for several
        batches. A job whose sink raises here fails, and continues behind the batch.
        """

    def notices(self) -> Sequence[str]:
        """Return what users should know of what `recover` did."""
        return ()


class WorkerSink(TableSink):
    """A sink that tasks write; what they wrote is made visible on the driver, a batch at a time."""

    @abstractmethod
    def writer(self, context: SinkContext) -> Writer: ...

    @abstractmethod
    def committer(self, context: SinkContext) -> Committer: ...

    @classmethod
    def discard(cls, context: SinkContext) -> None:
        """Delete what a job wrote that is dropped, as its records say."""


class BatchWriter(ABC):
    """What the driver writes the batches of a job with, from the job's start to its end."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the rows of a batch. It may come again after a crash, with the same number and the same rows.

        A sink that stores `batch.number` with the rows, in one transaction, can leave out a batch that it has.
        """

    def recover(self) -> None:
        """Find out what the table has of the job, and finish or undo what a process that died was writing."""

    def committed(self, batch: int) -> None:
        """Learn that the job has committed a batch, as a `Committer` does. It may be called in another thread than `write`."""

    def notices(self) -> Sequence[str]:
        """Return what users should know of what `recover` did."""
        return ()

    def close(self) -> None:
        """Let go of what is held open."""


class DriverSink(TableSink):
    """A sink that is written on the driver: rows travel through files of the job."""

    @abstractmethod
    def open(self, context: SinkContext) -> BatchWriter:
        """Return what a job that starts, or goes on, writes its batches with. Raises what is wrong with the table."""


class SessionSink(TableSink):
    """A sink whose rows go to the session that started the job, which shows them."""


class LookupFunction(Protocol):
    """Returns the rows whose columns have the values of some keys, with the table's physical columns.

    `keys` are columns of the table with their types; none is NULL, no two rows are equal. Rows of other keys do no harm.
    """

    def __call__(self, keys: pa.Table) -> pa.Table: ...


class TableLookup(ABC):
    """A table in which jobs look up rows by keys, as they are at that moment."""

    def __init__(self, table: Table):
        self.table = table

    @abstractmethod
    def function(self, *, warehouse: str, project: str) -> LookupFunction:
        """Return what looks up rows; it is kept as long as a worker lives."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows that a table has now, as FROM-able SQL with its physical columns, and the paths that reading them opens.

    `streams` are streams of Arrow that must be registered, by these names, in a connection that runs the SQL.
    """

    relation: str
    paths: tuple[str, ...] = ()
    streams: Mapping[str, Any] = field(default_factory=dict)


class Reach(Enum):
    """What tables of a connector read or write outside of their job and its warehouse.

    By it `sqlstream serve` decides which tables SQL of the role `submit` may declare.
    """

    # Nothing: rows are generated, shown or dropped.
    NOTHING = "nothing"
    # The file that the option `path` names, relative to the project.
    FILE = "file"
    # What the option `path` names: a folder, a file or a glob, in the home folder if it begins with "~", or a URI of a store.
    STORE = "store"
    # Servers, other paths, or code of the user's.
    ELSEWHERE = "elsewhere"


class Connector:
    """A kind of tables, by the name that they give as their `connector`."""

    name: ClassVar[str]
    # A line for the manual.
    summary: ClassVar[str]
    # An admin alone may declare tables that reach elsewhere.
    reach: ClassVar[Reach] = Reach.ELSEWHERE
    options: ClassVar[tuple[TableOption, ...]] = ()
    # Whether options that nobody knows go to a class of the user's.
    any_options: ClassVar[bool] = False
    # The formats that its rows may have; where there are some, `format` and the format's own are options, too.
    formats: ClassVar[tuple[str, ...]] = ()
    needs_format: ClassVar[bool] = True
    # Whether formats get values, not files.
    of_values: ClassVar[bool] = False
    # Whether rows may be changes, where a column says so.
    changelogs: ClassVar[bool] = False
    # What METADATA columns may be FROM, with a line for the manual.
    metadata: ClassVar[Mapping[str, str]] = {}
    # Whether tables may be PARTITIONED BY columns.
    partitioned: ClassVar[bool] = False
    # Of which tables it knows the columns without a declaration, as a hint says it.
    infers: ClassVar[str] = ""

    source_type: ClassVar[type[TableSource] | None] = None
    sink_type: ClassVar[type[TableSink] | None] = None
    lookup_type: ClassVar[type[TableLookup] | None] = None

    def source(self, table: Table) -> TableSource | None:
        """Return a table as a source, None where it is none."""
        return self.source_type(table) if self.source_type else None

    def sink(self, table: Table) -> TableSink | None:
        """Return a table as a sink, None where it is none."""
        return self.sink_type(table) if self.sink_type else None

    def lookup(self, table: Table) -> TableLookup | None:
        """Return a table as one in which rows are looked up, None where it is none."""
        return self.lookup_type(table) if self.lookup_type else None

    def validate(self, table: Table) -> None:
        """Raise BindError or UnsupportedError for what options declare that exist and have the right types."""

    def own_options(self, table: Table) -> Sequence[TableOption]:
        """Return the options that depend on the table, such as those of its columns."""
        return ()

    def prepare(self, table: Table) -> Table:
        """Return a declared table ready for use. Raises when what it needs, such as a package, is not there."""
        return table

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        """Return the columns of a table that declares none, None when the connector does not know them."""
        return None

    def can_infer(self, table: Table) -> bool:
        """Whether `columns` may know those of a table like this at another time."""
        return False

    def identity(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of some options that say which job reads a table: all but what may change while the job lives."""
        return left_out

    def snapshot(self, con: duckdb.DuckDBPyConnection, table: Table, project: str) -> Snapshot | None:
        """Return the rows that a table has now, for queries of state; None where only jobs read it."""
        return None

    def source_promises(self) -> Sequence[Guarantee]:
        """Return how often a row counts that a job reads of its tables, for the manual: of each kind of them, by its name."""
        kind = self.source_type
        return [Guarantee(kind.replay.times, kind.replay_reason, self.shown)] if kind else []

    def sink_promises(self) -> Sequence[Guarantee]:
        """Return how often a row arrives that a job writes into its tables, for the manual: of each kind of them, by its name."""
        kind = self.sink_type
        return [Guarantee(kind.delivery.times, kind.delivery_reason, self.shown)] if kind else []

    @property
    def shown(self) -> str:
        """The name as the manual shows it."""
        return f"`{self.name}`"

    @property
    def has_snapshots(self) -> bool:
        return type(self).snapshot is not Connector.snapshot
