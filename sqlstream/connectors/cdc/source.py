"""A table of a server that is followed by its log: workers read the files of changes that the driver has received."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.files import ChangesFile, mistyped, rows_of
from sqlstream.connectors.formats.changelogs import OPERATION
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import ReadContext, TableSource
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.errors import DataError
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    import duckdb


class ChangesSource(TableSource):
    """The rows of a table of a server, then all their changes."""

    replay = Replay.REPLAYABLE
    split_type = ChangesFile
    measured = True

    @property
    def server_table(self) -> Table:
        """The table as the server has it, without the column of operations."""
        return replace(self.table, columns=tuple(c for c in self.table.columns if c != OPERATION))

    @abstractmethod
    def typed(self, column: Column) -> str:
        """Return the SQL that converts the text of a column's value to its declared type."""

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[ChangesFile], context: ReadContext) -> ReadPlan:
        warehouse = Warehouse(context.warehouse)
        located = [replace(split, folder=f"{warehouse.root.rstrip('/')}/{split.folder}") for split in splits]
        return ReadPlan(rows_of(warehouse.fs, located, self.table, self.typed), keep=True)

    def explained(self, error: duckdb.Error, splits: Sequence[ChangesFile]) -> DataError | None:
        import duckdb

        return mistyped(self.table, error) if isinstance(error, duckdb.DataError) else None
