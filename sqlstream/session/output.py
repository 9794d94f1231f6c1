"""Rows of a job on a terminal: a header once, then a line for each change, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import duckdb

from sqlstream.connectors.interface import SessionSink
from sqlstream.connectors.registry import sink_of
from sqlstream.duck.sql import quote_name
from sqlstream.physical.plan import SinkPlan
from sqlstream.runtime.changelog import OPERATION, changelog
from sqlstream.session.texts import is_number, printable

MAX_WIDTH = 40


class Writable(Protocol):
    """A stream of text, such as a file."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class RowPrinter:
    """Prints the rows of a `print` table or a bare SELECT, at most `limit` of them.

    `is_gone` becomes true when the reader of the stream has closed it, as in `sqlstream run .. | head`.
    """

    def __init__(self, stream: Writable, sink: SinkPlan, *, title: str = ""):
        self.stream, self.sink, self.title, self.limit = stream, sink, title, sink.limit
        self.columns = sink.columns
        self.count = 0
        self.is_gone = False
        self._widths: list[int] | None = None

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.count >= self.limit

    def receive(self, files: Sequence[str]) -> None:
        """Print the rows of the Parquet files of one batch."""
        try:
            self._print_files(files)
        except BrokenPipeError:
            self.is_gone = True

    def _print_files(self, files: Sequence[str]) -> None:
        names = ", ".join(f"CAST({quote_name(name)} AS VARCHAR)" for name in (OPERATION, *dict(self.columns)))
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            for file in files:
                result = con.execute(f"SELECT {names} FROM ({changelog(self.sink, file)})")
                while rows := result.fetchmany(1000):
                    self.write(rows)

    def write(self, rows: Iterable[Sequence[str | None]]) -> None:
        """Print changes: each row has the kind of change, then the values, all as texts. None is printed as NULL."""
        shown = [["NULL" if v is None else printable(v) for v in row] for row in rows]
        if self.limit is not None:
            shown = shown[: self.limit - self.count]
        if not shown:
            return
        if self._widths is None:
            self._header([row[1:] for row in shown])
        for row in shown:
            self._line(row)
        self.count += len(shown)
        self.stream.flush()

    def _header(self, rows: list[list[str]]) -> None:
        cells = zip(*([name for name, _ in self.columns], *rows), strict=True)
        self._widths = [2, *(min(MAX_WIDTH, max(map(len, column))) for column in cells)]
        if self.title:
            self.stream.write(f"-- {self.title}\n")
        self._line(["", *(name for name, _ in self.columns)])
        self.stream.write("-+-".join("-" * width for width in self._widths) + "\n")

    def _line(self, cells: Sequence[str]) -> None:
        assert self._widths is not None
        types = ["", *(t for _, t in self.columns)]
        padded = [
            c.rjust(w) if is_number(t) else c.ljust(w) for c, w, t in zip(cells, self._widths, types, strict=True)
        ]
        self.stream.write(" | ".join(padded).rstrip() + "\n")


def printers(sinks: Sequence[SinkPlan], stream: Writable, *, titled: bool) -> dict[int, RowPrinter]:
    """Return printers for the sinks that a session prints, by their places in the plan.

    With `titled`, the name of the table is above the rows, unless it has a LIMIT.
    """
    shown = {number: sink for number, sink in enumerate(sinks) if isinstance(sink_of(sink.table), SessionSink)}
    titles = {number: sink.table.name if titled and sink.limit is None else "" for number, sink in shown.items()}
    return {number: RowPrinter(stream, sink, title=titles[number]) for number, sink in shown.items()}
