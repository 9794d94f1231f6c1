"""Sinks whose database is a server. The connection stays open between batches, and is opened again after it was lost.

The job inserts its row of `sqlstream_batches` when it starts, so that each batch can lock the row. A transaction whose connection
was lost during COMMIT holds that lock until it ends: the repeated batch waits for the lock, and then sees its own number.
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

# Temporary tables of a session: the staged rows of a batch, and the keys of the rows that it deletes.
ROWS, KEYS = "_sqlstream_rows", "_sqlstream_keys"
# The stored number of the last batch before the first one.
_NONE = -1


class ServerTransaction(Transaction):
    """A transaction on a server."""

    # The statement that stores the number of a batch; `{table}` is the table, its parameters are the sink and the number.
    set_number: ClassVar[str]

    def __init__(self, writer: ServerWriter, con: Any):
        super().__init__(writer, con)
        self.run, self._batches = writer.run, batches(writer.table)

    def last_batch(self) -> int | None:
        """Lock the sink's row of batch numbers; return its number, None before the first batch."""
        query = f"SELECT batch FROM {self._batches} WHERE sink = %s FOR UPDATE"
        [(number,)] = self.run(self.con, query, [self.identity]) or [(_NONE,)]
        return None if number == _NONE else int(number)

    def set_last_batch(self, number: int) -> None:
        self.run(self.con, self.set_number.format(table=self._batches), [self.identity, number])


class ServerWriter(DatabaseWriter):
    """Writes the batches of a job into a table of a server."""

    # The base class of all errors of the server and of its library.
    error: type[Exception]
    # The statements that create the table of batch numbers, and insert the row of a sink unless it exists. The second one has
    # the parameters of `ServerTransaction.set_number`.
    make_batches: ClassVar[str]
    make_number: ClassVar[str]

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self._con: Any = None

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection to the server. Raises `error`."""

    @abstractmethod
    def is_open(self, con: Any) -> bool:
        """Whether a connection is open, as far as the client knows."""

    @abstractmethod
    def run(self, con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement with values for its `%s`; return its rows, none if it has no result. Raises `error`."""

    @abstractmethod
    def begun(self, con: Any) -> AbstractContextManager[ServerTransaction]:
        """Begin a transaction, and commit it at the end of the block. After an error the caller closes the connection."""

    @abstractmethod
    def is_duplicate(self, error: Exception) -> bool:
        """Whether an error says that another row has the same key."""

    def detail(self, error: Exception) -> str | None:
        """Return the details that a server adds to its message about refused rows, None if it adds none."""
        return None

    def is_refusal(self, error: Exception) -> bool:
        """Whether an error is the server's answer to a statement, not a failure of the connection."""
        return not self.is_passing(error)

    def check_numbers(self, con: Any, name: str) -> None:
        """Raise BindError if the existing table of batch numbers, `name`, cannot be used."""

    def prepare(self) -> None:
        """Create and check the table, and insert the sink's row of batch numbers.

        Raises BindError if the table is not as declared, UsageError if the server refuses a statement.
        """
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
        """Begin a transaction, and commit it at the end of the block. Raises DataError for rows that the server refuses."""
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
        """Close the connection, which rolls back an open transaction."""
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
        if self.describe(con, name) is None:
            self.make(con, self.make_batches.format(table=table))
        else:
            self.check_numbers(con, name)
        self.run(con, self.make_number.format(table=table), [self.identity, _NONE])


def server_options(url: str, example: str, qualifier: str) -> tuple[TableOption, ...]:
    """Return the options of a table on a server.

    For the manual, `url` says what the option `url` is, with an `example`, and `qualifier` what may qualify the name of the
    table.
    """
    return (
        TableOption("url", TEXT, url, required=True, example=example),
        TableOption("table", TEXT, f"the table, with {qualifier}", required=True, example="users"),
        *SINK_OPTIONS,
    )


def batches(table: Table) -> str:
    """Return the quoted name of the table of batch numbers, in the schema of the written table."""
    schema, dot, _ = table.options["table"].rpartition(".")
    return qualified(f"{schema}{dot}{BATCHES}")
