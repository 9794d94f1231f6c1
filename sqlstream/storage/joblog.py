"""The job log: what each version of a job read, emitted and held, one entry per version.

An entry is written as a file of its own; every 64 of them are gathered into one file of lines, so that an hour of small
batches is a few hundred files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlstream.storage.filesystem import Filesystem

CHUNK = 64


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What the batch did that made a version, in numbers per scan and per operator.

    `committed_at` is in milliseconds, `watermark` in microseconds, None before the first.
    """

    version: int
    committed_at: int
    watermark: int | None
    rows_in: int = 0
    rows_out: int = 0
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LogEntry:
        return cls(**json.loads(text))


def fell_idle(active_at: int, timeout: int, now: int) -> int | None:
    """Return when a source fell idle: `timeout` after its last row, None as long as that has not passed. All in milliseconds.

    A timeout of 0 never passes.
    """
    since = active_at + timeout
    return since if timeout and now >= since else None


def holders(marks: Mapping[str, int | None], idle: Collection[str]) -> set[str]:
    """Return the sources that hold the watermark, given how far each is: those furthest behind of all that are not idle.

    When all are idle, none is left out.

    >>> holders({"a": 5, "b": 9, "c": 9}, {"a"}) == {"b", "c"}, holders({"a": 5, "b": None}, set())
    (True, {'b'})
    """
    active = {name: mark for name, mark in marks.items() if name not in idle} or marks
    lowest = None if None in active.values() else min((m for m in active.values() if m is not None), default=None)
    return {name for name, mark in active.items() if mark == lowest}


class JobLog:
    """The log in a directory. One process appends and prunes; others read at any time.

    An entry may be there before its version is committed: readers say up to which version they want to see.
    """

    def __init__(self, fs: Filesystem, directory: str):
        self._fs = fs
        self._directory = directory

    def append(self, entry: LogEntry) -> None:
        """Add the entry of a version, in place of one that an earlier attempt of its batch wrote."""
        self._fs.write_text_atomic(f"{self._directory}/{entry.version:010d}.json", entry.to_json() + "\n")
        # The newest version may be written again; what comes before it is committed.
        singles = [f for f in self._files() if f.single and f.first < entry.version]
        if len(singles) >= CHUNK:
            self._gather(singles)

    def _gather(self, singles: list[_File]) -> None:
        text = "".join(self._fs.read_text(f"{self._directory}/{f.name}") for f in singles)
        # The chunk is there before they go: a reader may see an entry twice, never not at all.
        self._fs.write_text_atomic(f"{self._directory}/{singles[0].first:010d}-{singles[-1].last:010d}.json", text)
        for file in singles:
            self._fs.delete(f"{self._directory}/{file.name}")

    def entries(self, up_to: int | None = None, since: int = 0) -> list[LogEntry]:
        """Return the entries of the versions `since` to `up_to`, both included, in order."""
        while True:
            # A file that vanishes was gathered into another one, or pruned: look again.
            with contextlib.suppress(FileNotFoundError):
                return self._entries(up_to, since)

    def _entries(self, up_to: int | None, since: int) -> list[LogEntry]:
        found: dict[int, LogEntry] = {}
        for file in self._files():
            if file.last >= since and (up_to is None or file.first <= up_to):
                for line in self._fs.read_text(f"{self._directory}/{file.name}").splitlines():
                    entry = LogEntry.from_json(line)
                    found[entry.version] = entry
        return [found[v] for v in sorted(found) if v >= since and (up_to is None or v <= up_to)]

    def entry(self, version: int) -> LogEntry | None:
        """Return the entry of a version, if there is one."""
        return next(iter(self.entries(version, version)), None)

    def oldest_retained(self, newest: int, now_ms: int, retention_ms: int, retention_batches: int = 100) -> int:
        """Return the oldest version to keep.

        It is the one that was current `retention_ms` ago, or `retention_batches` versions ago if that is older.
        """
        entries = self.entries(newest - retention_batches)
        old = [e.version for e in entries if e.committed_at <= now_ms - retention_ms]
        return old[-1] if old else entries[0].version if entries else 0

    def prune(self, oldest_version: int) -> None:
        """Delete files that only have entries of older versions."""
        for file in self._files():
            if file.last < oldest_version:
                self._fs.delete(f"{self._directory}/{file.name}")

    def _files(self) -> list[_File]:
        """Return the chunks, then the single entries: one that is in a chunk too counts by its own file."""
        files = [_File.parse(name) for name in self._fs.list(self._directory)]
        return sorted(files, key=lambda f: (f.single, f.first))


class _File(NamedTuple):
    name: str
    first: int
    last: int
    single: bool

    @classmethod
    def parse(cls, name: str) -> _File:
        numbers = [int(number) for number in name.removesuffix(".json").split("-")]
        return cls(name, numbers[0], numbers[-1], len(numbers) == 1)
