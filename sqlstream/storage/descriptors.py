"""Descriptors of batches on disk: what each batch reads.

The newest are files of their own. Older ones are folded: one file says how far the job has read, which is all that a restart
needs. What each folded batch has read is packed beside it, for tools that read it again; no job depends on it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlstream.errors import DamageError
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import GONE, damage, read_sealed, write_sealed

_FOLD = "seen-"
_PACKED = "read"
# Consecutive packs are merged when together they reach the next size, this many times as large, up to the largest. So
# there are few packs, and each descriptor is rewritten few times.
_FAN, _LARGEST = 8, 1 << 16
# A pack of this many bytes is not merged either: merging holds all descriptors in memory, where they take some ten times as much.
_FULL = 1 << 19
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """How far a job has read up to the descriptor `sequence`: the position of each scan, encoded by its source.

    `arrived` is the next position in the order of arrival (see `ARRIVED` in `duck/internal_columns.py`).
    """

    sequence: int
    seen: tuple[bytes, ...]
    arrived: int = 0

    @property
    def name(self) -> str:
        """The name of the fold's file."""
        return f"{_FOLD}{self.sequence:010d}.json"

    def to_json(self) -> str:
        seen = [base64.b64encode(data).decode() for data in self.seen]
        return json.dumps({"sequence": self.sequence, "seen": seen, "arrived": self.arrived})


class Descriptors:
    """The descriptors of a job, in its folder of positions. One process writes; others may read at any time."""

    def __init__(self, fs: Filesystem, directory: str):
        self._fs, self._directory = fs, directory
        self.next = f"{directory}/next"

    def path(self, sequence: int) -> str:
        """Return the file of a descriptor that is not folded."""
        return f"{self.next}/{sequence:010d}.json"

    def numbers(self) -> list[int]:
        """Return the numbers of the descriptors that are not folded, in order."""
        return sorted(int(name.removesuffix(".json")) for name in self._fs.list(self.next) if name[:1].isdigit())

    # -- the fold

    def folds(self) -> list[str]:
        """Return the names of the files with folds, the newest last; after a crash there may be an older one."""
        return sorted(name for name in self._fs.list(self._directory) if name.startswith(_FOLD))

    def fold(self) -> Fold | None:
        """Return the newest fold, None where nothing is folded. Raises DamageError."""
        folds = self.folds()
        if not folds:
            return None
        value = json.loads(read_sealed(self._fs, f"{self._directory}/{folds[-1]}"))
        seen = tuple(base64.b64decode(text) for text in value["seen"])
        # Earlier versions of sqlstream did not write the position.
        return Fold(value["sequence"], seen, value.get("arrived", 0))

    def write_fold(self, fold: Fold, folded: Iterable[int]) -> None:
        """Fold descriptors: pack their texts, write the fold, delete their files. It can be repeated after a crash.

        Raises DamageError and FileNotFoundError for descriptors that cannot be read.
        """
        folded, folds = list(folded), self.folds()
        texts = self._fs.together(partial(read_sealed, self._fs), list(map(self.path, folded)))
        self._pack(dict(zip(folded, texts, strict=True)))
        # Nothing else says what was read so far.
        write_sealed(self._fs, f"{self._directory}/{fold.name}", fold.to_json(), durable=True)
        self._fs.delete_all(f"{self._directory}/{other}" for other in folds if other != fold.name)
        self._fs.delete_all(map(self.path, folded))

    @staticmethod
    def folded_to(name: str) -> int:
        """Return the number of the last descriptor in a fold, from the name of its file.

        >>> Descriptors.folded_to("seen-0000000127.json")
        127
        """
        return int(name.removeprefix(_FOLD).removesuffix(".json"))

    @staticmethod
    def is_fold(name: str) -> bool:
        """Return whether a file of the folder is a fold, by its name."""
        return name.startswith(_FOLD)

    # -- the texts of folded descriptors

    def packs(self) -> list[str]:
        """Return the files with the texts of folded descriptors, by path below the folder."""
        return [f"{_PACKED}/{name}" for name in self._fs.list(f"{self._directory}/{_PACKED}")]

    def texts(self, last: int, first: int = 0) -> Iterator[str] | None:
        """Return the texts of the descriptors `first` to `last`, in order; None if one of them is not stored.

        Raises DamageError, also during iteration.
        """
        for _ in range(_LOOKS):
            # A file that vanishes is folded, or packed with others: look again.
            with contextlib.suppress(FileNotFoundError):
                return self._texts(last, first)
        raise damage(self._directory, "changes faster than it can be read")

    def _texts(self, last: int, first: int) -> Iterator[str] | None:
        # In this order: what is packed meanwhile is among both.
        numbers = self.numbers()
        packs = sorted(map(_Pack.parse, self.packs()))
        paths = [f"{self._directory}/{pack.name}" for pack in packs] + [self.path(n) for n in numbers if n <= last]
        sequences = {n for pack in packs for n in range(pack.first, pack.last + 1)} | set(numbers)
        if not sequences.issuperset(range(first, last + 1)):
            return None
        return self._in_order(list(self._fs.together(partial(read_sealed, self._fs), paths)), len(packs), last, first)

    def _in_order(self, files: Sequence[str], packs: int, last: int, first: int) -> Iterator[str]:
        done = first - 1
        for index, file in enumerate(files):
            for sequence, text in sorted((_unpacked(file) if index < packs else _by_number(file)).items()):
                # After a crash two files may have it.
                if done < sequence <= last:
                    if sequence > done + 1:
                        raise damage(self.path(done + 1), GONE)
                    yield text
                    done = sequence

    def _pack(self, texts: Mapping[int, str]) -> None:
        if not texts:
            return
        self._write_pack(texts)
        while (group := _due(self._sized())) is not None:
            try:
                files = [read_sealed(self._fs, f"{self._directory}/{pack.name}") for pack in group]
            except DamageError:
                # It stays where it is, for a check to find the damage.
                return
            self._write_pack({n: text for file in files for n, text in _unpacked(file).items()})
            self._fs.delete_all(f"{self._directory}/{pack.name}" for pack in group)

    def _sized(self) -> list[_Pack]:
        return [_Pack.parse(f"{_PACKED}/{f.name}", f.bytes) for f in self._fs.files(f"{self._directory}/{_PACKED}")]

    def _write_pack(self, texts: Mapping[int, str]) -> None:
        body = "".join(text if text.endswith("\n") else f"{text}\n" for _, text in sorted(texts.items()))
        data = base64.b64encode(zlib.compress(body.encode())).decode()
        name = f"{_PACKED}/{min(texts):010d}-{max(texts):010d}.json"
        write_sealed(self._fs, f"{self._directory}/{name}", json.dumps(data), durable=True)


