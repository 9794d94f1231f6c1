"""Topics to which tasks append the rows that they compute, at least once, with clients of their processes.

There is no commit, so rows neither wait for the end of a batch, nor travel through files to the driver. While DuckDB computes
rows, the client sends the previous ones.
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
from sqlstream.duck.sql import Select, subquery, typed
from sqlstream.duck.types import encoded
from sqlstream.secrets import remember

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# The rows that are encoded before the client gets them: so few that their text stays in the processor's cache.
_ROWS = 20_000
# The most idle clients that a process keeps, also for jobs that have ended, as a worker does not notice their end.
_MAX_IDLE = 32


class TopicTasks(AppendedTopic, WorkerSink):
    """A topic to which tasks append rows. After a crash, or if a task runs again, it has rows twice."""

    @staticmethod
    def is_for(table: Table) -> bool:
        """Whether tasks write a table: not exactly once, not in Debezium's format, and without `sink.parallelism`."""
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
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select, batch: int
    ) -> tuple[int, list[Any]]:
        """Write rows, and wait until the brokers have them, unless the table's delivery guarantee is `none`."""
        with _clients().one_for(self._table) as client:
            count = client.write_all(client.messages(con, columns, rows))
            client.push()
            return count, []


class _NothingToCommit(Committer):
    """Commits nothing. At the start it checks that the topic can be written."""

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
        """Return a client that has looked up the topic. Raises UsageError if it does not exist, OutageError without brokers."""
        remember(table.options)
        client = cls(table)
        try:
            client.recover()
        except BaseException:
            client.close()
            raise
        return client

    def messages(self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Select) -> Iterator[pa.Table]:
        """Yield the messages of rows, some at a time, with the columns of `MessageLayout.messages`."""
        import pyarrow

        [(zone,)] = con.execute("SELECT current_setting('TimeZone')").fetchall()
        if zone == "UTC":
            sql = self._layout.appended(Select(f"SELECT {typed(columns)} FROM ({rows})"), self._chosen)
            for some in con.sql(sql).to_arrow_reader(_ROWS):
                yield self._encoders.encode(pyarrow.Table.from_batches([some]))
            return
        # Instants are encoded in UTC. The rows themselves are computed in the time zone of the job.
        sql = self._layout.appended(Select(f"SELECT {typed(columns)} FROM _some"), self._chosen)
        with databases.passing() as in_utc:
            for some in con.sql(encoded(columns, subquery(rows))).to_arrow_reader(_ROWS):
                in_utc.register("_some", pyarrow.Table.from_batches([some]))
                yield self._encoders.encode(in_utc.sql(sql).to_arrow_table())


# The key of a client: the name and the definition of its table.
_ClientKey: TypeAlias = tuple[str, tuple[object, ...]]


class _Clients:
    """The idle clients of a process, least recently used first.

    Threads never share a client, because it would report the failed messages of one thread to another.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[_ClientKey, _TaskClient]] = []
        self._lock = threading.Lock()

    @contextmanager
    def one_for(self, table: Table) -> Iterator[_TaskClient]:
        """Yield a client of a table, an idle or a new one, which no other thread uses meanwhile."""
        key = (table.name, table.definition)
        client = self._idle_client(key) or _TaskClient.opened(table)
        try:
            yield client
        except BaseException:
            # The messages that it has not sent yet must not be sent with another batch.
            client.close()
            raise
        with self._lock:
            self._idle.append((key, client))
        self.close(_MAX_IDLE)

    def _idle_client(self, key: _ClientKey) -> _TaskClient | None:
        with self._lock:
            for number in reversed(range(len(self._idle))):
                if self._idle[number][0] == key:
                    return self._idle.pop(number)[1]
        return None

    def close(self, limit: int = 0) -> None:
        """Close the least recently used idle clients, until at most `limit` remain."""
        with self._lock:
            old = self._idle[: max(len(self._idle) - limit, 0)]
            del self._idle[: len(old)]
        for _, client in old:
            client.close()


# By process: a forked process neither uses nor closes its parent's clients.
_by_process: dict[int, _Clients] = {}


def _clients() -> _Clients:
    return _by_process.setdefault(os.getpid(), _Clients())


# Clients are closed before Python, at exit, deletes objects that their callbacks need.
atexit.register(lambda: _clients().close())
