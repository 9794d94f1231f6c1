"""Sinks whose database is a file that is open only while a batch is written: others can read it between two batches."""

from __future__ import annotations

import os

from sqlstream.catalog import Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.relational.dialect import Dialect
from sqlstream.connectors.relational.writer import DatabaseWriter
from sqlstream.errors import UsageError


class FileWriter(DatabaseWriter):
    """Writes the batches of a job into a table of a file."""

    def __init__(self, table: Table, context: SinkContext, dialect: Dialect):
        super().__init__(table, context)
        self.dialect = dialect
        self.path = os.path.join(context.project, table.options["path"])
        self.identity = context.identity()

    def check_file(self) -> None:
        """Raise UsageError where there is no file, and none is to be made."""
        if os.path.isfile(self.path):
            return
        at = self.table.option_span("path", value=True)
        if not self.creates:
            hint = "Make it, or let sqlstream do it: 'sink.create-table' = 'true'."
            raise UsageError(f'table "{self.table.name}": file "{self.path}" does not exist', at, hint=hint)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
