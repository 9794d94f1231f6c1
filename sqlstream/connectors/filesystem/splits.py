"""Discovery of a table's files: which files there are, in which order they are read, and which splits a batch reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.discovery import Discovery
from sqlstream.connectors.filesystem.listing import FoundFile, PathPattern
from sqlstream.connectors.filesystem.roots import Root
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.read_errors import vanished
from sqlstream.errors import DataError, UsageError
from sqlstream.units import parse_bytes, parse_count, parse_duration

DEFAULT_MAX_BYTES = 128 << 20
# Parts of a Parquet file are not smaller: opening it once more costs more than another core saves.
MIN_CUT_BYTES = 1 << 20
# Several splits per task make the work of tasks more even.
_PIECES_PER_TASK = 2


def located(split: FileSplit, root: Root) -> FileSplit:
    """Return a split with the current path of its file, instead of a name below a stored root."""
    if not split.root:
        return split
    return replace(split, path=root.file(root.renamed(split.path, split.root)), root="")


class _Progress(NamedTuple):
    mtime_ns: int
    size: int
    next_row: int


# The next row of a file that was handed out whole.
_DONE = -1
_ROOT = b"root"


class FilePosition:
    """The position of a source of files: which files were handed out, and up to which row.

    Adding a batch a second time changes nothing. With a `root`, files are stored by their names below it. `moved_from` is another
    stored root, if files below it must have moved.
    """

    def __init__(self, root: Root | None = None) -> None:
        self.root = root
        self.moved_from: str | None = None
        self._files: dict[str, _Progress] = {}
        self._partial: set[str] = set()

    @classmethod
    def from_batches(cls, batches: Iterable[Iterable[FileSplit]]) -> FilePosition:
        """Return the position after some batches, without a root."""
        seen = cls()
        for batch in batches:
            seen.add(batch)
        return seen

    def add(self, splits: Iterable[FileSplit]) -> None:
        """Move the position past the splits of a batch."""
        for split in splits:
            name = self._renamed(split.path, split.root)
            before = self._files.get(name)
            if before is not None and before.next_row == _DONE:
                continue
            done = split.rows is None or split.last
            row = _DONE if done or split.rows is None else max(split.rows[1], before.next_row if before else 0)
            self._files[name] = _Progress(split.mtime_ns, split.size, row)
            (self._partial.discard if done else self._partial.add)(name)

    def _renamed(self, name: str, root: str) -> str:
        if self.root is None or not root or root == self.root.text:
            return name
        if self.root.is_elsewhere(root):
            self.moved_from = root
        return self.root.renamed(name, root)

    def to_bytes(self) -> bytes:
        """Return the position as a Parquet file, of about 10 bytes per file."""
        columns = [
            list(self._files),
            *(map(list, zip(*self._files.values(), strict=True)) if self._files else [[]] * 3),
        ]
        types = [pa.string(), *[pa.int64()] * 3]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        sink = pa.BufferOutputStream()
        table = pa.table(arrays, names=["path", *_Progress._fields])
        table = table.replace_schema_metadata({_ROOT: self.root.text if self.root else ""})
        encodings = {"path": "DELTA_BYTE_ARRAY", **dict.fromkeys(_Progress._fields, "DELTA_BINARY_PACKED")}
        pq.write_table(table, sink, compression="zstd", use_dictionary=False, column_encoding=encodings)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes, root: Root | None = None) -> FilePosition:
        """Return the position that `to_bytes` encoded, with the names of files below `root`."""
        table = pq.read_table(pa.BufferReader(data))
        paths, *columns = (column.to_pylist() for column in table.columns)
        seen = cls(root)
        before = table.schema.metadata[_ROOT].decode()
        if root is not None and before != root.text:
            paths = [seen._renamed(path, before) for path in paths]
        seen._files = {p: _Progress(*values) for p, *values in zip(paths, *columns, strict=True)}
        seen._partial = {p for p, progress in seen._files.items() if progress.next_row != _DONE}
        return seen

    def get(self, path: str) -> _Progress | None:
        """Return (mtime_ns, size, next row) of a file by its name; None if it was not handed out. Row -1: whole file."""
        return self._files.get(path)

    @property
    def partial(self) -> frozenset[str]:
        """The names of files that were handed out in part."""
        return frozenset(self._partial)

    def __len__(self) -> int:
        return len(self._files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FilePosition) and self._files == other._files

    # It changes, so it cannot be a key; mypy takes the None for a missing method.
    __hash__ = None  # type: ignore[assignment]


class FileDiscovery(Discovery):
    """Finds the files of a table and hands them out in batches.

    Each batch takes the files of the last listing in the order (modification time, path). A file that arrives later with an older
    time is still read. With `whole`, a file is never divided. `changed` lists files that were rewritten after they had been
    handed out; they are not read again. `seen` is the position.
    """

    backlog_unit = "files"
    # The table, if its files are confined to some folders.
    restricted_table: Table | None = None

    def __init__(
        self,
        path: str,
        *,
        format: str,
        project: str,
        table: str,
        bounded: bool,
        parallelism: int = 1,
        max_files: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        seen: FilePosition | None = None,
        whole: bool = False,
    ):
        try:
            self._pattern = PathPattern(path, project)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f'table "{table}": "{path}" cannot be opened', detail=str(error)) from error
        super().__init__()
        self._format, self._table, self.bounded = format, table, bounded
        self._parallelism, self._max_files, self._max_bytes = parallelism, max_files, max_bytes
        self._whole = whole
        self._root = Root.of(path, project)
        self.seen = seen if seen is not None else FilePosition(self._root)
        self._waiting: deque[FoundFile] = deque()
        self._groups: tuple[FoundFile, list[tuple[int, int]] | None] | None = None

    @classmethod
    def of(cls, table: Table, *, project: str, parallelism: int, seen: FilePosition | None = None) -> FileDiscovery:
        """Return the discovery of a table, whose options have been checked. Raises UsageError if its path cannot be opened."""
        options = table.options
        discovery = cls(
            options["path"],
            format=options["format"].lower(),
            project=project,
            table=table.name,
            bounded="source.monitor-interval" not in options,
            parallelism=parallelism,
            max_files=parse_count(options["source.max-files-per-batch"])
            if "source.max-files-per-batch" in options
            else None,
            max_bytes=parse_bytes(options["source.max-bytes-per-batch"])
            if "source.max-bytes-per-batch" in options
            else DEFAULT_MAX_BYTES,
            seen=seen,
            # Without a key, the rows before and after an update are both needed, so one task must read them.
            whole=table.has_changes and not table.primary_key,
        )
        if table.within:
            discovery.restricted_table = table
        if not discovery.bounded:
            discovery.interval = parse_duration(options["source.monitor-interval"])
        return discovery

    def poll(self) -> int:
        """List the files; return how many are waiting to be handed out.

        Raises UsageError if the files cannot be listed, or the path of a bounded table does not exist, and DataError if a file
        that was handed out in part is gone or was rewritten.
        """
        waiting, partial = [], set(self.seen.partial)
        for file in self._listing():
            name = self._root.name(file.path)
            progress = self.seen.get(name)
            if progress is None:
                waiting.append(file)
                continue
            partial.discard(name)
            if (progress.mtime_ns, progress.size) != (file.mtime_ns, file.size):
                if progress.next_row != _DONE:
                    raise DataError(
                        f'file "{file.path}" of table "{self._table}" was rewritten while it was being read'
                    )
                if file.path not in self.changed:
                    self.changed.append(file.path)
            elif progress.next_row != _DONE:
                waiting.append(file)
        if partial:
            raise vanished(self._root.file(min(partial)), self._table)
        self._waiting = deque(sorted(waiting))
        return len(waiting)

    @property
    def waiting(self) -> int:
        """How many files are known and not yet handed out whole."""
        return len(self._waiting)

    def notices(self) -> Sequence[str]:
        if self.seen.root is None or self.seen.moved_from is None:
            return ()
        return (
            f'the files of table "{self._table}" were in "{self.seen.moved_from}" and are in '
            f'"{self.seen.root.path}" now; those whose names were read there are not read again',
        )

    def next_batch(self) -> list[FileSplit] | None:
        """Return the splits of the next batch; None if no file is waiting.

        A batch takes at most `max_files` files and `max_bytes` bytes, but at least one file or, of a Parquet file with more
        bytes, one row group. Big Parquet files are divided so that all tasks read about the same number of bytes.
        """
        portions: list[_Portion] = []
        room = self._max_bytes
        while self._waiting and (self._max_files is None or len(portions) < self._max_files):
            portion = self._portion(self._waiting[0])
            if portion.bytes > room:
                if portions:
                    break
                portion = portion.up_to(room)
            portions.append(portion)
            room -= portion.bytes
            if not portion.last:
                break
            self._waiting.popleft()
        if not portions:
            return None
        total = sum(portion.bytes for portion in portions)
        piece = max(MIN_CUT_BYTES, -(-total // (_PIECES_PER_TASK * self._parallelism)))
        splits = [s for portion in portions for s in self._cut(portion, piece)]
        self.seen.add(splits)
        return splits

    def _listing(self) -> Iterator[FoundFile]:
        try:
            files = self._pattern.files()
        except PermissionError as error:
            raise UsageError(f'table "{self._table}": no permission to list "{self._pattern.text}"') from error
        except OSError as error:
            message = f'table "{self._table}": "{self._pattern.text}" cannot be listed'
            raise UsageError(message, detail=error.strerror or str(error)) from error
        if files is None:
            if self.bounded:
                message = f'table "{self._table}": no file or directory matches "{self._pattern.text}"'
                hint = "Set 'source.monitor-interval', such as '1 s', to wait for files that arrive later."
                raise UsageError(message, hint=hint)
            return
        # An empty file has no rows yet; its writer may have just begun. Empty Parquet or Avro is an error, not an empty table.
        skip_empty = self._format not in ("parquet", "avro") or not self.bounded
        yield from (f for f in files if f.size or not skip_empty)

    def _portion(self, file: FoundFile) -> _Portion:
        if self.restricted_table is not None:
            check_files(self.restricted_table, [file.path])
        progress = self.seen.get(self._root.name(file.path))
        if progress is None and file.size <= self._max_bytes:
            return _Portion(file, file.size, None, last=True)
        groups = self._row_groups(file)
        if groups is None:
            return _Portion(file, file.size, None, last=True)
        start, row, first = 0, 0, progress.next_row if progress else 0
        while row < first:
            row += groups[start][0]
            start += 1
        rest = groups[start:]
        return _Portion(file, sum(b for _, b in rest), (first, rest), last=True)

    def _cut(self, portion: _Portion, piece: int) -> list[FileSplit]:
        file, groups = portion.file, portion.groups
        if groups is None and portion.bytes > piece and (all_groups := self._row_groups(file)):
            groups = (0, all_groups)
        first, rest = groups or (0, [])
        pieces = max(1, min(-(-portion.bytes // piece), len(rest)))
        whole = FileSplit(self._root.name(file.path), file.size, file.mtime_ns, portion.bytes, root=self._root.text)
        if groups is None or (pieces == 1 and first == 0 and portion.last):
            return [whole]
        splits: list[FileSplit] = []
        row = first
        for part in _even_parts(rest, pieces):
            end = row + sum(rows for rows, _ in part)
            splits.append(replace(whole, bytes=sum(share for _, share in part), rows=(row, end), last=False))
            row = end
        return [*splits[:-1], replace(splits[-1], last=portion.last)]

    def _row_groups(self, file: FoundFile) -> list[tuple[int, int]] | None:
        """Return (rows, bytes) per row group of a Parquet file, or None for a file that has to be read in one piece."""
        if self._groups is not None and self._groups[0] == file:
            return self._groups[1]
        cut = self._format == "parquet" and not self._whole
        groups = self._read_row_groups(file) if cut else None
        self._groups = (file, groups)
        return groups

    def _read_row_groups(self, file: FoundFile) -> list[tuple[int, int]] | None:
        try:
            with self._pattern.open(file.path) as stream:
                metadata = pq.read_metadata(stream)
            names = {name.lower() for name in metadata.schema.to_arrow_schema().names}
        except Exception:
            # Arrow may raise anything for a damaged file. The worker that reads the file raises the error about it.
            return None
        if "file_row_number" in names:
            # DuckDB selects a row range by a column of this name, which the file's own column would hide.
            return None
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        total = sum(g.total_byte_size for g in groups)
        if not total:
            return None
        return [(g.num_rows, -(-file.size * g.total_byte_size // total)) for g in groups]


@dataclass(frozen=True, slots=True)
class _Portion:
    """The part of a file that a batch takes: the whole file if `groups` is None, else some row groups.

    `groups` is (number of the first row, [(rows, bytes) of each row group]). `last` is True if no rows of the file are left.
    """

    file: FoundFile
    bytes: int
    groups: tuple[int, list[tuple[int, int]]] | None
    last: bool

    def up_to(self, room: int) -> _Portion:
        """Return the portion cut to the row groups that fit into `room` bytes, but to at least one."""
        if self.groups is None:
            return self
        first, groups = self.groups
        count, total = 1, groups[0][1]
        while count < len(groups) and total + groups[count][1] <= room:
            total += groups[count][1]
            count += 1
        return _Portion(self.file, total, (first, groups[:count]), last=count == len(groups))


def _even_parts(groups: list[tuple[int, int]], pieces: int) -> list[list[tuple[int, int]]]:
    """Divide row groups, (rows, bytes) each, in order, into at most `pieces` parts of about equal bytes."""
    total = sum(share for _, share in groups) or 1
    parts: list[list[tuple[int, int]]] = [[] for _ in range(pieces)]
    before = 0
    for rows, share in groups:
        parts[min(pieces - 1, (before + share // 2) * pieces // total)].append((rows, share))
        before += share
    return [part for part in parts if part]
