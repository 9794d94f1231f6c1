"""Identifies the scans of a job and of a changed query across both, where the name of a table is not enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from sqlstream.jobs.upgrades.changes import SourceChange
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, RowPath


def with_origins(old: JobRecord, new: JobRecord, sources: Sequence[SourceChange]) -> tuple[JobRecord, JobRecord]:
    """Return the two records with paths changed, so that two paths have equal sources only if they come from the same scan.

    The name of a table stays if neither record has several scans of it, nor an operator of that name. Otherwise `source` and
    `scan` of a path get the name of the job's scan, or the name of a new scan of the changed query. Paths in records of earlier
    versions that do not say which scan they come from stay as they are.
    """
    names = {s.name: s.name for s in old.scans}
    new_names = {
        scan.name: f"\n{scan.name}" if change.was is None else old.scans[change.was].name
        for scan, change in zip(new.scans, sources, strict=True)
    }
    tables = _ambiguous((old, new))
    return _renamed(old, tables, names), _renamed(new, tables, new_names)


def _ambiguous(records: Sequence[JobRecord]) -> set[str]:
    """Return the tables whose name does not identify one scan, except tables of which a path does not say the scan."""
    tables = set[str]()
    for record in records:
        scanned = [scan.table for scan in record.scans]
        tables |= {t for t in scanned if scanned.count(t) > 1 or any(o.name == t for r in records for o in r.operators)}
    unknown = {p.source for record in records for p in _paths(record) if not _is_known(record, p)}
    return tables - unknown


def _paths(record: JobRecord) -> Iterable[RowPath]:
    shapes = [o.shape for o in record.operators if o.shape is not None]
    return [*(p for s in shapes for p in s.paths), *(p for sink in record.sinks for p in sink.paths)]


def _is_known(record: JobRecord, path: RowPath) -> bool:
    return len(record.origins(path)) == 1


def _renamed(record: JobRecord, tables: set[str], names: dict[str, str]) -> JobRecord:
    """Return a record whose paths from `tables` name the scan they come from; `names` maps names of scans to new names."""
    scans = {scan.name for scan in record.scans}

    def renamed(path: RowPath) -> RowPath:
        origin = record.origins(path)[0]
        if path.source not in tables or origin not in scans:
            return replace(path, scan="")
        name = names[origin]
        # No name of a table has a line break.
        return replace(path, source=f"{path.source}\n{name}", scan=name)

    return replace(
        record,
        operators=tuple(_with_paths(one, renamed) for one in record.operators),
        sinks=tuple(replace(sink, paths=tuple(map(renamed, sink.paths))) for sink in record.sinks),
    )


def _with_paths(operator: OperatorRecord, renamed: Callable[[RowPath], RowPath]) -> OperatorRecord:
    shape = operator.shape
    # Records of early versions have no paths, only the names of the inputs.
    if shape is None or not shape.paths:
        return operator
    paths = tuple(map(renamed, shape.paths))
    return replace(operator, shape=replace(shape, paths=paths, inputs=tuple(dict.fromkeys(p.source for p in paths))))
