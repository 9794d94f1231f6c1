"""Spark's own files of a job: which of them are whole, and how its checkpoint is taken back to an older batch.

Spark believes the newest file of each kind: it stops with "Incomplete log file" where a power cut left one empty, and goes on
where it is missing. Beside each file there is one with checksums, which Hadoop compares when the file is read.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import IO
from uuid import uuid4

from sqlstream.errors import DamageError
from sqlstream.warehouse.commits import commit_text_fault
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import CHANGED, CUT, EMPTY, GONE, damage

_PARTITIONS = "spark.sql.shuffle.partitions"


def numbers(fs: Filesystem, directory: str, ending: str = "") -> list[int]:
    """Return the numbers by which the files of a directory are called, in order."""
    names = (name.removesuffix(ending) for name in fs.list(directory) if name.endswith(ending))
    return sorted(int(name) for name in names if name.isdigit())


@dataclass
class Checkpoint:
    """The checkpoint of a job. A file that several batches need is looked at once."""

    fs: Filesystem
    job: JobPaths
    _seen: dict[str, DamageError | None] = field(default_factory=dict)

    @property
    def is_sparks(self) -> bool:
        """Whether it is one of Spark's: a job that runs without Spark only has commits."""
        return bool(self.fs.entries(self.offsets))

    @property
    def offsets(self) -> str:
        return f"{self.job.checkpoint}/offsets"

    @property
    def state(self) -> str:
        return f"{self.job.checkpoint}/state"

    @property
    def metadata(self) -> str:
        return f"{self.job.checkpoint}/metadata"

    # -- single files

    def fault(self, path: str) -> DamageError | None:
        """Return what is wrong with a file, by itself and by its checksums."""
        if path not in self._seen:
            self._seen[path] = self._fault(path)
        return self._seen[path]

    def _fault(self, path: str) -> DamageError | None:
        try:
            data = _bytes(self.fs, path)
        except FileNotFoundError:
            return damage(path, GONE)
        if not data.strip(b"\0"):
            return damage(path, EMPTY)
        directory, _, name = path.rpartition("/")
        sums = f"{directory}/.{name}.crc"
        try:
            if fault := _compared(data, _bytes(self.fs, sums)):
                return damage(path, fault)
        except FileNotFoundError:
            # Nor does Spark miss it.
            pass
        except ValueError:
            return damage(sums, CUT)
        fault = commit_text_fault(data.decode(errors="replace")) if name.isdigit() else None
        return damage(path, fault) if fault else None

    # -- what it takes to go on after a batch

    def faults(self, batch: int) -> list[DamageError]:
        """Return what hinders Spark from going on after a committed batch."""
        found = [self.fault(f"{self.job.commits}/{batch}")]
        if self.is_sparks:
            found += [self.fault(f"{self.offsets}/{batch}"), *self._state_faults(batch)]
        return [error for error in found if error is not None]

    def _state_faults(self, batch: int) -> list[DamageError | None]:
        found: list[DamageError | None] = []
        for operator in numbers(self.fs, self.state):
            for kind in ("_metadata/v2", "_stateSchema/default"):
                directory = f"{self.state}/{operator}/{kind}"
                names = [name for name in self.fs.list(directory) if name[0] != "."]
                found += [self.fault(f"{directory}/{name}") for name in names] or [damage(directory, GONE)]
            for partition in self._partitions(operator, batch):
                found += self.chain(f"{self.state}/{operator}/{partition}", batch + 1)
        return found

    def _partitions(self, operator: int, batch: int) -> list[int]:
        """Return the partitions that an operator has, or should have by what the batch was run with."""
        present = numbers(self.fs, f"{self.state}/{operator}")
        try:
            conf = json.loads(self.fs.read_text(f"{self.offsets}/{batch}").splitlines()[1])["conf"]
            return list(range(int(conf[_PARTITIONS])))
        except (FileNotFoundError, ValueError, LookupError):
            return present

    def chain(self, directory: str, version: int) -> list[DamageError | None]:
        """Return what is damaged of the files that make a version of a partition's state: a snapshot, and the changes since.

        Where a snapshot is damaged and an older one will do, that is nothing.
        """
        faults: list[DamageError | None] = []
        for snapshot in [*(n for n in reversed(numbers(self.fs, directory, ".zip")) if n <= version), 0]:
            found = [self.fault(f"{directory}/{n}.changelog") for n in range(snapshot + 1, version + 1)]
            if snapshot:
                found.append(self.snapshot_fault(directory, snapshot))
            found = [error for error in found if error is not None]
            if not found:
                return []
            faults = faults or [*found]
        return faults

    def snapshot_fault(self, directory: str, snapshot: int) -> DamageError | None:
        """Return what is wrong with a snapshot of a partition's state, or with one of the files that it names."""
        path = f"{directory}/{snapshot}.zip"
        if error := self.fault(path):
            return error
        try:
            with self.fs.open_bytes(path) as file, zipfile.ZipFile(file) as archive:
                _, _, text = archive.read("metadata").decode().partition("\n")
        except (zipfile.BadZipFile, KeyError, ValueError):
            return damage(path, CHANGED)
        names = [found["dfsSstFileName"] for found in json.loads(text).get("sstFiles", [])]
        return next(filter(None, (self.fault(f"{directory}/SSTs/{name}") for name in names)), None)

    def every_fault(self) -> list[DamageError]:
        """Return what is wrong with any file that is there."""
        found = [self.fault(self.metadata)] if self.is_sparks else []
        for directory in (self.offsets, self.job.commits):
            found += [self.fault(f"{directory}/{n}") for n in numbers(self.fs, directory)]
        for operator in numbers(self.fs, self.state):
            for partition in numbers(self.fs, f"{self.state}/{operator}"):
                directory = f"{self.state}/{operator}/{partition}"
                found += [self.fault(f"{directory}/{n}.changelog") for n in numbers(self.fs, directory, ".changelog")]
                found += [self.snapshot_fault(directory, n) for n in numbers(self.fs, directory, ".zip")]
        return [error for error in found if error is not None]

    def sequence(self, batch: int) -> int:
        """Return the last descriptor that a batch reads by its offset, -1 when that does not say."""
        try:
            return int(self.fs.read_text(f"{self.offsets}/{batch}").splitlines()[2])
        except (FileNotFoundError, ValueError, LookupError):
            return -1

    # -- going back

    def tidy(self, batch: int, *, keep_next: bool = True) -> None:
        """Make Spark go on after a committed batch: remove what is damaged and would be believed, and what is ahead of it."""
        if not self.is_sparks:
            return
        if self.fault(self.metadata):
            # It only has a name for the query, which nobody uses.
            self._delete(self.metadata)
            self.fs.write_text_atomic(self.metadata, json.dumps({"id": str(uuid4())}))
        for n in reversed(numbers(self.fs, self.offsets)):
            if n > batch + keep_next or (n > batch and self.fault(f"{self.offsets}/{n}")):
                self._delete(f"{self.offsets}/{n}")
        for operator in numbers(self.fs, self.state):
            for partition in numbers(self.fs, f"{self.state}/{operator}"):
                directory = f"{self.state}/{operator}/{partition}"
                for n in numbers(self.fs, directory, ".zip"):
                    if self.snapshot_fault(directory, n):
                        self._delete(f"{directory}/{n}.zip")

    def go_back(self, batch: int, *, keep_next: bool) -> None:
        """Make Spark repeat everything after a committed batch; with `keep_next`, the first batch of it as it was begun.

        When it is interrupted Spark can go on, too: what says that a batch is done goes before what it did.
        """
        if batch < 0 and not keep_next:
            self.fs.delete_tree(self.job.commits)
            self.fs.delete_tree(self.job.checkpoint)
            return
        for directory, newest in ((self.job.commits, batch), (self.offsets, batch + keep_next)):
            for n in reversed(numbers(self.fs, directory)):
                if n > newest:
                    self._delete(f"{directory}/{n}")
        for operator in numbers(self.fs, self.state):
            for partition in numbers(self.fs, f"{self.state}/{operator}"):
                directory = f"{self.state}/{operator}/{partition}"
                for ending in (".zip", ".changelog"):
                    for n in numbers(self.fs, directory, ending):
                        if n > batch + 1:
                            self._delete(f"{directory}/{n}{ending}")
        self._seen.clear()
        self.tidy(batch, keep_next=keep_next)

    def _delete(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        # A file without its checksums is believed, checksums without their file do no harm.
        self.fs.delete(path)
        self.fs.delete(f"{directory}/.{name}.crc")
        self._seen.pop(path, None)


def _bytes(fs: Filesystem, path: str) -> bytes:
    file: IO[bytes]
    with fs.open_bytes(path) as file:
        return file.read()


def _compared(data: bytes, sums: bytes) -> str | None:
    """Return what is wrong with a file by its checksums, as Hadoop writes them. Raises ValueError when these are not whole."""
    size = int.from_bytes(sums[4:8], "big")
    if sums[:4] != b"crc\0" or len(sums) % 4 or not size:
        raise ValueError
    expected = [int.from_bytes(sums[i : i + 4], "big") for i in range(8, len(sums), 4)]
    found = [zlib.crc32(data[i : i + size]) for i in range(0, len(data), size)]
    if len(found) > len(expected):
        raise ValueError
    if found == expected:
        return None
    short = len(found) < len(expected) or (found[:-1] == expected[:-1] and len(data) % size)
    return CUT if short else CHANGED
