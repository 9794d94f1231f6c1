"""Topics to which the tasks append the rows that they have computed, at least once, each with a client of its process.

Nothing is to be made visible together, so no row waits for the end of a batch, or travels through a file to the driver. While
DuckDB computes rows the client sends those before them.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import DEBEZIUM, Column, Table
from sqlstream.connectors.interface import Committer, SinkContext, WorkerSink, Writer
from sqlstream.connectors.kafka.messages import MessageLayout, value_format
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.sink import AppendedTopic
from sqlstream.connectors.kafka.sink_options import EXACTLY_ONCE, GUARANTEE, NONE, PARALLELISM, word_of
from sqlstream.connectors.kafka.writing import TopicPlainWriter
from sqlstream.duck.sql import typed
from sqlstream.secrets import remember

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Rows that are encoded before they are handed to the client: their text stays in the processor's cache.
_ROWS = 20_000
# Clients that a process keeps: of jobs that have ended, too, as nobody tells a worker.
_KEPT = 8


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
        client = _client(self._table)
        count = client.write_all(client.encoded(con, f"SELECT {typed(columns)} FROM ({rows})"))
        client.push()
        return count, []


class _NothingToCommit(Committer):
    """There is nothing to commit; a table that cannot be written is refused at the start."""

    def __init__(self, table: Table):
        self._table = table

    def recover(self) -> None:
        client = _TaskClient(self._table)
        try:
            client.recover()
        finally:
            client.close()

    def commit(self, batch: int, written: Sequence[Any]) -> None:
        pass


class _TaskClient(TopicPlainWriter):
    def __init__(self, table: Table):
        waits = word_of(table, GUARANTEE) != NONE
        super().__init__(MessageLayout(table, upserts=False), Topic(table), waits=waits)

    def encoded(self, con: duckdb.DuckDBPyConnection, rows: str) -> Iterator[pa.Table]:
        """Yield the messages of rows (a SELECT), some at a time."""
        import pyarrow

        for some in con.sql(self._layout.appended(rows, self._chosen)).to_arrow_reader(_ROWS):
            yield self._encoders.encode(pyarrow.Table.from_batches([some]))


# By the process, as a forked one never uses its parent's, and by what the table says.
_clients: OrderedDict[tuple[int, str, str, tuple[tuple[str, str], ...]], _TaskClient] = OrderedDict()


def _client(table: Table) -> _TaskClient:
    options: Mapping[str, str] = table.options
    columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
    place = (os.getpid(), table.name, columns, tuple(sorted(options.items())))
    found = _clients.get(place)
    if found is None:
        remember(options)
        found = _clients[place] = _TaskClient(table)
        found.recover()
    _clients.move_to_end(place)
    _close_oldest(_KEPT)
    return found


def _close_oldest(kept: int) -> None:
    """Close clients of this process until so many are left. Those of a process that has forked it are not touched."""
    own = [place for place in _clients if place[0] == os.getpid()]
    for place in own[: max(len(own) - kept, 0)]:
        _clients.pop(place).close()


# A process that ends lets go of its connections before Python takes away what callbacks need.
atexit.register(_close_oldest, 0)
