"""Discovery of the snapshots of an Iceberg table, and of the files of each.

A position has the fields of `SnapshotPosition`. The rows with which a job begins are read as the files of one snapshot, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.iceberg.catalogs import CatalogTable, errors
from sqlstream.connectors.iceberg.reading import SnapshotSplit, planned
from sqlstream.connectors.lakes.connector import start_mode
from sqlstream.connectors.lakes.discovery import LakeDiscovery
from sqlstream.errors import DataError, UsageError

# More files than a snapshot has: all of them were read.
ALL = 1 << 40


class SnapshotPosition(NamedTuple):
    """A position: of the snapshot with this sequence number and id, the first `files` files have been read."""

    sequence: int
    files: int
    snapshot: int | None


class SnapshotDiscovery(LakeDiscovery[SnapshotSplit]):
    """Hands out the files of the table when the job first starts, then the files that each snapshot appends."""

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__(table, position, context)
        self._located = CatalogTable.of(table, context.project)
        self._iceberg = self._located.open()
        # The position after the last snapshot whose files are queued; None before the first poll.
        self._seen: SnapshotPosition | None = None
        self._end: int | None = None

    def poll(self) -> int:
        """Queue the files of new snapshots; return the number of splits that wait.

        Raises UsageError for a table of format version 1, or a snapshot that does not exist. Raises DataError if snapshots
        have expired or were rolled back, or a snapshot does more than append rows.
        """
        with errors(self._table, "reading"):
            self._iceberg = self._located.open()
        if self._iceberg.metadata.format_version < 2:
            message = f'table "{self._table.name}": the Iceberg table has format version 1, which is too old'
            raise UsageError(message, self._table.span, hint="Upgrade it to version 2.")
        newest = self._newest()
        if self._seen is None:
            self._seen = self._begin(newest)
        for snapshot in self._behind(self._seen, newest):
            self._pending.extend(self._appended(snapshot))
            self._seen = SnapshotPosition(snapshot.sequence_number, ALL, snapshot.snapshot_id)
        return len(self._pending)

    def _newest(self) -> Any:
        """Return the last snapshot to read, None in an empty table."""
        if not self.bounded:
            return self._iceberg.current_snapshot()
        if self._end is None:
            option, current = self._table.options.get("scan.snapshot-id"), self._iceberg.current_snapshot()
            end = int(option) if option is not None else current.snapshot_id if current is not None else -1
            self._end = self._context.remember("bound", end) if self._context.finish else end
        return self._snapshot(self._end) if self._end >= 0 else None

    def _snapshot(self, number: int) -> Any:
        snapshot = self._iceberg.snapshot_by_id(number)
        if snapshot is None:
            message = f'table "{self._table.name}": the Iceberg table has no snapshot {number}'
            raise UsageError(message, self._table.span, hint="It has expired, or never was.")
        return snapshot

    def _begin(self, newest: Any) -> SnapshotPosition:
        """Queue the files after the stored position, or at the first start the files that the start options ask for."""
        position = self._position.get("")
        mode = start_mode(self._table)
        now = None if newest is None else [newest.sequence_number, ALL, newest.snapshot_id]
        if mode == "snapshot":
            first = self._context.remember("snapshot", now)
            if first is not None and (position is None or (position[2] == first[2] and position[1] < ALL)):
                self._pending.extend(self._whole(self._snapshot(first[2]))[position[1] if position else 0 :])
                return SnapshotPosition(*first)
        elif position is None:
            start = self._start(now) if mode == "snapshot-id" else now
            first = self._context.remember("start", start)
            return SnapshotPosition(*first) if first is not None else SnapshotPosition(0, ALL, None)
        if position is None:
            return SnapshotPosition(0, ALL, None)
        reached = SnapshotPosition(*position)
        if reached.files < ALL and reached.snapshot is not None:
            self._pending.extend(self._appended(self._snapshot(reached.snapshot))[reached.files :])
        return SnapshotPosition(reached.sequence, ALL, reached.snapshot)

    def _start(self, now: Any) -> list[Any]:
        first = self._snapshot(int(self._table.options["scan.startup.snapshot-id"]))
        return [first.sequence_number - 1, ALL, first.parent_snapshot_id]

    def _behind(self, reached: SnapshotPosition, newest: Any) -> list[Any]:
        """Return the snapshots after a position up to the newest, oldest first. Raises DataError if one of them has expired."""
        snapshots: list[Any] = []
        at = newest
        while at is not None and at.sequence_number > reached.sequence:
            snapshots.append(at)
            parent = at.parent_snapshot_id
            at = None if parent is None else self._iceberg.snapshot_by_id(parent)
            if at is None and parent != reached.snapshot:
                message = (
                    f'table "{self._table.name}": snapshots of the Iceberg table expired before the job had read them'
                )
                raise DataError(message, hint="Start the job with --fresh, or keep snapshots for longer.")
        if at is not None and reached.snapshot not in (None, at.snapshot_id) and snapshots:
            message = f'table "{self._table.name}": the Iceberg table was rolled back behind what the job has read'
            raise DataError(message, hint="Start the job with --fresh.")
        return snapshots[::-1]

    def _whole(self, snapshot: Any) -> list[SnapshotSplit]:
        return self._splits(snapshot, whole=True)

    def _appended(self, snapshot: Any) -> list[SnapshotSplit]:
        """Return the files that a snapshot appends, none if it only rewrites files. Raises DataError if it does more."""
        operation = snapshot.summary.operation.value if snapshot.summary is not None else "append"
        if operation == "replace":
            return []
        if operation != "append":
            message = f'table "{self._table.name}": snapshot {snapshot.snapshot_id} of the Iceberg table is no append'
            detail = f"It is of the kind {operation}: it changes rows, or takes some away."
            hint = "Only appended rows can be followed. Read the table as it is now, without source.monitor-interval."
            raise DataError(message, detail=detail, hint=hint)
        return self._splits(snapshot, whole=False)

    def _splits(self, snapshot: Any, *, whole: bool) -> list[SnapshotSplit]:
        with errors(self._table, "reading"):
            tasks = sorted(planned(self._iceberg, snapshot.snapshot_id, whole).items())
        return [
            SnapshotSplit(
                snapshot.sequence_number,
                snapshot.snapshot_id,
                whole,
                ALL if number == len(tasks) else number,
                path,
                task.file.file_size_in_bytes,
            )
            for number, (path, task) in enumerate(tasks, 1)
        ]
