"""Follows a table of a MySQL or MariaDB server by the server's binary log.

The position in the log is the job's own: nothing stays on the server. The server keeps its log for some time, whoever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sqlstream.catalog import Table
from sqlstream.connectors.cdc.discovery import WORTH_MOVING, ReceivedChanges
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.mysql_cdc.options import BinlogSettings
from sqlstream.connectors.mysql_cdc.positions import file_of, offset_of
from sqlstream.connectors.mysql_cdc.server import BinlogServer
from sqlstream.warehouse.records import read_sealed, write_sealed

# Files in the source's folder: what tells the log from others, at a position where the job was; the position up to which the log
# has no change of the table after a batch.
_LOG, _MOVED = "log.json", "moved.json"


class BinlogDiscovery(ReceivedChanges[BinlogServer]):
    """Receives the changes of a table from the binary log."""

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext, settings: BinlogSettings):
        self._settings = settings
        # A job whose table is to begin elsewhere, as options of a restore say, has forgotten it.
        self._beginning = context.remember("begin", uuid4().hex[:8])
        # The files of the log and their sizes, when they were last asked for; the position from which the next poll reads, and
        # the last one that was stored without a batch.
        self._logs: dict[int, int] = {}
        self._read_to = self._moved = 0
        self._notices: Sequence[str] = ()
        super().__init__(table, position, context, settings.reading, BinlogServer(table, settings))

    def _check_table(self) -> None:
        self._server.check()
        self._notices = self._server.notices()

    @property
    def _marker(self) -> str:
        return f"begun-{self._beginning}.json"

    def _begin(self) -> tuple[int, list[int]]:
        # Those of a process that has died while it took a snapshot.
        self._remove(lambda number: True)
        if self._settings.has_snapshot:
            with self._server.snapshot() as (position, rows):
                return position, list(self._write_snapshot(rows))
        match self._settings.mode:
            case "earliest-offset":
                return self._server.beginning(), []
            case "specific-offset":
                return self._server.position_of(self._settings.file, self._settings.offset), []
        return self._server.end_of_log(), []

    def _bound(self) -> int | None:
        if self._settings.mode == "snapshot":
            return int(self._context.remember("end", self._received))
        return super()._bound()

    def _check_log(self) -> None:
        self._read_to = self._received
        moved = self._stored(_MOVED)
        # A job that has gone back to a savepoint has another last batch.
        if moved is not None and moved["after"] == self._received:
            self._read_to = self._moved = moved["place"]
        self._logs = self._server.check_position(self._read_to)
        origin = self._stored(_LOG) or {"place": 0, "identity": None}
        position, identity = origin["place"], origin["identity"]
        is_there = identity is not None and file_of(position) in self._logs
        if is_there and self._server.log_identity(position) != identity:
            raise self._server.other_log(position)
        self._write(_LOG, {"place": self._read_to, "identity": self._server.log_identity(self._read_to)})

    # -- changes

    def _receive(self) -> None:
        from sqlstream.connectors.mysql_cdc import binlog

        end = self._server.end_of_log()
        if self._read_to != end:
            self._logs = self._server.check_position(self._read_to)
        self._log_end = self._target or end
        if self._read_to >= self._log_end:
            self._finish_poll()
            return
        columns = {column.name: column.type for column in self._table.stored}
        decoder = binlog.BinlogDecoder(
            *self._server.logged_table,
            columns,
            self._read_to,
            self._target,
            self._reading.most,
            self._reading.skips_truncate,
        )
        try:
            with self._server.events(self._read_to) as events:
                has_changes = self._store(decoder.decode(events), decoder)
        except binlog.ColumnTypeChanged as error:
            raise self._server.mistyped(error.column, error.type) from None
        except binlog.UnreadableLog as error:
            raise self._fault(str(error), error.hint) from None
        self._read_to = decoder.end
        if not has_changes and decoder.complete:
            self._finish_poll()
        elif not has_changes:
            self._move()

    def _finish_poll(self) -> None:
        """Note that the log has no further change, up to its end or to that of a bounded table."""
        self._caught_up = self._read_to
        self._ended = self._target is not None
        self._move()

    def _move(self) -> None:
        """Store how far the log has no change after the last batch: the server may purge what is before."""
        if self._read_to >= max(self._received, self._moved) + WORTH_MOVING:
            self._write(_MOVED, {"after": self._received, "place": self._read_to})
            self._moved = self._read_to

    @property
    def backlog(self) -> int:
        """The bytes of log, at the last poll, after the last file that was handed out; 0 if they have no change of the table."""
        position = max(int(self._end), self._caught_up)
        if position >= self._log_end:
            return 0
        after = sum(size for number, size in self._logs.items() if number > file_of(position))
        return after + max(0, self._logs.get(file_of(position), 0) - offset_of(position))

    def notices(self) -> Sequence[str]:
        return self._notices

    # -- records

    def _stored(self, name: str) -> dict[str, Any] | None:
        path = f"{self._directory}/{name}"
        return dict(json.loads(read_sealed(self._fs, path))) if self._fs.exists(path) else None

    def _write(self, name: str, record: dict[str, Any]) -> None:
        write_sealed(self._fs, f"{self._directory}/{name}", json.dumps(record), durable=True)
