"""The sources of the `python` connector: users' classes, which the driver asks for positions, and with which workers read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import duckdb
import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, monitor_interval
from sqlstream.connectors.python.classes import Source
from sqlstream.connectors.python.instances import errors, reading_source, source
from sqlstream.connectors.python.pushed import PushSource
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import PARTITION
from sqlstream.duck.sql import Items, Select, quote_name, quote_text, union_all
from sqlstream.errors import DataError, missing
from sqlstream.units import MILLISECOND, Duration

# How often a bounded source with pauses is asked again.
_PAUSE: Final = Duration(100 * MILLISECOND)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A split: the rows of one partition between two positions, which are anything that JSON can hold."""

    partition: str
    start: Any
    end: Any
    bytes: ClassVar[int] = 1

    @property
    def reached(self) -> tuple[str, Any]:
        return self.partition, self.end

    def to_list(self) -> list[Any]:
        return [self.partition, self.start, self.end]


class PartitionDiscovery(Discovery):
    """Hands out the new rows of each partition of a user's Source, up to the positions that it reports."""

    backlog_unit = "partitions"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self._table, self._position, self._context = table, position, context
        self._source: Source = source(table)
        self.interval = monitor_interval(table)
        self.bounded = self.interval is None
        if self.bounded and type(self._source).batch_end is not Source.batch_end:
            self.interval = _PAUSE
        self._bound: Mapping[str, Any] | None = None
        # The partitions with more to read: (position, latest position).
        self._behind: dict[str, tuple[Any, Any]] = {}
        # All partitions, once they are known; their watermarks, and the ones that hold once the partitions are read to their
        # latest positions.
        self._partitions: Sequence[str] | None = None
        self._watermarks: dict[str, datetime] = {}
        self._next_watermarks: dict[str, datetime] = {}
        self._is_asked_for_watermarks = type(self._source).watermark is not Source.watermark
        self._pending: list[PartitionRange] = []

    def poll(self) -> int:
        """Ask for the partitions, their latest positions and where the next batch ends; return the number of its splits."""
        latest = self._bounds() if self.bounded else self._ask()
        self._behind = {}
        with errors(self._table):
            for name, end in latest.items():
                start = self._position.get(name)
                start = _as_json(self._source.first_position(name)) if start is None else start
                if end is not None and start != end:
                    self._behind[name] = start, end
        self._partitions = list(latest)
        self._reach_marks()
        self._find()
        return len(self._pending)

    def _ask(self) -> Mapping[str, Any]:
        with errors(self._table):
            # Positions are compared with ones that were read from JSON.
            return {name: _as_json(self._latest(name)) for name in self._source.partitions()}

    def _latest(self, name: str) -> Any:
        """Ask for a partition's watermark, then for its latest position; return the position.

        Rows up to this position may be earlier than the watermark. So the partition is asked again only when it was handed out to
        the position; then its watermark advances, however fast rows arrive.
        """
        if self._is_asked_for_watermarks:
            if name in self._next_watermarks and name in self._behind:
                return self._behind[name][1]
            watermark = self._source.watermark(name)
            if not isinstance(watermark, datetime | None):
                raise TypeError(f"watermark() returns a datetime.datetime or None, not a {type(watermark).__name__}")
            if watermark is not None:
                self._next_watermarks[name] = watermark
        return self._source.latest_position(name)

    def _bounds(self) -> Mapping[str, Any]:
        if self._bound is None:
            latest = self._ask()
            self._bound = self._context.remember("bound", latest) if self._context.finish else latest
        return self._bound

    def _find(self) -> None:
        """Ask the user's Source where the next batch ends in each partition, and set the batch's splits."""
        with errors(self._table):
            ends = {n: _as_json(self._source.batch_end(n, start, end)) for n, (start, end) in self._behind.items()}
        self._pending = [PartitionRange(n, s, ends[n]) for n, (s, _) in self._behind.items() if ends[n] != s]

    def partitions(self) -> Mapping[str, bool]:
        if self._partitions is None:
            self.poll()
        return {
            name: name in self._behind for name in self._partitions or () if not self.bounded or name in self._behind
        }

    def watermarks(self) -> Mapping[str, datetime]:
        return self._watermarks

    def _reach_marks(self) -> None:
        """Let the next watermarks hold for partitions that have been read to their latest positions."""
        for name in self._next_watermarks.keys() - self._behind.keys():
            self._watermarks[name] = self._next_watermarks.pop(name)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def remaining(self) -> int:
        return len(self._behind)

    def next_batch(self) -> Sequence[PartitionRange] | None:
        splits = self._pending
        self._position.add(splits)
        for split in splits:
            _, latest = self._behind.pop(split.partition)
            if split.end != latest:
                self._behind[split.partition] = split.end, latest
        self._reach_marks()
        self._find()
        return splits or None

    def committed(self, position: Offsets) -> None:
        with errors(self._table):
            self._source.on_commit(dict(position.reached))

    def close(self) -> None:
        if isinstance(self._source, PushSource):
            with errors(self._table):
                self._source.stop()

    @property
    def is_told_of_commits(self) -> bool:
        """Whether the user's class defines `on_commit`."""
        return type(self._source).on_commit is not Source.on_commit


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def read_python(con: duckdb.DuckDBPyConnection, splits: Sequence[PartitionRange], table: Table) -> ReadPlan:
    """Return the plan of some splits, whose rows the user's Source reads now; they are registered in the connection.

    Raises UserCodeError or OutageError if `read` raises or returns no Arrow table, and DataError if a declared column is missing.
    """
    selects = []
    for number, split in enumerate(splits):
        with errors(table):
            rows = reading_source(table).read(split.partition, split.start, split.end)
            if not isinstance(rows, pa.Table):
                raise TypeError(f"read() returns a pyarrow.Table, not a {type(rows).__name__}")
        con.register(f"_part_{number}", rows)
        selects.append(Select(f"SELECT {_items(rows, table, split.partition)} FROM _part_{number}"))
    return ReadPlan(union_all(selects))


def _items(rows: pa.Table, table: Table, partition: str) -> Items:
    names = {name.lower(): name for name in rows.column_names}
    items = []
    for column in table.physical:
        if column == PARTITION:
            items.append(f"{quote_text(partition)} AS {PARTITION.name}")
            continue
        if column.name.lower() not in names:
            hint = missing("column", column.name, names.values())
            message = f'class "{table.options["class"]}" of table "{table.name}" returns no column "{column.name}"'
            raise DataError(message, hint=hint)
        items.append(f"CAST({quote_name(names[column.name.lower()])} AS {column.type}) AS {quote_name(column.name)}")
    return Items(", ".join(items))
