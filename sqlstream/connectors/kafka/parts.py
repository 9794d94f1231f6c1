"""One of several writers of a topic, in a worker process: it writes its part of each batch, with its own client and progress.

The rows of a batch are in files. A row's key, or its number in its file, decides which writer writes it, so every process that
reads the files gets the same parts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from uuid import uuid4

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import ROW_NUMBER, Batch
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.kafka.messages import MessageLayout
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.progress import TopicProgress
from sqlstream.connectors.kafka.sink_options import GUARANTEE, NONE, word_of
from sqlstream.connectors.kafka.writing import TopicPlainWriter, TopicTransactionWriter
from sqlstream.duck import databases, key_hash
from sqlstream.duck.errors import plain
from sqlstream.duck.sql import quote_name
from sqlstream.errors import JobError
from sqlstream.secrets import remember
from sqlstream.warehouse.paths import Warehouse


@dataclass(frozen=True, slots=True)
class TopicPart:
    """What a worker process needs to know of one of a topic's `writers` writers: the one with the `number`, from 0.

    `transactional_id` is its transactional id, None if it has no transactions. `warehouse` and `project` are paths, and `records`
    is the writer's own folder of records.
    """

    table: Table
    upserts: bool
    number: int
    writers: int
    transactional_id: str | None
    warehouse: str
    project: str
    records: str


@dataclass(frozen=True, slots=True)
class PartState:
    """The state of a writer: the id of its client, the last batch whose part it has committed (-1: none), and its notices."""

    client: str
    last: int
    notices: tuple[str, ...] = ()


class PartWriter:
    """A writer with its client, which a process keeps from batch to batch."""

    def __init__(self, part: TopicPart, committed: int):
        self.part = part
        self.client = uuid4().hex
        remember(part.table.options)
        layout, topic = MessageLayout(part.table, part.upserts), Topic(part.table)
        # DuckDB reads from an object store only after the process has opened it.
        fs = Warehouse(part.warehouse).fs
        self.progress: TopicProgress | None = None
        self.writer: TopicPlainWriter | TopicTransactionWriter
        if part.transactional_id is None:
            self.writer = TopicPlainWriter(layout, topic, waits=word_of(part.table, GUARANTEE) != NONE)
            return
        context = SinkContext(fs, part.project, part.records, committed)
        self.progress = TopicProgress(part.table, context)
        self.writer = TopicTransactionWriter(layout, topic, part.transactional_id, self.progress)

    def state(self) -> PartState:
        """Return the writer's state, for the driver."""
        return PartState(self.client, -1 if self.progress is None else self.progress.last, (*self.writer.notices(),))


# The writers of this process, by process and folder of records: a forked process must not use its parent's.
_open: dict[tuple[int, str], PartWriter] = {}


def open_part(part: TopicPart, committed: int) -> PartState:
    """Open a writer at the start of a run: take over its transactional id, and look up its last committed batch.

    `committed` is the last batch that the job has committed. Raises JobError and UsageError.
    """
    return _opened(part, committed, settles=True).state()


def write_part(part: TopicPart, batch: Batch, client: str) -> PartState:
    """Write a part of a batch, unless it is committed, and return the writer's new state.

    `client` is the id in the state after the previous batch. If this process has no writer with this client, it opens a new one,
    which locks out the other.
    """
    part_writer = _open.get(_writer_key(part))
    if part_writer is None or part_writer.client != client:
        part_writer = _opened(part, batch.number - 1, settles=False)
    try:
        part_writer.writer.write(divided(batch, part))
    except duckdb.Error as error:
        message = f'table "{part.table.name}": the rows of batch {batch.number} cannot be read: {plain(error)}'
        raise JobError(message, part.table.span) from error
    if isinstance(part_writer.writer, TopicPlainWriter):
        part_writer.writer.push()
    return part_writer.state()


def _opened(part: TopicPart, committed: int, *, settles: bool) -> PartWriter:
    if (stale := _open.pop(_writer_key(part), None)) is not None:
        stale.writer.close()
    part_writer = PartWriter(part, committed)
    try:
        part_writer.writer.recover()
        if isinstance(part_writer.writer, TopicTransactionWriter):
            # During a run no other process writes: this job has begun every committed batch.
            part_writer.writer.settle() if settles else part_writer.writer.check_own()
    except BaseException:
        part_writer.writer.close()
        raise
    _open[_writer_key(part)] = part_writer
    return part_writer


def _writer_key(part: TopicPart) -> tuple[int, str]:
    return os.getpid(), part.records


def divided(batch: Batch, part: TopicPart) -> Batch:
    """Return the part of a batch that belongs to one writer.

    The hash of the message key decides. Without a key it is the row's number in its file, or the hash of the whole row
    if a column has the name of that number.
    """
    keys = [column for _, column in MessageLayout(part.table, part.upserts).key]
    if not keys and all(c.name.lower() != ROW_NUMBER for c in batch.columns):
        return replace(batch, part=f"{ROW_NUMBER} % {part.writers} = {part.number}", is_numbered=True)
    _register(os.getpid())
    return replace(batch, part=f"{writer_of(keys or batch.columns, part.writers)} = {part.number}")


def writer_of(columns: Sequence[Column], writers: int) -> str:
    """Return the SQL of the number of a row's writer, from a hash of some columns."""
    values = [(f"CAST({quote_name(c.name)} AS {c.type})", c.type) for c in columns]
    return f"({key_hash.key_hash(values)} % {writers})"


@cache
def _register(process: int) -> None:
    """Register the hash of keys in the database of this process, once."""
    with databases.passing() as con:
        key_hash.register(con)
