"""Sinks whose database is a server: the connection stays open between two batches, and is made anew where it is lost.

The row of `sqlstream_batches` with the number of the last batch is made when the job starts, so that each batch can lock it. A
transaction whose connection was lost while it was committed holds that lock: the batch that comes again waits for it, and then
sees its number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar

from sqlstream.catalog import Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.relational.dialect import BATCHES, qualified
from sqlstream.connectors.relational.writer import SINK_OPTIONS, DatabaseWriter, Transaction
from sqlstream.errors import UsageError

# Temporary tables of a session, in which the rows of a batch and the keys of those that are gone wait for their table.
ROWS, KEYS = "_sqlstream_rows", "_sqlstream_keys"
# What stands for the number of the last batch before the first.
_NONE = -1


class ServerTransaction(Transaction):
    """A transaction on a server."""

    # The statement that writes the number of a batch; its parameters are the sink and the number.
    set_number: ClassVar[str]

    def __init__(self, writer: ServerWriter, con: Any):
        super().__init__(writer, con)
        self.run, self._batches = writer.run, batches(writer.table)

    def last_batch(self) -> int | None:
        query = f"SELECT batch FROM {self._batches} WHERE sink = %s FOR UPDATE"
        [(number,)] = self.run(self.con, query, [self.identity]) or [(_NONE,)]
        return None if number == _NONE else int(number)

    def set_last_batch(self, number: int) -> None:
        self.run(self.con, self.set_number.format(table=self._batches), [self.identity, number])


class ServerWriter(DatabaseWriter):
    """Writes the batches of a job into a table of a server."""

    # What all errors of the server and of its library derive from.
    error: type[Exception]
    # The statement that makes the table of batch numbers, and the one that makes the row of a sink unless it is there, with
    # the parameters of `set_number`.
    make_batches: ClassVar[str]
    make_number: ClassVar[str]

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self._con: Any = None

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def is_open(self, con: Any) -> bool: ...

    @abstractmethod
    def run(self, con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement with values for its `%s`; return its rows."""

    @abstractmethod
    def begun(self, con: Any) -> AbstractContextManager[ServerTransaction]:
        """Begin a transaction, which is committed at the end; after an error the connection is closed."""

    @abstractmethod
    def is_duplicate(self, error: Exception) -> bool:
        """Tell whether a server says that there is a row with the same key."""

    def detail(self, error: Exception) -> str | None:
        """Return what else a server says about rows that it refuses."""
        return None

    def is_refusal(self, error: Exception) -> bool:
        """Tell whether an error is the server's answer to a statement, and not one of the connection."""
        return not self.is_passing(error)

    def check_numbers(self, con: Any, name: str) -> None:
        """Raise BindError where the table of batch numbers, which is there, is none that can be used."""

    def prepare(self) -> None:
        con = self._connected()
        try:
            self.check_table(con)
            self._prepare_number(con)
        except self.error as error:
            self.close()
            if not self.is_refusal(error):
                raise
            name = self.table.options["table"]
            message = f'table "{self.table.name}": {self.dialect.name} refuses to prepare table "{name}"'
            raise UsageError(f"{message}: {self.reason(error)}", self.table.span) from error

    @contextmanager
    def transaction(self) -> Iterator[ServerTransaction]:
        con = self._connected()
        try:
            with self.begun(con) as transaction:
                yield transaction
        except self.error as error:
            self.close()
            if not self.is_refusal(error):
                raise
            hint = None
            if self.is_duplicate(error) and not self.table.primary_key:
                hint = "Declare the PRIMARY KEY: then a row takes the place of the one that has its key."
            raise self.refused(error, detail=self.detail(error), hint=hint) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, and with it what is open of a transaction."""
        if self._con is not None:
            with suppress(self.error):
                self._con.close()
            self._con = None

    def _connected(self) -> Any:
        if self._con is None or not self.is_open(self._con):
            self._con = self.connect()
        return self._con

    def _prepare_number(self, con: Any) -> None:
        table = batches(self.table)
        name = table.replace('"', "")
        if self.found(con, name) is None:
            self.make(con, self.make_batches.format(table=table))
        else:
            self.check_numbers(con, name)
        self.run(con, self.make_number.format(table=table), [self.identity, _NONE])


def server_options(url: str, example: str, place: str) -> tuple[TableOption, ...]:
    """Return the options of a table on a server: what the `url` is, with an example, and what `table` may be named with."""
    return (
        TableOption("url", TEXT, url, required=True, example=example),
        TableOption("table", TEXT, f"the table, with {place}", required=True, example="users"),
        *SINK_OPTIONS,
    )


def batches(table: Table) -> str:
    """Return the table of batch numbers: in the schema of the table that is written."""
    schema, dot, _ = table.options["table"].rpartition(".")
    return qualified(f"{schema}{dot}{BATCHES}")
