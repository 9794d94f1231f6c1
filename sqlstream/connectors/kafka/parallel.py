"""A topic with several writers: each writes its part of a batch in a worker process, in a transaction of its own.

The transactions of a batch are not atomic together: after a crash, some parts may be committed and others not. So the files with
the batch's rows, and the number of writers, are recorded before the first part is sent. When the job starts again, it first
finishes such a batch from the files, with the same division.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import BatchWriter, SinkContext
from sqlstream.connectors.kafka.messages import MessageLayout
from sqlstream.connectors.kafka.parts import PartState, TopicPart, open_part, write_part
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.connectors.kafka.sink_options import ID_PREFIX, PARALLELISM
from sqlstream.connectors.kafka.writing import TopicTransactionWriter
from sqlstream.connectors.worker_calls import Workers
from sqlstream.connectors.worker_processes import WorkerProcesses
from sqlstream.errors import JobError
from sqlstream.warehouse.paths import BucketedPaths
from sqlstream.warehouse.records import GONE, damage, read_sealed, write_sealed

# Files in the sink's folder of records: the number of writers, and the batch that they are writing.
_DIVISION, _PENDING = "writers.json", "pending.json"
_MODULES = ("confluent_kafka", "sqlstream.connectors.kafka.parts")


class PartedWriter(BatchWriter):
    """Writes batches with several writers in worker processes.

    With an `identity`, each writer has the transactional id `<identity>-<number>`. Without one there are no transactions, and a
    repeated batch is written again.
    """

    def __init__(self, table: Table, upserts: bool, context: SinkContext, writers: int, identity: str | None = None):
        self._committed = context.committed
        self._workers: Workers = context.workers or WorkerProcesses(_MODULES)
        self._parts = [
            TopicPart(
                table,
                upserts,
                number,
                writers,
                f"{identity}-{number}" if identity else None,
                context.warehouse,
                context.project,
                f"{context.records}/writers/{number}",
            )
            for number in range(writers)
        ]
        self._states: list[PartState] = []
        self._notices: list[str] = []

    @property
    def lasts(self) -> Sequence[int]:
        """The last committed batch of each writer, -1 for none."""
        return [state.last for state in self._states]

    def recover(self) -> None:
        self._states = self._workers.run([partial(open_part, part, self._committed) for part in self._parts])
        self._notices = [notice for state in self._states for notice in state.notices]

    def write(self, batch: Batch) -> None:
        calls = [
            partial(write_part, part, batch, state.client)
            for part, state in zip(self._parts, self._states, strict=True)
        ]
        self._states = self._workers.run(calls)

    def notices(self) -> Sequence[str]:
        return self._notices

    def close(self) -> None:
        # All parts of finished batches are sent; an unfinished batch comes again.
        self._workers.close()


@dataclass(frozen=True, slots=True)
class Division:
    """The number of writers of a table, and the last batch that an earlier number of writers committed, -1 for none."""

    writers: int = 1
    before: int = -1


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """The record of a batch that only some of the `writers` may have committed.

    `files` are the names of the files with its rows; `columns` and `order` have (name, type) of each column.
    """

    number: int
    writers: int
    files: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    is_changing: bool
    key: tuple[str, ...]
    order: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, batch: Batch, writers: int) -> PendingBatch:
        """Return the record of a batch that `writers` writers write."""
        files = tuple(path.rpartition("/")[2] for path in batch.paths)
        columns, order = (tuple((c.name, c.type) for c in some) for some in (batch.columns, batch.order))
        return cls(batch.number, writers, files, columns, batch.is_changing, batch.key, order)

    def batch(self, paths: Sequence[str]) -> Batch:
        """Return the batch again; `paths` are the paths of its files, as DuckDB takes them."""
        columns, order = (tuple(Column(*c) for c in some) for some in (self.columns, self.order))
        return Batch(self.number, columns, tuple(paths), self.is_changing, tuple(self.key), order)


class DividedWriter(BatchWriter):
    """Writes batches exactly once with `writers` writers; a run may have another number. A single writer runs on the driver."""

    def __init__(self, table: Table, upserts: bool, context: SinkContext, writers: int):
        self._table, self._upserts, self._context, self._writers = table, upserts, context, writers
        # A job without an identity in the table has written nothing.
        self._is_new = not context.has_identity
        prefix = table.options.get(ID_PREFIX.name, ID_PREFIX.default)
        self._identity = f"{prefix}-{context.identity()}"
        self._writer: PartedWriter | TopicTransactionWriter | None = None
        self._division = Division()

    @staticmethod
    def knows(context: SinkContext) -> bool:
        """Whether the job has ever had several writers for the table."""
        return context.fs.exists(f"{context.records}/{_DIVISION}")

    def recover(self) -> None:
        """Open the writers, and finish a pending batch; a batch is finished with the number of writers that began it.

        Raises DamageError if a file with rows of the pending batch is gone, and JobError if a batch is committed in part, and
        cannot be finished.
        """
        self._division = self._read_division()
        if self._division.writers != self._writers:
            before = self._division.before
            if not self._is_new:
                self._open(self._division.writers)
                before = max(before, self._last_of_all())
                self.close()
            self._division = Division(self._writers, before)
            self._write(_DIVISION, self._division)
        self._open(self._writers)

    def _open(self, writers: int) -> None:
        """Open `writers` writers, which take over the transactional ids of the last run, and finish its pending batch."""
        if writers == 1:
            layout, topic = MessageLayout(self._table, self._upserts), Topic(self._table)
            progress = TopicProgress(self._table, self._context)
            self._writer = TopicTransactionWriter(layout, topic, self._identity, progress)
        else:
            self._writer = PartedWriter(self._table, self._upserts, self._context, writers, self._identity)
        self._writer.recover()
        pending = self._pending()
        if pending is None or min(self._writer.lasts) >= pending.number:
            return
        fs, folder = self._context.fs, BucketedPaths(self._context.records).data(0)
        paths = [f"{folder}/{name}" for name in pending.files]
        for path in paths:
            if not fs.exists(path):
                hint = "Start the job with --fresh to write all rows again."
                raise damage(path, GONE, hint=hint)
        self._writer.write(pending.batch([fs.path_for_duckdb(path) for path in paths]))
        fs.delete_all(paths)

    def _pending(self) -> PendingBatch | None:
        """Return the batch that was not finished; None if there is none."""
        try:
            pending = PendingBatch(**json.loads(self._read(_PENDING)))
        except FileNotFoundError:
            return None
        division = self._division
        is_open = pending.number > max(self._context.committed, division.before) and pending.writers == division.writers
        return pending if is_open else None

    def _last_of_all(self) -> int:
        """Return the last batch that all writers have committed.

        Raises JobError if only some of them have committed the last one, and its rows are gone: another number of writers would
        divide it differently.
        """
        assert self._writer is not None
        lasts = self._writer.lasts
        if min(lasts) == max(lasts) or max(lasts) <= self._context.committed:
            return max(lasts)
        raise JobError(
            f'table "{self._table.name}": batch {max(lasts)} is in topic "{self._table.options["topic"]}" but for the parts '
            "of some writers, and its rows are gone",
            self._table.option_span(PARALLELISM.name, value=True),
            hint=f"Set '{PARALLELISM.name}' = '{self._division.writers}', as it was, until the job has written a batch.",
        )

    def write(self, batch: Batch) -> None:
        """Write a batch, unless it is committed; with several writers, record it first."""
        assert self._writer is not None
        if batch.number <= max(self._division.before, min(self._writer.lasts)):
            return
        if self._writers > 1:
            folder = BucketedPaths(self._context.records).data(0)
            pending = PendingBatch.of(batch, self._writers)
            self._context.fs.make_durable([f"{folder}/{name}" for name in pending.files])
            self._write(_PENDING, pending)
        self._writer.write(batch)

    def _read_division(self) -> Division:
        try:
            return Division(**json.loads(self._read(_DIVISION)))
        except FileNotFoundError:
            return Division()

    def _read(self, name: str) -> str:
        return read_sealed(self._context.fs, f"{self._context.records}/{name}")

    def _write(self, name: str, record: Division | PendingBatch) -> None:
        write_sealed(self._context.fs, f"{self._context.records}/{name}", json.dumps(asdict(record)), durable=True)

    def notices(self) -> Sequence[str]:
        return self._writer.notices() if self._writer is not None else ()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
