"""The read positions of a job that does not run: reset to where the options of sources say, or carried over to a changed query.

In an upgrade, tables that stay keep their positions, other tables lose them. Batches that have begun keep their splits: sinks
outside of the warehouse may have their rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlstream.connectors.registry import source_of
from sqlstream.names import path_name
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batch_descriptors import after_all, from_lines
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import read_sealed

_RECEIVED = "received/"


def carry_over(
    fs: Filesystem,
    directory: str,
    sequence: int,
    scans: Sequence[ScanStage],
    old_indexes: Sequence[int | None],
    project: str,
) -> dict[str, str]:
    """Return the files with the read positions of a new plan's scans: contents by path below the folder of positions.

    `directory` is the folder of positions of the old plan, whose job is not running. Its descriptors up to `sequence` are folded
    into one file. `old_indexes` has the index in the old plan for each new scan, None for a scan that starts as its options say.
    """
    sources = [source_of(stage.table) for stage in scans]
    descriptors = Descriptors(fs, directory)
    fold = descriptors.fold()
    arrived = 0 if fold is None else fold.arrived
    before = [fold.seen[old] if fold is not None and old is not None else None for old in old_indexes]
    positions = [source.position(project, data) for source, data in zip(sources, before, strict=True)]
    for number in descriptors.numbers():
        if (-1 if fold is None else fold.sequence) < number <= sequence:
            work = from_lines(read_sealed(fs, descriptors.path(number)))
            arrived = after_all(work, arrived)
            for source, position, old in zip(sources, positions, old_indexes, strict=True):
                position.add([source.split(w.split) for w in work if w.scan == old and w.split is not None])
    new_fold = Fold(sequence, tuple(position.to_bytes() for position in positions), arrived)
    return {new_fold.name: new_fold.to_json(), **_remembered(fs, directory, old_indexes)}


def carry_over_begun(
    fs: Filesystem, directory: str, sequence: int, old_indexes: Sequence[int | None]
) -> dict[str, str]:
    """Rewrite the descriptors after `sequence` for the scans of a new plan; map paths, as in `carry_over`, to contents."""
    new_indexes = {old: index for index, old in enumerate(old_indexes) if old is not None}
    descriptors = Descriptors(fs, directory)
    files: dict[str, str] = {}
    for number in descriptors.numbers():
        if number > sequence:
            path = descriptors.path(number)
            lines = [_moved(json.loads(line), new_indexes) for line in read_sealed(fs, path).splitlines() if line]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            files[path.removeprefix(f"{directory}/")] = text
    return files


def _moved(line: dict[str, Any], new_indexes: Mapping[int, int]) -> dict[str, Any]:
    """Return a line of a descriptor with the new index of its scan; `new_indexes` maps old indexes to new ones."""
    if line["scan"] in new_indexes:
        return {**line, "scan": new_indexes[line["scan"]]}
    # The new plan does not have the scan, but a descriptor without a line would be no batch.
    return {**{name: value for name, value in line.items() if name not in ("split", "tick")}, "scan": 0}


def _remembered(fs: Filesystem, directory: str, old_indexes: Sequence[int | None]) -> dict[str, str]:
    """Return the files of values that sources remember, named after the new indexes of the scans."""
    files = {}
    for index, old in enumerate(old_indexes):
        if old is None:
            continue
        for name in fs.list(directory):
            if name.endswith(f"-{old}.json") and not Descriptors.is_fold(name):
                files[f"{name.removesuffix(f'-{old}.json')}-{index}.json"] = read_sealed(fs, f"{directory}/{name}")
    return files


def received(scans: Sequence[ScanStage], old_indexes: Sequence[int | None], names: Sequence[str]) -> dict[str, str]:
    """Map the folders with the received input of sources to their names in a new plan, both below the folder of positions.

    `names` are the scans of the old plan; `old_indexes` is as in `carry_over`.
    """
    return {
        f"{_RECEIVED}{path_name(names[old])}/": f"{_RECEIVED}{path_name(stage.name)}/"
        for stage, old in zip(scans, old_indexes, strict=True)
        if old is not None
    }


def start_over(
    fs: Filesystem, directory: str, scans: Sequence[ScanStage], which: Collection[int], project: str
) -> None:
    """Reset the read positions of the scans `which` of a job whose files exist and which does not run.

    All descriptors in `directory` are folded into one file, as the feed folds old ones, with new positions for these scans. It
    may be repeated after a crash.
    """
    sources = [source_of(stage.table) for stage in scans]
    descriptors = Descriptors(fs, directory)
    fold = descriptors.fold()
    last, seen = (-1, [None] * len(sources)) if fold is None else (fold.sequence, fold.seen)
    positions = [source.position(project, data) for source, data in zip(sources, seen, strict=True)]
    arrived = 0 if fold is None else fold.arrived
    numbers = [number for number in descriptors.numbers() if number > last]
    for number in numbers:
        work = from_lines(read_sealed(fs, descriptors.path(number)))
        arrived = after_all(work, arrived)
        for scan, (source, position) in enumerate(zip(sources, positions, strict=True)):
            position.add([source.split(w.split) for w in work if w.scan == scan and w.split is not None])
        last = max(last, number)
    for scan in which:
        positions[scan] = sources[scan].position(project)
        # The values that the source remembers of its beginning, under all names.
        for name in fs.list(directory):
            if name.endswith(f"-{scan}.json") and not descriptors.is_fold(name):
                fs.delete(f"{directory}/{name}")
    descriptors.write_fold(Fold(last, tuple(position.to_bytes() for position in positions), arrived), numbers)
