"""The connector: its options, what the driver finds, and what workers read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets, monitor_interval
from sqlstream.connectors.formats.value_source import BY_NUMBER, NUMBER, PLACE, ValueRows
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext
from sqlstream.connectors.options import MAX_BYTES, MONITOR, TEXT, OptionType, TableOption
from sqlstream.connectors.read_plan import VALUE
from sqlstream.errors import DataError, UsageError
from sqlstream.units import parse_bytes
from sqlstream_jsonl_tail.tail import Tail, line_end, lines, look, whole_lines

# A task gets at least so many bytes.
_TASK_BYTES = 1 << 20


def _on_rotation(text: str) -> str:
    if text not in ("fail", "restart"):
        raise ValueError(f'"{text}" is neither fail nor restart')
    return text


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Whole lines of a file: the bytes [start, end). `identity` says of which file; workers find it at `path`."""

    identity: str
    start: int
    end: int
    path: str = ""

    @property
    def bytes(self) -> int:
        return self.end - self.start

    @property
    def reached(self) -> tuple[str, int]:
        return self.identity, self.end

    def to_list(self) -> list[Any]:
        # Without the path: a project may be moved.
        return [self.identity, self.start, self.end]


class TailDiscovery(Discovery):
    """Finds the lines that a file has got since the last batch. Its position is an offset for each file that it has read."""

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext):
        super().__init__()
        self.interval = monitor_interval(table)
        self.bounded = self.interval is None
        self._table, self._position, self._context = table, position, context
        self._path = os.path.join(context.project, table.options["path"])
        self._restarts = table.options.get("on-rotation", "fail") == "restart"
        self._max_bytes = parse_bytes(table.options.get(MAX_BYTES.name, MAX_BYTES.default))
        self._file: Tail | None = None
        self._start = self._end = 0
        self._bound: int | None = None

    def poll(self) -> int:
        """Look at the file; return how many bytes of whole lines wait."""
        self._file = found = look(self._path)
        self._start = self._end = 0
        if found is None:
            if self.bounded and not os.path.exists(self._path):
                hint = "Set 'source.monitor-interval', such as '1 s', to wait for it."
                raise UsageError(f'table "{self._table.name}": the file "{self._path}" does not exist', hint=hint)
            return 0
        self._start = self._offset(found)
        self._end = whole_lines(found.path, self._start, self._limit(found))
        return self.waiting

    def _offset(self, found: Tail) -> int:
        """Return how far a file was read. Raises DataError for one that was rotated or truncated, unless that is a restart."""
        reached = self._position.get(found.identity, 0)
        is_other = bool(self._position.reached) and found.identity not in self._position.reached
        if not is_other and reached <= found.size:
            return int(reached)
        if self._restarts:
            return 0
        was = (
            "is another one than was read: its first line differs"
            if is_other
            else "is shorter than what was read of it"
        )
        hint = "Put the file back, or set 'on-rotation' = 'restart' to read a new one from its start."
        raise DataError(f'file "{self._path}" of table "{self._table.name}" {was}', hint=hint)

    def _limit(self, found: Tail) -> int:
        """Return where a bounded job stops: at the end that the file had when the job first started."""
        if not self.bounded:
            return found.size
        if self._bound is None:
            self._bound = self._context.remember("bound", found.size) if self._context.finish else found.size
        return min(found.size, self._bound)

    @property
    def waiting(self) -> int:
        return self._end - self._start

    def next_batch(self) -> Sequence[ByteRange] | None:
        """Return whole lines of about so many bytes as a batch may read, cut for the tasks."""
        if self._file is None or not self.waiting:
            return None
        path, start = self._file.path, self._start
        end = self._cut(path, start, start + self._max_bytes)
        size = max(_TASK_BYTES, -(-(end - start) // self._context.parallelism))
        splits: list[ByteRange] = []
        while start < end:
            stop = min(end, self._cut(path, start, start + size))
            splits.append(ByteRange(self._file.identity, start, stop))
            start = stop
        self._position.add(splits)
        self._start = end
        return splits

    def committed(self, position: Offsets) -> None:
        """Write down how far the file was read for good, for whoever rotates it."""
        name = self._table.options.get("position-path")
        if name is None or self._file is None:
            return
        path = os.path.join(self._context.project, name)
        with open(f"{path}.tmp", "w") as opened:
            opened.write(f"{position.get(self._file.identity, 0)}\n")
        os.replace(f"{path}.tmp", path)

    def _cut(self, path: str, start: int, wanted: int) -> int:
        """Return the end of a line near an offset: before it, unless one line is longer."""
        if wanted >= self._end:
            return self._end
        end = whole_lines(path, start, wanted)
        return end if end > start else line_end(path, start, self._end)


class TailedLines(ValueRows):
    """The lines of a file: each is a value of the table's format, its number is its offset."""

    replay = Replay.REPLAYABLE
    replay_reason = "if the file only grows: lines are read again by their offsets"
    rewinds = True
    slot: str | None = None
    # Of two lines the one with the greater offset came later.
    order = BY_NUMBER
    split_type = ByteRange

    def discovery(self, position: Offsets, context: DiscoveryContext) -> TailDiscovery:
        return TailDiscovery(self.table, position, context)

    def located(self, split: ByteRange, context: ReadContext) -> ByteRange:
        return replace(split, path=os.path.join(context.project, self.table.options["path"]))

    def values(self, splits: Sequence[ByteRange]) -> pa.Table:
        found = [(f'file "{split.path}"', *line) for split in splits for line in self._lines(split)]
        numbers = pa.array([number for _, number, _ in found], pa.int64())
        columns = {
            # An empty line is no row.
            VALUE: pa.array([text if text.strip() else None for _, _, text in found], pa.binary()),
            PLACE: pa.array([place for place, _, _ in found], pa.string()),
            NUMBER: numbers,
            "offset": numbers,
        }
        return pa.table(columns)

    def _lines(self, split: ByteRange) -> list[tuple[int, bytes]]:
        found = look(split.path)
        read = lines(split.path, split.start, split.end) if found and found.identity == split.identity else None
        if read is None:
            hint = "Put the file back, and run the job again: it continues after its last committed batch."
            message = f'file "{split.path}" of table "{self.table.name}" was rotated or truncated before it was read'
            raise DataError(message, hint=hint)
        return list(read)


class JsonlTail(Connector):
    """A file of lines that grows, followed as long as the job runs."""

    name = "jsonl-tail"
    summary = "a file of JSON lines that grows"
    reach = Reach.FILE
    options = (
        TableOption("path", TEXT, "the file, relative to the project", required=True, example="events.jsonl"),
        TableOption(
            "on-rotation",
            OptionType("fail or restart", _on_rotation),
            "what to do about a file that was replaced or truncated",
            default="fail",
            mutable=True,
        ),
        TableOption(
            "position-path",
            TEXT,
            "a file that is told how many bytes committed batches have read",
            mutable=True,
            example="events.position",
        ),
        replace(MONITOR, mutable=True),
        MAX_BYTES,
    )
    formats = ("json", "debezium-json")
    of_values = True
    changelogs = True
    # ruff asks for ClassVar, which the base class says.
    metadata = {"offset": "where the line begins, in bytes"}  # noqa: RUF012
    source_type = TailedLines
