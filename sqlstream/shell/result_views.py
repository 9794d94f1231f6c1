"""The three views of the changes of a SELECT, named as in Flink's SQL client: table, changelog, tableau."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sqlstream.physical.plan import SinkPlan
from sqlstream.session.changes import Change, RowPrinter, TextStream
from sqlstream.session.rendering import is_number, printable

# Lines of a terminal that hold no rows: the header, its rule, the count, the line about the job, the cursor.
_OTHER_LINES = 5
_COLOURS = {"+I": "green", "+U": "cyan", "-U": "yellow", "-D": "red"}

Row = tuple[str | None, ...]


class ResultView(ABC):
    """Shows the changes of a result, and counts them; values are texts, None for NULL."""

    count = 0

    @abstractmethod
    def add(self, changes: Sequence[Change]) -> None:
        """Add changes, in their order."""

    def frame(self, console: Console) -> RenderableType | None:
        """Return the picture that is redrawn while changes come; None if the view draws none."""
        return None

    @abstractmethod
    def last(self, console: Console, *, whole: bool) -> RenderableType | None:
        """Return the picture that stays on the terminal; `whole`: all rows, as the input has ended."""


class MaterializedTable:
    """The present rows of a result. An update replaces the row before it; beyond `most` rows the oldest are dropped.

    A change takes constant time, and removed rows take no memory.
    """

    def __init__(self, most: int):
        self.most = most
        # Ordered dictionaries, whose first item is found at once: that of a dict is found behind all that were deleted before it.
        # The rows by their positions, in the order of the positions; None where the row before an update was taken away.
        self._rows: OrderedDict[int, Row | None] = OrderedDict()
        # The positions of equal rows, in the order in which they came.
        self._positions: dict[Row, OrderedDict[int, None]] = {}
        # The positions without a row, for the rows after updates.
        self._freed: OrderedDict[int, None] = OrderedDict()
        self._next = 0

    def __len__(self) -> int:
        return len(self._rows) - len(self._freed)

    def rows(self) -> Iterator[Row]:
        """Yield the rows in the order in which they came; an update has the place of the row before it."""
        return (row for row in self._rows.values() if row is not None)

    def newest(self, count: int) -> list[Row]:
        """Return the last `count` rows of `rows`."""
        there = (row for row in reversed(self._rows.values()) if row is not None)
        return [*islice(there, count)][::-1]

    def apply(self, kind: str, row: Row) -> None:
        """Apply a change of a kind (+I, +U, -U or -D). Taking away a row that is not there does nothing."""
        if kind in ("+I", "+U"):
            self._put(row, is_update=kind == "+U")
        elif row in self._positions:
            position = self._take(row)
            if kind == "-U":
                self._rows[position] = None
                self._freed[position] = None
            else:
                del self._rows[position]

    def _put(self, row: Row, *, is_update: bool) -> None:
        if is_update and self._freed:
            position, _ = self._freed.popitem(last=False)
        else:
            position, self._next = self._next, self._next + 1
        self._rows[position] = row
        self._positions.setdefault(row, OrderedDict())[position] = None
        while len(self._rows) > self.most:
            self._drop_oldest()

    def _take(self, row: Row, position: int | None = None) -> int:
        """Forget that a row is at `position`, by default the oldest position of a row like it; return the position."""
        positions = self._positions[row]
        position = next(iter(positions)) if position is None else position
        del positions[position]
        if not positions:
            del self._positions[row]
        return position

    def _drop_oldest(self) -> None:
        """Drop a position that has no row, else the oldest row."""
        if self._freed:
            # No update has come for it yet; if one comes, its row is a new one.
            position, _ = self._freed.popitem(last=False)
            del self._rows[position]
            return
        position, row = self._rows.popitem(last=False)
        assert row is not None
        self._take(row, position)


class TableView(ResultView):
    """The result as a table that is updated in place."""

    def __init__(self, sink: SinkPlan, most: int):
        self._sink = sink
        self._table = MaterializedTable(most)

    def add(self, changes: Sequence[Change]) -> None:
        self.count += len(changes)
        for change in changes:
            self._table.apply(change.kind, tuple(change.row.values()))

    def frame(self, console: Console) -> RenderableType:
        return self._shown(max(console.height - _OTHER_LINES, 3))

    def last(self, console: Console, *, whole: bool) -> RenderableType:
        return self._shown(len(self._table)) if whole else self.frame(console)

    def _shown(self, room: int) -> RenderableType:
        table = _table(self._sink)
        rows = self._table.newest(room) if room else []
        for row in rows:
            table.add_row(*map(_cell, row))
        total = len(self._table)
        shown = f", the last {len(rows):,} are shown" if len(rows) < total else ""
        return Group(table, Text(f"({total:,} {'row' if total == 1 else 'rows'}{shown})"))


class ChangelogView(ResultView):
    """The last 1,000 changes, each kind in its colour."""

    def __init__(self, sink: SinkPlan):
        self._sink = sink
        self._changes: deque[Change] = deque(maxlen=1000)
        self._kinds: Counter[str] = Counter()

    def add(self, changes: Sequence[Change]) -> None:
        self.count += len(changes)
        self._kinds.update(change.kind for change in changes)
        self._changes.extend(changes)

    def frame(self, console: Console) -> RenderableType:
        room = max(console.height - _OTHER_LINES, 3)
        table = _table(self._sink, "op")
        for change in islice(self._changes, max(len(self._changes) - room, 0), None):
            table.add_row(change.kind, *map(_cell, change.row.values()), style=_COLOURS.get(change.kind, ""))
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self._kinds.items()))
        return Group(table, Text(f"({self.count:,} changes{': ' if kinds else ''}{kinds})"))

    def last(self, console: Console, *, whole: bool) -> RenderableType:
        return self.frame(console)


class TableauView(ResultView):
    """A line per change, written when it comes."""

    def __init__(self, sink: SinkPlan, stream: TextStream):
        self._printer = RowPrinter(stream, sink)

    def add(self, changes: Sequence[Change]) -> None:
        self.count += len(changes)
        self._printer.write([(change.kind, *change.row.values()) for change in changes])

    def last(self, console: Console, *, whole: bool) -> RenderableType:
        return Text(f"Received a total of {self.count:,} {'row' if self.count == 1 else 'rows'}")


def _table(sink: SinkPlan, *before: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in before:
        table.add_column(name)
    for name, type in sink.columns:
        table.add_column(printable(name), justify="right" if is_number(type) else "left", overflow="fold")
    return table


def _cell(value: str | None) -> Text:
    return Text("NULL", style="dim") if value is None else Text(printable(value))
