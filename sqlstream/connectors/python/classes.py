"""What a Python source or sink is: the classes that a project's own derive from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class Source:
    """Where rows come from: one or several partitions, each with positions that only grow.

    A position is anything that JSON can hold, such as a number of rows or a time as text. The constructor gets the table's
    other options as keyword arguments of the same name (`-` and `.` become `_`), all of them text. The driver asks for
    positions, workers read. The same two positions must always give the same rows: a batch may be read again.
    """

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions; new ones may appear, none may go."""
        return ("",)

    def first_position(self, partition: str) -> Any:
        """Return the position before the first row."""
        return 0

    def latest_position(self, partition: str) -> Any:
        """Return the position after the last row that is there now."""
        raise NotImplementedError

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        """Return the rows from one position to another, with columns of the declared names."""
        raise NotImplementedError


class Sink:
    """Where rows go, a batch at a time, on the driver.

    The constructor gets the table's options as a source does. After a crash the last batch comes again, under the same
    number and with the same rows: a sink that knows which number it wrote last writes every row exactly once.
    """

    def write(self, batch: int, table: pa.Table) -> None:
        """Write the rows of a batch. Numbers grow; a batch without rows is left out."""
        raise NotImplementedError
