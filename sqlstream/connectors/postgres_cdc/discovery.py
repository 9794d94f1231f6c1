"""Follows a table of a PostgreSQL server by a replication slot.

The slot stays at the end of the last committed batch, so that the server can send all later changes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.cdc.discovery import WORTH_MOVING, ReceivedChanges
from sqlstream.connectors.cdc.files import ChangesFile
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.postgres_cdc import pgoutput
from sqlstream.connectors.postgres_cdc.options import CdcSettings
from sqlstream.connectors.postgres_cdc.server import Server, as_lsn
from sqlstream.errors import UsageError
from sqlstream.warehouse.records import read_sealed, write_sealed

# Files in the source's folder: the name of a slot that is the job's; the log position to which the slot was advanced without a
# batch.
_OURS, _MOVED = "ours", "moved.json"


class SlotDiscovery(ReceivedChanges[Server]):
    """Receives the changes of a table from a slot. At the first start it creates the slot and the publication."""

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext, settings: CdcSettings):
        self._settings = settings
        name = context.remember("replication", f"sqlstream_{_plain(table.name)}_{uuid4().hex[:8]}")
        server = Server(table, settings.served_table, settings.slot or name, settings.publication or name)
        self._moved = self._committed = 0
        super().__init__(table, position, context, settings.reading, server)
        # Whether the slot is behind the last batch: then nothing is received before `committed` was called.
        self._awaits_commit = self._committed < self._end

    def _check_table(self) -> None:
        self._server.check()
        self._types = self._server.types()
        self._server.publish(create=self._settings.publication is None)

    # -- the beginning

    def _begin(self) -> tuple[int, list[int]]:
        existing = self._server.slot_state()
        if existing is not None and not self._settings.snapshot and self._settings.slot:
            return existing.confirmed, []
        if existing is not None and not self._fs.exists(f"{self._directory}/{_OURS}"):
            raise UsageError(
                f'table "{self._table.name}": replication slot "{self._server.slot}" exists already',
                self._table.option_span("slot.name", value=True),
                detail="A snapshot needs a slot that is made with it.",
                hint="Name another slot; or drop this one: "
                f"SELECT pg_drop_replication_slot('{self._server.slot}'); or read the changes from where it stands, "
                "without a snapshot: 'scan.startup.mode' = 'latest-offset'.",
            )
        if existing is not None:
            self._server.drop_slot()
        # From now on a slot of this name is the job's.
        write_sealed(self._fs, f"{self._directory}/{_OURS}", self._server.slot, durable=True)
        self._remove(lambda number: True)
        if not self._settings.snapshot:
            return self._server.create_slot(), []
        with self._server.slot_with_snapshot() as (position, snapshot), self._server.rows(snapshot) as copy:
            names = [c.name for c in self._table.stored]
            return position, list(self._write_snapshot(rows_of_csv(copy, names)))

    def _check_log(self) -> None:
        path = f"{self._directory}/{_MOVED}"
        self._moved = int(json.loads(read_sealed(self._fs, path))) if self._fs.exists(path) else 0
        self._committed = self._check_slot()

    def _check_slot(self) -> int:
        """Return the log position of the slot. Raises DataError unless it has all changes after the last batch."""
        state = self._server.slot_state()
        if state is None:
            raise self._server.slot_is_gone()
        if state.lost:
            raise self._server.lost(f'the server has thrown away the log of replication slot "{self._server.slot}"')
        last_read = max(self._end, self._moved)
        if state.confirmed > last_read:
            cause = f'somebody has moved replication slot "{self._server.slot}" to {as_lsn(state.confirmed)}'
            raise self._server.lost(f"{cause}, the job has read up to {as_lsn(last_read)}")
        return state.confirmed

    # -- changes

    def _receive(self) -> None:
        try:
            self._receive_changes()
        except pgoutput.ColumnAltered as altered:
            # `check` raises if the new type does not fit; else the changes are read at the next poll.
            self._server.check()
            self._types[altered.column] = altered.type

    def _receive_changes(self) -> None:
        if self._check_slot() < self._end:
            # It was away when the last batch was committed.
            self._server.advance(self._end)
        until = self._log_end = self._target or self._server.end_of_log()
        decoder = pgoutput.Decoder(
            self._settings.served_table.schema,
            self._settings.served_table.name,
            self._types,
            bool(self._table.primary_key),
            self._received,
            self._reading.skips_truncate,
        )
        with self._server.messages(until, self._reading.most) as messages:
            has_changes = self._store(decoder.decode(messages), decoder)
        if has_changes:
            return
        if decoder.count < self._reading.most:
            # The log up to there has no change of the table: the server need not keep it.
            self._caught_up = until
            self._move(until)
            self._ended = self._target is not None
        else:
            self._move(decoder.end)

    def _move(self, position: int) -> None:
        """Advance the slot to a log position, `position`. The table has no changes between the last batch and this position."""
        if position < max(self._received, self._moved) + WORTH_MOVING:
            return
        write_sealed(self._fs, f"{self._directory}/{_MOVED}", json.dumps(position), durable=True)
        self._moved = position
        self._server.advance(position)

    def next_batch(self) -> Sequence[ChangesFile] | None:
        """Return the next file as the only split of a batch; None if none waits."""
        batch = super().next_batch()
        self._awaits_commit = self._awaits_commit or batch is not None
        return batch

    def committed(self, position: Offsets) -> None:
        """Advance the slot past committed batches, and delete their files but for the last 64."""
        super().committed(position)
        end, number = position.get("", [0, 0])
        self._awaits_commit = number < self._next
        if end <= self._committed:
            return
        try:
            with self._server.plainly():
                self._server.advance(end)
            self._committed = end
        except self._server.lost_errors:
            # The next commit advances the slot further.
            self._server.close()

    def notices(self) -> Sequence[str]:
        slot = self._server.slot
        return [
            f'table "{self._table.name}": the server keeps its log for replication slot "{slot}" while the job is down; '
            f"once the job is dropped: SELECT pg_drop_replication_slot('{slot}')"
        ]


def _plain(name: str) -> str:
    """Return a name with the characters that names of slots may have: small letters, digits and underscores, at most 40."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())[:40]


class _CopyStream:
    """A COPY as a readable file of bytes."""

    closed = False

    def __init__(self, copy: Any):
        self._blocks = iter(copy)
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size and (block := next(self._blocks, None)) is not None:
            parts.append(bytes(block))
            length += len(parts[-1])
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def rows_of_csv(copy: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a COPY in CSV with columns of texts; an empty value without quotes is NULL."""
    from pyarrow import csv

    stream = _CopyStream(copy)
    if not (first := stream.read(1 << 20)):
        return
    stream._rest = first + stream._rest
    reader = csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        csv.ReadOptions(column_names=list(names), use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    yield from reader
