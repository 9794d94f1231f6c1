"""The base class of sources whose rows are in files of a format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlstream.connectors.formats import faults
from sqlstream.connectors.formats.copies import shown
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import MalformedRow, skips
from sqlstream.connectors.formats.read_errors import malformed_row, name_file
from sqlstream.connectors.interface import MANY_ROWS, NumberedRows, ReadContext, TableSource
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import PATH, ROW
from sqlstream.errors import DataError

if TYPE_CHECKING:
    import duckdb


class FileRows(TableSource):
    """A table whose splits are files, or parts of files."""

    measured = True
    numbering = (PATH, ROW)

    @abstractmethod
    def files(self, splits: Sequence[Any]) -> Sequence[FileSplit]:
        """Return the files, or parts of files, that the splits stand for. Their paths are local."""

    def take(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        if skips(self.table):
            return faults.take(con, self.files(splits), self.table)
        return self.read(con, splits, context)

    def read_again(
        self, con: duckdb.DuckDBPyConnection, error: duckdb.Error, splits: Sequence[Any], context: ReadContext
    ) -> ReadPlan | None:
        return faults.read_again(con, error, self.files(splits), self.table)

    def explained(self, error: duckdb.Error, splits: Sequence[Any]) -> DataError | None:
        return faults.translate(error, self.files(splits), self.table) if "format" in self.table.options else None

    def malformed_rows(self, splits: Sequence[Any]) -> Iterator[MalformedRow]:
        return faults.malformed_rows(self.files(splits), self.table)

    def malformed(self, row: MalformedRow) -> DataError:
        return malformed_row(row.path, "row", row.number, row.reason, row.text, self.table)

    def numbered(self, con: duckdb.DuckDBPyConnection, split: Any) -> NumberedRows | None:
        if "format" not in self.table.options:
            return None
        [file] = self.files([split])
        plan = faults.take_numbered(con, file, self.table)

        def places(counts: Sequence[int]) -> dict[int, MalformedRow]:
            numbered_texts = faults.place(file, self.table, counts, [r.number for r in plan.rejected(con)])
            return {n: MalformedRow(file.path, number, "", text) for n, (number, text) in numbered_texts.items()}

        return NumberedRows(plan, places)

    def most_rows(self, split: Any) -> int:
        rows = getattr(split, "rows", None)
        return rows[1] - rows[0] if rows else MANY_ROWS

    def first_row(self, split: Any) -> tuple[str, int]:
        [file] = self.files([split])
        return shown(file.path), file.rows[0] if file.rows else 0

    def name_of(self, split: Any) -> str:
        [file] = self.files([split])
        return name_file(file.path, self.table)

    def place(self, split: Any, number: int) -> str:
        [file] = self.files([split])
        return f"row {number + (file.rows[0] if file.rows else 0)} of {name_file(file.path, self.table)}"
