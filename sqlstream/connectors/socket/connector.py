"""The `socket` connector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.formats.file_source import FileRows
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext
from sqlstream.connectors.options import COUNT, TEXT, TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.socket.source import LinesFile, SocketDiscovery, files_of, read_lines
from sqlstream.errors import BindError
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    import duckdb


class ReceivedLines(FileRows):
    """Lines that the driver has received, and has stored in files of the job."""

    replay = Replay.AT_MOST_ONCE
    replay_reason = "what was received is kept, but lines sent while the job is down are lost"
    rewinds = False
    slot: str | None = None
    split_type = LinesFile
    bounded = False

    def discovery(self, position: Offsets, context: DiscoveryContext) -> SocketDiscovery:
        return SocketDiscovery(self.table, position, context)

    def located(self, split: LinesFile, context: ReadContext) -> LinesFile:
        return replace(split, path=f"{Warehouse(context.warehouse).root}/{split.path}")

    def files(self, splits: Sequence[LinesFile]) -> Sequence[FileSplit]:
        return files_of(splits)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[LinesFile], context: ReadContext) -> ReadPlan:
        return read_lines(con, splits, self.table)

    def place(self, split: LinesFile, number: int) -> str:
        # Users do not know the files of the job.
        return f'a row of table "{self.table.name}"'


class SocketConnector(Connector):
    """Lines from a TCP port."""

    name = "socket"
    summary = "lines from a TCP port, to try things out"
    reach = Reach.ELSEWHERE
    options = (
        TableOption("hostname", TEXT, "the host that sends the lines", required=True, example="localhost"),
        TableOption("port", COUNT, "the port on which it listens", required=True, example="9999"),
    )
    formats = ("json", "csv")
    needs_format = False
    source_type = ReceivedLines

    def validate(self, table: Table) -> None:
        if "format" not in table.options and len(table.physical) != 1:
            hint = "Declare one STRING column, or set the format to 'json' or 'csv'."
            raise BindError(
                f'table "{table.name}" has {len(table.physical)} columns, a line is one', table.span, hint=hint
            )
