"""A file that tasks read, or a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A file to read, or a half-open range of its rows, which begins and ends with row groups of Parquet.

    `size` and `mtime_ns` are the file's, `bytes` is the share of this split. After `last`, nothing of the file is left.
    With a `root`, as it is remembered, `path` is the name of the file below it, and its source has to locate it.
    """

    path: str
    size: int
    mtime_ns: int
    bytes: int
    rows: tuple[int, int] | None = None
    last: bool = True
    root: str = ""

    def to_list(self) -> list[Any]:
        """Return the split as JSON can hold it."""
        first, end = self.rows or (None, None)
        return [self.path, self.size, self.mtime_ns, self.bytes, first, end, self.last, self.root]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> FileSplit:
        """Return the split that `to_list` described."""
        path, size, mtime_ns, share, first, end, last, root = values
        return cls(path, size, mtime_ns, share, None if first is None else (first, end), last, root)
