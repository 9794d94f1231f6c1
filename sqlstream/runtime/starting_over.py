"""Resets the read positions of sources to where their options say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlstream.connectors.registry import source_of
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batches import from_lines
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import read_sealed


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
    numbers = [number for number in descriptors.numbers() if number > last]
    for number in numbers:
        work = from_lines(read_sealed(fs, descriptors.path(number)))
        for scan, (source, position) in enumerate(zip(sources, positions, strict=True)):
            position.add([source.split(w.split) for w in work if w.scan == scan and w.split is not None])
        last = max(last, number)
    for scan in which:
        positions[scan] = sources[scan].position(project)
        # The values that the source remembers of its beginning, under all names.
        for name in fs.list(directory):
            if name.endswith(f"-{scan}.json") and not descriptors.is_fold(name):
                fs.delete(f"{directory}/{name}")
    descriptors.write_fold(Fold(last, tuple(position.to_bytes() for position in positions)), numbers)
