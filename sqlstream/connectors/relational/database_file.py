"""Sinks whose database is a file. It is open only while a batch is written, so that others can read it between two batches."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.relational.dialect import last_batch, make_batches, set_last_batch
from sqlstream.connectors.relational.writer import DatabaseWriter, Transaction
from sqlstream.errors import UsageError


class FileTransaction(Transaction):
    """A transaction in a database file, which it locks against other writers."""

    def last_batch(self) -> int | None:
        rows = self.con.execute(last_batch(), [self.identity]).fetchall()
        return int(rows[0][0]) if rows else None

    def set_last_batch(self, number: int) -> None:
        self.con.execute(set_last_batch(), [self.identity, number])


class FileWriter(DatabaseWriter):
    """Writes the batches of a job into a table of a database file."""

    # The errors of statements that the database refuses.
    refusals: tuple[type[Exception], ...]
    transaction_type: ClassVar[type[FileTransaction]]
    begin: ClassVar[str] = "BEGIN"

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self.path = os.path.join(context.project, table.options["path"])

    @abstractmethod
    def opened(self) -> AbstractContextManager[Any]:
        """Open the file for a block, as a connection. Its end rolls back an open transaction."""

    def prepare(self) -> None:
        """Create the table of batch numbers and, with `sink.create-table`, a missing file and table; check the table.

        Raises UsageError if there is no file and none is to be created, BindError if the table is not as declared.
        """
        self._check_file()
        with self.opened() as con:
            self.check_table(con)
            self.make(con, make_batches())

    def make(self, con: Any, statement: str) -> None:
        con.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[FileTransaction]:
        """Open the file and begin a transaction, which the end of the block commits.

        Raises DataError for rows that the database refuses, and if the job must not open the file.
        """
        check_files(self.table, [self.path])
        with self.opened() as con:
            con.execute(self.begin)
            try:
                yield self.transaction_type(self, con)
                con.execute("COMMIT")
            except self.passing_errors:
                raise
            except self.refusals as error:
                raise self.refused(error) from error

    def _check_file(self) -> None:
        """Raise UsageError if there is no file and none is to be created, DataError if the job must not open it."""
        check_files(self.table, [self.path])
        if os.path.isfile(self.path):
            return
        at = self.table.option_span("path", value=True)
        if not self.creates:
            hint = "Make it, or let sqlstream do it: 'sink.create-table' = 'true'."
            raise UsageError(f'table "{self.table.name}": file "{self.path}" does not exist', at, hint=hint)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
