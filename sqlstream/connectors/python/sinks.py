"""The sinks of the `python` connector: how the engine's calls become calls of users' classes.

A write-ahead sink stores the rows of a batch in the job's folder until the batch is committed. A two-phase sink records the
tokens of the transactions that tasks have prepared, before the batch is committed. The driver commits the transactions of
committed batches, even after a crash, and aborts the transactions of a batch that will be repeated.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import (
    BatchWriter,
    Committer,
    DriverSink,
    SinkContext,
    TableSink,
    WorkerSink,
    Writer,
)
from sqlstream.connectors.python.classes import AnySink, Sink, TwoPhaseSink, UpsertSink, WriteAheadSink
from sqlstream.connectors.python.instances import errors, finished, kind, sink
from sqlstream.duck.sql import Select, typed
from sqlstream.errors import BindError, Span
from sqlstream.storage.zsets import WEIGHT
from sqlstream.warehouse.records import read_sealed, write_sealed

if TYPE_CHECKING:
    import duckdb

    from sqlstream.connectors.batch import Batch

_AT_ONCE = 100_000
_PROMISES: Mapping[type[AnySink], tuple[Delivery, str]] = {
    Sink: (
        Delivery.AT_LEAST_ONCE,
        "the last batch may come again; exactly once if `write` recognises its number",
    ),
    UpsertSink: (Delivery.IDEMPOTENT, "if `write` replaces and deletes rows by their keys"),
    WriteAheadSink: (
        Delivery.AT_LEAST_ONCE,
        "rows are sent when their batch is committed, those of the last batches maybe again; "
        "exactly once if the other side recognises the number of a batch",
    ),
    TwoPhaseSink: (Delivery.TRANSACTIONAL, "if a prepared transaction can be committed for as long as the job is down"),
}
_IDEMPOTENT = Delivery.IDEMPOTENT, "if rows of a batch that are written again change nothing"


def promise(of: type[AnySink]) -> tuple[Delivery, str]:
    """Return the delivery guarantee of a user's sink class, and its reason.

    >>> promise(UpsertSink)[0].times
    'exactly once'
    """
    base = next(base for base in _PROMISES if issubclass(of, base))
    return _IDEMPOTENT if of.idempotent and base in (Sink, WriteAheadSink) else _PROMISES[base]


class _PythonSink(TableSink):
    """A table that a user's sink class writes, with the properties of the class."""

    rollback = Rollback.ROWS_STAY

    @property
    def kind(self) -> type[AnySink]:
        sink_class = kind(self.table)
        assert issubclass(sink_class, AnySink)
        return sink_class

    @property
    def delivery(self) -> Delivery:  # type: ignore[override]
        return promise(self.kind)[0]

    @property
    def delivery_reason(self) -> str:  # type: ignore[override]
        return promise(self.kind)[1]

    @property
    def takes_changes(self) -> bool:  # type: ignore[override]
        return self.kind.takes_changes

    @property
    def replaces(self) -> bool:  # type: ignore[override]
        return issubclass(self.kind, UpsertSink)

    def check(self, span: Span | None) -> None:
        if self.replaces and not self.table.primary_key:
            message = f'table "{self.table.name}" needs a PRIMARY KEY: its class "{self.table.options["class"]}" is an UpsertSink'
            raise BindError(message, self.table.span, hint="Declare PRIMARY KEY (..) NOT ENFORCED over its columns.")


class PythonSink(_PythonSink, DriverSink):
    """A table that a user's Sink, UpsertSink or WriteAheadSink writes."""

    def open(self, context: SinkContext) -> BatchWriter:
        writer = WaitingBatches if issubclass(self.kind, WriteAheadSink) else PythonWriter
        return writer(self.table, context)


class PythonTransactions(_PythonSink, WorkerSink):
    """A table that a user's TwoPhaseSink writes."""

    def writer(self, context: SinkContext) -> Writer:
        return TransactionWriter(self.table, context)

    def committer(self, context: SinkContext) -> Committer:
        return TransactionCommitter(self.table, context)


class PythonWriter(BatchWriter):
    """Passes batches to a user's Sink or UpsertSink."""

    def __init__(self, table: Table, context: SinkContext):
        self._table = table
        with errors(table):
            self._sink = sink(table, context.identity())
        # `committed` and `write` may be called by different threads.
        self._calling = threading.Lock()

    def write(self, batch: Batch) -> None:
        if isinstance(self._sink, UpsertSink):
            tables = [batch.table(batch.upserts()), batch.table(batch.deletes())]
        else:
            tables = [_rows(self._sink, batch)]
        with self._calling, errors(self._table):
            finished([self._sink.write(batch.number, *tables)])

    def committed(self, batch: int) -> None:
        with self._calling, errors(self._table):
            finished([self._sink.on_commit(batch)])


