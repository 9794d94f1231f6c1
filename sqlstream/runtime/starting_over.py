"""Sources of a job that begin where their options say, and not where the job had read them to."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence

from sqlstream.connectors.registry import source_of
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batches import from_lines
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.records import read_sealed, write_sealed

# What the folder of the positions calls those that old descriptors were folded into.
_FOLD = "seen-"


def start_over(
    fs: Filesystem, directory: str, scans: Sequence[ScanStage], which: Collection[int], project: str
) -> None:
    """Forget how far some scans of a job have read, which is laid out and has not begun.

    All descriptors are folded into one file, as the feed folds old ones, with new positions for these scans. Doing it twice does
    no harm.
    """
    sources = [source_of(stage.table) for stage in scans]
    folds = sorted(name for name in fs.list(directory) if name.startswith(_FOLD))
    last = -1
    seen: list[bytes | None] = [None] * len(sources)
    if folds:
        value = json.loads(read_sealed(fs, f"{directory}/{folds[-1]}"))
        last, seen = value["sequence"], [base64.b64decode(text) for text in value["seen"]]
    positions = [source.position(project, data) for source, data in zip(sources, seen, strict=True)]
    names = [name for name in fs.list(f"{directory}/next") if int(name.removesuffix(".json")) > last]
    for name in names:
        work = from_lines(read_sealed(fs, f"{directory}/next/{name}"))
        for scan, (source, position) in enumerate(zip(sources, positions, strict=True)):
            position.add([source.split(w.split) for w in work if w.scan == scan and w.split is not None])
        last = max(last, int(name.removesuffix(".json")))
    for scan in which:
        positions[scan] = sources[scan].position(project)
        # What it once found out about its beginning, by any name.
        for name in fs.list(directory):
            if name.endswith(f"-{scan}.json") and not name.startswith(_FOLD):
                fs.delete(f"{directory}/{name}")
    folded = [base64.b64encode(position.to_bytes()).decode() for position in positions]
    text = json.dumps({"sequence": last, "seen": folded})
    write_sealed(fs, f"{directory}/{_FOLD}{last:010d}.json", text, durable=True)
    for name in names:
        fs.delete(f"{directory}/next/{name}")
    fs.delete_all(f"{directory}/{name}" for name in folds if name != f"{_FOLD}{last:010d}.json")
