"""Read positions of a job that is upgraded to another query: tables that stay keep theirs, other tables lose them.

Batches that have begun keep their splits: sinks outside of the warehouse may have their rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlstream.connectors.registry import source_of
from sqlstream.names import path_name
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batches import from_lines
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import read_sealed

_RECEIVED = "received/"


def carry_over(
    fs: Filesystem,
    directory: str,
    sequence: int,
    scans: Sequence[ScanStage],
    was: Sequence[int | None],
    project: str,
) -> dict[str, str]:
    """Return the files with the read positions of a new plan's scans: path below the folder of positions to content.

    `directory` is the folder of positions of the old plan, whose job is not running. Its descriptors up to `sequence` are folded
    into one file. `was` has, for each new scan, its place in the old plan; None for a scan that begins where its options say.
    """
    sources = [source_of(stage.table) for stage in scans]
    kept = Descriptors(fs, directory)
    fold = kept.fold()
    before = [fold.seen[old] if fold is not None and old is not None else None for old in was]
    positions = [source.position(project, data) for source, data in zip(sources, before, strict=True)]
    for number in kept.numbers():
        if (-1 if fold is None else fold.sequence) < number <= sequence:
            work = from_lines(read_sealed(fs, kept.path(number)))
            for source, position, old in zip(sources, positions, was, strict=True):
                position.add([source.split(w.split) for w in work if w.scan == old and w.split is not None])
    made = Fold(sequence, tuple(position.to_bytes() for position in positions))
    return {made.name: made.to_json(), **_remembered(fs, directory, was)}


def carry_over_begun(fs: Filesystem, directory: str, sequence: int, was: Sequence[int | None]) -> dict[str, str]:
    """Return the descriptors after `sequence`, rewritten for the scans of a new plan: path as in `carry_over` to content."""
    places = {old: place for place, old in enumerate(was) if old is not None}
    kept = Descriptors(fs, directory)
    found: dict[str, str] = {}
    for number in kept.numbers():
        if number > sequence:
            path = kept.path(number)
            lines = [_moved(json.loads(line), places) for line in read_sealed(fs, path).splitlines() if line]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            found[path.removeprefix(f"{directory}/")] = text
    return found


def _moved(line: dict[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Return a line of a descriptor with the new place of its scan."""
    if line["scan"] in places:
        return {**line, "scan": places[line["scan"]]}
    # The new plan does not have the scan, but a descriptor without a line would be no batch.
    return {**{name: value for name, value in line.items() if name not in ("split", "tick")}, "scan": 0}


def _remembered(fs: Filesystem, directory: str, was: Sequence[int | None]) -> dict[str, str]:
    """Return the files of values that sources remember, named after the new places of the scans."""
    found = {}
    for place, old in enumerate(was):
        if old is None:
            continue
        for name in fs.list(directory):
            if name.endswith(f"-{old}.json") and not Descriptors.is_fold(name):
                found[f"{name.removesuffix(f'-{old}.json')}-{place}.json"] = read_sealed(fs, f"{directory}/{name}")
    return found


def received(scans: Sequence[ScanStage], was: Sequence[int | None], names: Sequence[str]) -> dict[str, str]:
    """Map the folders with the received input of sources to their names in a new plan, both below the folder of positions.

    `names` are the scans of the old plan; `was` is as in `carry_over`.
    """
    return {
        f"{_RECEIVED}{path_name(names[old])}/": f"{_RECEIVED}{path_name(stage.name)}/"
        for stage, old in zip(scans, was, strict=True)
        if old is not None
    }