class WaitingBatches(BatchWriter):
    """Stores the rows of each batch until it is committed, and then passes them to a user's WriteAheadSink."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._fs, self._folder = table, context.fs, f"{context.records}/waiting"
        self._committed = context.committed
        with errors(table):
            self._sink = sink(table, context.identity())

    def recover(self) -> None:
        for number in self._waiting():
            # The batch will be repeated, maybe with other rows.
            if number > self._committed:
                self._fs.delete(self._path(number))

    def write(self, batch: Batch) -> None:
        rows = _rows(self._sink, batch)
        with (
            self._fs.create(self._path(batch.number), durable=True) as file,
            pa.ipc.new_stream(file, rows.schema) as stream,
        ):
            stream.write_table(rows)

    def committed(self, batch: int) -> None:
        for number in self._waiting():
            if number <= batch:
                with self._fs.open_bytes(self._path(number)) as file, pa.ipc.open_stream(file) as stream:
                    rows = stream.read_all()
                with errors(self._table):
                    finished([self._sink.send(number, rows)])
                self._fs.delete(self._path(number))
        with errors(self._table):
            finished([self._sink.on_commit(batch)])

    def _waiting(self) -> list[int]:
        return [int(name.partition(".")[0]) for name in self._fs.list(self._folder)]

    def _path(self, batch: int) -> str:
        return f"{self._folder}/{batch:010d}.arrow"


class TransactionWriter(Writer):
    """Writes the rows of a task in a transaction of a user's TwoPhaseSink, and prepares it; its token goes to the committer."""

    def __init__(self, table: Table, context: SinkContext):
        self._table = table
        # The driver has already created the identity.
        self._sink: TwoPhaseSink = sink(table, context.identity())

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        own = self._sink
        weight = ""
        if own.takes_changes:
            weighed = WEIGHT in con.sql(rows).columns
            weight = f", {WEIGHT}" if weighed else f", CAST(1 AS BIGINT) AS {WEIGHT}"
        reader = con.sql(f"SELECT {typed(columns)}{weight} FROM ({rows})").to_arrow_reader(_AT_ONCE)
        count, transaction = 0, None
        try:
            for part in filter(len, reader):
                with errors(self._table):
                    if not count:
                        transaction = own.begin(batch, f"{own.identity}-{batch}-{uuid4().hex[:8]}")
                        [transaction] = finished([transaction])
                    count += part.num_rows
                    finished([own.write(transaction, pa.Table.from_batches([part]))])
            if not count:
                return 0, []
            with errors(self._table):
                [token] = finished([own.prepare(transaction)])
        except Exception:
            if count:
                # The first error is raised, not one of the rollback.
                with contextlib.suppress(Exception):
                    finished([own.rollback(transaction)])
            raise
        return count, [token]


class TransactionCommitter(Committer):
    """Records the tokens of a batch in `commit`, and commits the transactions in `committed`, after the job's own commit."""

    def __init__(self, table: Table, context: SinkContext):
        self._table, self._fs, self._folder = table, context.fs, f"{context.records}/prepared"
        self._committed = context.committed
        with errors(table):
            self._sink: TwoPhaseSink = sink(table, context.identity())

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        write_sealed(self._fs, self._path(batch), json.dumps(list(written)), durable=True)

    def recover(self) -> None:
        recorded = {number: self._tokens(number) for number in self._recorded()}
        with errors(self._table):
            committed_tokens = [t for number, tokens in recorded.items() if number <= self._committed for t in tokens]
            finished([self._sink.recover(committed_tokens)])
            finished([self._sink.abort(t) for n, tokens in recorded.items() if n > self._committed for t in tokens])
        for number in recorded:
            if number > self._committed:
                self._fs.delete(self._path(number))

    def committed(self, batch: int) -> None:
        for number in self._recorded():
            if number <= batch:
                with errors(self._table):
                    finished([self._sink.commit(token) for token in self._tokens(number)])
                self._fs.delete(self._path(number))
        with errors(self._table):
            finished([self._sink.on_commit(batch)])

    def _recorded(self) -> list[int]:
        return [int(name.partition(".")[0]) for name in self._fs.list(self._folder)]

    def _tokens(self, batch: int) -> list[Any]:
        tokens: list[Any] = json.loads(read_sealed(self._fs, self._path(batch)))
        return tokens

    def _path(self, batch: int) -> str:
        return f"{self._folder}/{batch:010d}.json"


def _rows(own: AnySink, batch: Batch) -> pa.Table:
    return batch.table(batch.changes() if own.takes_changes else batch.rows())