def _unpacked(text: str) -> dict[int, str]:
    return _by_number(zlib.decompress(base64.b64decode(json.loads(text))).decode())


def _by_number(text: str) -> dict[int, str]:
    """Return the descriptors in a text by their numbers, which each line contains."""
    texts: dict[int, str] = {}
    for line in text.splitlines():
        sequence = json.loads(line)["sequence"]
        texts[sequence] = f"{texts.get(sequence, '')}{line}\n"
    return texts


@dataclass(frozen=True, slots=True, order=True)
class _Pack:
    first: int
    last: int
    name: str
    bytes: int = 0

    @classmethod
    def parse(cls, name: str, bytes: int = 0) -> _Pack:
        first, last = name.rpartition("/")[2].removesuffix(".json").split("-")
        return cls(int(first), int(last), name, bytes)

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def tier(self) -> int:
        """The number of times that _FAN divides the number of descriptors."""
        tier, size = 0, self.size
        while size >= _FAN:
            tier, size = tier + 1, size // _FAN
        return tier


def _due(packs: Iterable[_Pack]) -> list[_Pack] | None:
    """Return packs to merge into one, None if there are none.

    They are consecutive, so that a pack has every descriptor from its first to its last; smaller packs among them are included.
    """
    ordered = sorted(packs)
    for limit in range(max((pack.tier for pack in ordered), default=-1) + 1):
        for run in _runs(ordered, limit):
            if len(run) > 1 and sum(pack.size for pack in run) >= _FAN ** (limit + 1):
                return run
    return None


def _runs(packs: Sequence[_Pack], limit: int) -> Iterator[list[_Pack]]:
    """Yield runs of consecutive packs whose tier is at most `limit`, without packs that are too large to be merged further."""
    run: list[_Pack] = []
    reached = -1
    for pack in packs:
        is_small = pack.tier <= limit and pack.size < _LARGEST and pack.bytes < _FULL
        if run and not (is_small and pack.first <= reached + 1):
            yield run
            run = []
        if is_small:
            reached = max(reached, pack.last) if run else pack.last
            run.append(pack)
    if run:
        yield run
