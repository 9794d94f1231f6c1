"""Discovery of the versions of a Delta table, and of the files of each.

A position is [version, number of its splits read so far]. A job that begins with a snapshot reads all files of the table as the
splits of the snapshot's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.delta.location import Location, errors
from sqlstream.connectors.delta.reading import DeltaSplit
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.lakes.connector import start_mode
from sqlstream.connectors.lakes.discovery import LakeDiscovery
from sqlstream.errors import DataError, UsageError

_CDF_PROPERTY = "delta.enableChangeDataFeed"


class DeltaDiscovery(LakeDiscovery[DeltaSplit]):
    """Hands out the files of the table when the job first starts, then the changes of each version.

    Raises UsageError if the table has no change data feed and the options ask for it.
    """

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__(table, position, context)
        self._location = Location.of(table, context.project)
        self._delta = self._location.open()
        self._files = self._location.filesystem()
        # The next version to look at; None before the first look.
        self._next: int | None = None
        self._end: int | None = None
        if table.has_changes:
            self._check_feed()

    def _check_feed(self) -> None:
        if str(self._delta.metadata().configuration.get(_CDF_PROPERTY)).lower() != "true":
            message = f'table "{self._table.name}": the Delta table has no change data feed'
            hint = f"Set its property {_CDF_PROPERTY}, or leave out 'scan.change-data-feed': then only added rows are read."
            raise UsageError(message, self._table.span, hint=hint)

    def poll(self) -> int:
        """Queue the splits of new versions; return the number of splits that wait.

        Raises UsageError if the version of `scan.version` does not exist, DataError for a version that is no longer in the log
        or, without the change data feed, does more than add rows.
        """
        self._location.check_log()
        with errors(self._table, "reading"):
            self._delta.update_incremental()
            newest = int(self._delta.version())
        if self.bounded:
            newest = self._bound(newest)
        if self._next is None:
            self._begin(newest)
        assert self._next is not None
        while self._next <= newest:
            self._pending.extend(self._changes(self._next))
            self._next += 1
        return len(self._pending)

    def _bound(self, newest: int) -> int:
        if self._end is None:
            option = self._table.options.get("scan.version")
            if option is not None and int(option) > newest:
                message = f'table "{self._table.name}": the Delta table has no version {option}; the newest is {newest}'
                raise UsageError(message, self._table.option_span("scan.version", value=True))
            end = newest if option is None else int(option)
            self._end = self._context.remember("bound", end) if self._context.finish else end
        return self._end

    def _begin(self, newest: int) -> None:
        """Queue the splits after the stored position, or at the first start the splits that the start options ask for."""
        version, done = self._position.get("", [None, 0])
        mode = start_mode(self._table)
        if mode != "snapshot":
            start = int(self._table.options["scan.startup.version"]) if mode == "version" else newest + 1
            self._next = self._context.remember("start", start) if version is None else version
            if version is not None and done:
                self._next = version + 1
                self._pending.extend(self._changes(version)[done:])
            return
        first = self._context.remember("snapshot", newest)
        if version is None or version == first:
            self._pending.extend(self._snapshot(first)[done:])
            self._next = first + 1
            return
        self._pending.extend(self._changes(version)[done:] if done else ())
        self._next = version + 1 if done else version

    def _snapshot(self, version: int) -> list[DeltaSplit]:
        delta = self._location.open(version)
        with errors(self._table, "reading"):
            adds = pa.table(delta.get_add_actions()).to_pylist()
            masked = "deletionVectors" in (delta.protocol().reader_features or ())
        if masked:
            self._location.check_vectors()
        with errors(self._table, "reading"):
            masked = masked and pa.table(delta.deletion_vectors()).num_rows > 0
        if masked:
            raise self._unreadable(version, "deletion vectors")
        files = sorted((unquote(add["path"]), add["size_bytes"], _texts(add.get("partition"))) for add in adds)
        return list(_splits(version, files))

    def _changes(self, version: int) -> list[DeltaSplit]:
        """Return the splits of the changes of a version. Raises DataError as `poll` does."""
        with errors(self._table, "reading"):
            actions = self._location.actions(self._files, version)
        if actions is None:
            message = f'table "{self._table.name}": version {version} of the Delta table is no longer in its log'
            hint = "The log was cleaned before the job had read it: start the job with --fresh, or keep the log for longer."
            raise DataError(message, hint=hint)
        adds = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange")]
        removes = [a["remove"] for a in actions if "remove" in a and a["remove"].get("dataChange")]
        if self._table.has_changes:
            size = sum(int(one.get("size") or 0) for one in (*adds, *removes))
            return [DeltaSplit(version, 1, True, "", max(size, 1), {})] if adds or removes else []
        if removes:
            raise self._unreadable(version, "rows that it takes away")
        if any(add.get("deletionVector") for add in adds):
            raise self._unreadable(version, "deletion vectors")
        files = sorted((unquote(add["path"]), add["size"], dict(add["partitionValues"])) for add in adds)
        return list(_splits(version, files))

    def _unreadable(self, version: int, what: str) -> DataError:
        message = f'table "{self._table.name}": version {version} of the Delta table has {what}'
        hint = "Read its change data feed: 'scan.change-data-feed' = 'true'."
        return DataError(message, hint=None if self._table.has_changes else hint)


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {name: None if value is None else _text(value) for name, value in (values or {}).items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _splits(version: int, files: Sequence[tuple[str, int, Mapping[str, str | None]]]) -> Iterator[DeltaSplit]:
    for number, (path, size, partition) in enumerate(files, 1):
        yield DeltaSplit(version, number, number == len(files), path, size, partition)
