"""A file, or a part of one, that a task reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A file to read, or a part of it.

    `size` (bytes) and `mtime_ns` (nanoseconds since 1970) belong to the file, `bytes` is the size of this split. `rows` is a
    half-open range of row numbers, which begins and ends with row groups of Parquet; None is the whole file. `last` is false if
    rows of the file are left for later splits. With a `root` (`Root.text`), `path` is the file's name below it, which
    `TableSource.located` replaces by the file's path.
    """

    path: str
    size: int
    mtime_ns: int
    bytes: int
    rows: tuple[int, int] | None = None
    last: bool = True
    root: str = ""

    def to_list(self) -> list[Any]:
        """Return the split as values of JSON, which `from_list` reads."""
        first, end = self.rows or (None, None)
        return [self.path, self.size, self.mtime_ns, self.bytes, first, end, self.last, self.root]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> FileSplit:
        """Return the split that `to_list` encoded."""
        path, size, mtime_ns, share, first, end, last, root = values
        return cls(path, size, mtime_ns, share, None if first is None else (first, end), last, root)
