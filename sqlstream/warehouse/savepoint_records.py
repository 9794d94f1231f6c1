"""The records of savepoints, and where savepoints are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from sqlstream.errors import DamageError, UsageError, missing
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.paths import SAVEPOINT, Warehouse
from sqlstream.warehouse.records import GONE, Record, UnreadableFormat, damage, read_json, read_sealed, write_sealed

FORMAT = 1


class SavepointRecord(Record, frozen=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """A version of a job under a name. `rows` and `bytes` are the sizes of its state and of its tables in the warehouse.

    `files` are all files of the savepoint: paths below its folder, with sizes in bytes. `job_created_at` distinguishes the job
    from other ones of its name.
    """

    name: str
    job: str
    job_created_at: ProcessingTime
    version: int
    taken_at: ProcessingTime
    committed_at: ProcessingTime
    watermark: EventTime | None
    rows: int
    bytes: int
    files: Mapping[str, int]


class Savepoint:
    """A savepoint: its folder, a `warehouse` with one job, and its record. The user calls it `location`: a name or a folder."""

    def __init__(self, warehouse: Warehouse, record: SavepointRecord, location: str):
        self.warehouse, self.record, self.location = warehouse, record, location

    def faults(self) -> Iterator[DamageError]:
        """Yield an error for each file that is missing or has another size."""
        fs, root = self.warehouse.fs, self.warehouse.root
        for name, size in self.record.files.items():
            try:
                if fs.size(f"{root}/{name}") != size:
                    yield damage(f"{root}/{name}", "has another size than it was written with")
            except FileNotFoundError:
                yield damage(f"{root}/{name}", GONE)


def read_savepoint(folder: Warehouse, location: str) -> Savepoint:
    """Return the savepoint in a folder; `location` is for errors. Raises FileNotFoundError, DamageError and OtherVersionError."""
    text = read_sealed(folder.fs, f"{folder.root}/{SAVEPOINT}")
    try:
        return Savepoint(folder, read_json(text, SavepointRecord), location)
    except UnreadableFormat as other:
        raise other.error(f'savepoint "{location}"') from other


def write_savepoint(folder: Warehouse, record: SavepointRecord) -> None:
    """Write the record of a savepoint, which completes it; it survives a power failure."""
    write_sealed(folder.fs, f"{folder.root}/{SAVEPOINT}", record.to_json(), durable=True)


def is_savepoint(folder: Warehouse) -> bool:
    """Return whether a folder has a complete savepoint."""
    return folder.fs.exists(f"{folder.root}/{SAVEPOINT}")


def find_savepoint(warehouse: Warehouse, name: str) -> Savepoint:
    """Return a savepoint of the warehouse by its name, or any savepoint by its folder or URI.

    Raises UsageError when there is none, DamageError and OtherVersionError.
    """
    names = warehouse.savepoints()
    if name.lower() in names:
        return read_savepoint(warehouse.savepoint(name), name)
    if "://" in name or os.sep in name or os.path.isdir(name):
        folder = Warehouse(name)
        if not is_savepoint(folder):
            hint = f"A savepoint has a file {SAVEPOINT} in its folder, which is written last."
            raise UsageError(f'there is no savepoint in "{name}"', hint=hint)
        return read_savepoint(folder, name)
    raise UsageError(f'savepoint "{name}" does not exist', hint=missing("savepoint", name, names))
