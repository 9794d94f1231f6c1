"""One of several writers of a topic, as it runs in a worker: its part of each batch, with a client and with progress of its own.

The rows of a batch lie in files. Which of them are a writer's is told by their keys, or by their places in the files, so every
process that reads the files finds the same ones.
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
    """The writer `number` (from 0 on) of so many. `identity` is its transactional id, None where it has no transactions.

    `records` is its own folder in the warehouse.
    """

    table: Table
    upserts: bool
    number: int
    writers: int
    identity: str | None
    warehouse: str
    project: str
    records: str


@dataclass(frozen=True, slots=True)
class PartState:
    """How far a writer is: the last batch of which its part is in, and which client wrote it."""

    client: str
    last: int
    notices: tuple[str, ...] = ()


class PartWriter:
    """A writer with its client, which stays in the process from batch to batch."""

    def __init__(self, part: TopicPart, committed: int):
        self.part = part
        self.client = uuid4().hex
        remember(part.table.options)
        layout, topic = MessageLayout(part.table, part.upserts), Topic(part.table)
        # DuckDB reads from those object stores that a process has opened.
        fs = Warehouse(part.warehouse).fs
        self.progress: TopicProgress | None = None
        self.writer: TopicPlainWriter | TopicTransactionWriter
        if part.identity is None:
            self.writer = TopicPlainWriter(layout, topic, waits=word_of(part.table, GUARANTEE) != NONE)
            return
        context = SinkContext(fs, part.project, part.records, committed)
        self.progress = TopicProgress(part.table, context)
        self.writer = TopicTransactionWriter(layout, topic, part.identity, self.progress)

    def state(self) -> PartState:
        return PartState(self.client, -1 if self.progress is None else self.progress.last, (*self.writer.notices(),))


# The writers of this process by their records, and by the process: a forked one never uses its parent's.
_open: dict[tuple[int, str], PartWriter] = {}


def open_part(part: TopicPart, committed: int) -> PartState:
    """Take over a transactional id, and find out what is in; `committed` is the last batch that the job has committed."""
    return _opened(part, committed, settles=True).state()


def write_part(part: TopicPart, batch: Batch, client: str) -> PartState:
    """Write a part of a batch, unless it is in. `client` wrote the part before: no other one that this process has may go on."""
    found = _open.get(_place(part))
    if found is None or found.client != client:
        found = _opened(part, batch.number - 1, settles=False)
    try:
        found.writer.write(divided(batch, part))
    except duckdb.Error as error:
        message = f'table "{part.table.name}": the rows of batch {batch.number} cannot be read: {plain(error)}'
        raise JobError(message, part.table.span) from error
    if isinstance(found.writer, TopicPlainWriter):
        found.writer.push()
    return found.state()


def _opened(part: TopicPart, committed: int, *, settles: bool) -> PartWriter:
    if (stale := _open.pop(_place(part), None)) is not None:
        stale.writer.close()
    found = PartWriter(part, committed)
    try:
        found.writer.recover()
        if isinstance(found.writer, TopicTransactionWriter):
            # In the middle of a run nobody else writes: what is in, this job has begun.
            found.writer.settle() if settles else found.writer.check_own()
    except BaseException:
        found.writer.close()
        raise
    _open[_place(part)] = found
    return found


def _place(part: TopicPart) -> tuple[int, str]:
    return os.getpid(), part.records


def divided(batch: Batch, part: TopicPart) -> Batch:
    """Return the part of a batch: by the key of its messages, without one by the numbers of rows in their files."""
    keys = [column for _, column in MessageLayout(part.table, part.upserts).key]
    if not keys and all(c.name.lower() != ROW_NUMBER for c in batch.columns):
        return replace(batch, part=f"{ROW_NUMBER} % {part.writers} = {part.number}", is_numbered=True)
    _register(os.getpid())
    return replace(batch, part=f"{writer_of(keys or batch.columns, part.writers)} = {part.number}")


def writer_of(columns: Sequence[Column], writers: int) -> str:
    """Return the SQL of the writer of a row, by some of its columns as files hold them."""
    values = [(f"CAST({quote_name(c.name)} AS {c.type})", c.type) for c in columns]
    return f"({key_hash.key_hash(values)} % {writers})"


@cache
def _register(process: int) -> None:
    """Give the database of this process what the hash of keys needs."""
    with databases.passing() as con:
        key_hash.register(con)
