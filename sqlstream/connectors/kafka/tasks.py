"""Topics to which the tasks append the rows that they have computed, at least once, each with a client of its process.

Nothing is to be made visible together, so no row waits for the end of a batch, or travels through a file to the driver. While
DuckDB computes rows the client sends those before them.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlstream.catalog import DEBEZIUM, Column, Table
from sqlstream.connectors.interface import Committer, SinkContext, WorkerSink, Writer
from sqlstream.connectors.kafka.messages import MessageLayout, value_format
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.sink import AppendedTopic
from sqlstream.connectors.kafka.sink_options import EXACTLY_ONCE, GUARANTEE, NONE, PARALLELISM, word_of
from sqlstream.connectors.kafka.writing import TopicPlainWriter
from sqlstream.duck import databases
from sqlstream.duck.sql import typed
from sqlstream.duck.types import encoded
from sqlstream.secrets import remember

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Rows that are encoded before they are handed to the client: their text stays in the processor's cache.
_ROWS = 20_000
# Clients that a process keeps: of jobs that have ended, too, as nobody tells a worker.
_KEPT = 32


class TopicTasks(AppendedTopic, WorkerSink):
    """A topic to which tasks append rows; after a crash, or when a task is run again, rows are in it twice."""

    @staticmethod
    def is_for(table: Table) -> bool:
        """Whether the tasks can write a table: without transactions, rows that are appended, and no other number of writers."""
        at_once = word_of(table, GUARANTEE) == EXACTLY_ONCE or PARALLELISM.name in table.options
        return not at_once and value_format(table) != DEBEZIUM

    def writer(self, context: SinkContext) -> Writer:
        return _TaskWriter(self.table)

    def committer(self, context: SinkContext) -> Committer:
        return _NothingToCommit(self.table)


class _TaskWriter(Writer):
    def __init__(self, table: Table):
        self._table = table

    def write(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str, batch: int
    ) -> tuple[int, list[Any]]:
        """Write rows, and wait until the brokers have them, if the table wants that."""
        with _clients().one_for(self._table) as client:
            count = client.write_all(client.messages(con, columns, rows))
            client.push()
            return count, []


class _NothingToCommit(Committer):
    """There is nothing to commit; a table that cannot be written is refused at the start."""

    def __init__(self, table: Table):
        self._table = table

    def recover(self) -> None:
        _TaskClient.opened(self._table).close()

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        pass


class _TaskClient(TopicPlainWriter):
    def __init__(self, table: Table):
        waits = word_of(table, GUARANTEE) != NONE
        super().__init__(MessageLayout(table, upserts=False), Topic(table), waits=waits)

    @classmethod
    def opened(cls, table: Table) -> _TaskClient:
        """Return a client that has found the topic."""
        remember(table.options)
        client = cls(table)
        try:
            client.recover()
        except BaseException:
            client.close()
            raise
        return client

    def messages(self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: str) -> Iterator[pa.Table]:
        """Yield the messages of rows (a SELECT), some at a time."""
        import pyarrow

        [(zone,)] = con.execute("SELECT current_setting('TimeZone')").fetchall()
        if zone == "UTC":
            sql = self._layout.appended(f"SELECT {typed(columns)} FROM ({rows})", self._chosen)
            for some in con.sql(sql).to_arrow_reader(_ROWS):
                yield self._encoders.encode(pyarrow.Table.from_batches([some]))
            return
        # Instants are text in UTC, whoever writes. The rows themselves are computed in the zone of the job.
        sql = self._layout.appended(f"SELECT {typed(columns)} FROM _some", self._chosen)
        with databases.passing() as in_utc:
            for some in con.sql(encoded(columns, f"({rows})")).to_arrow_reader(_ROWS):
                in_utc.register("_some", pyarrow.Table.from_batches([some]))
                yield self._encoders.encode(in_utc.sql(sql).to_arrow_table())


# What tells clients apart: the name of a table, and what it says.
_Place: TypeAlias = tuple[str, tuple[object, ...]]


class _Clients:
    """The clients of a process with which nobody writes at the moment, the last used last.

    Threads never share one: each would take what was sent, and what was lost, for its own.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[_Place, _TaskClient]] = []
        self._lock = threading.Lock()

    @contextmanager
    def one_for(self, table: Table) -> Iterator[_TaskClient]:
        """Yield a client of a table to its only user, who may have had it before."""
        place = (table.name, table.definition)
        client = self._taken(place) or _TaskClient.opened(table)
        try:
            yield client
        except BaseException:
            # What it has not sent belongs to no batch any more.
            client.close()
            raise
        with self._lock:
            self._idle.append((place, client))
        self.close(_KEPT)

    def _taken(self, place: _Place) -> _TaskClient | None:
        with self._lock:
            for number in reversed(range(len(self._idle))):
                if self._idle[number][0] == place:
                    return self._idle.pop(number)[1]
        return None

    def close(self, kept: int = 0) -> None:
        """Close those that were not used for longest, until so many are left."""
        with self._lock:
            old = self._idle[: max(len(self._idle) - kept, 0)]
            del self._idle[: len(old)]
        for _, client in old:
            client.close()


# By the process: a forked one never uses, nor closes, its parent's.
_by_process: dict[int, _Clients] = {}


def _clients() -> _Clients:
    return _by_process.setdefault(os.getpid(), _Clients())


# A process that ends lets go of its connections before Python takes away what callbacks need.
atexit.register(lambda: _clients().close())
