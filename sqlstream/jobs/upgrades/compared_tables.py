"""Compares the tables that a job reads and writes with the tables of a changed query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from sqlstream.connectors.formats.malformed import COLUMNS as MALFORMED
from sqlstream.duck.sql import quote_name
from sqlstream.jobs.upgrades.arrival import without_arrival
from sqlstream.jobs.upgrades.changes import SinkChange, SourceChange
from sqlstream.jobs.upgrades.forms import columns_form, optional_form, steps_form
from sqlstream.jobs.upgrades.matching import Pairs
from sqlstream.jobs.upgrades.widening import is_wider, widened
from sqlstream.warehouse.jobs import TABLE, JobRecord, ScanRecord, SinkRecord

# -- sources


def compared_sources(old: JobRecord, new: JobRecord) -> tuple[SourceChange, ...]:
    """Return the changes of the tables that the query reads.

    A scan continues a scan of the job that reads the same table from the same `ScanRecord.location`. If there are several such
    scans, it continues the one with the most equal options.
    """
    indexes = _continued(old, new)
    gone = _gone(old, indexes)
    changes = []
    for scan, was in zip(new.scans, indexes, strict=True):
        if was is None:
            notes = ["is read from where its options say; a row behind the watermark of the job is late"]
            if gone[scan.table.lower()] > 0:
                gone[scan.table.lower()] -= 1
                notes.append("it is another place than before, from which nothing is read any more")
            changes.append(SourceChange(new.label(scan), None, tuple(notes)))
            continue
        changed = _watermark(old.scans[was]) != _watermark(scan)
        notes = ["its watermark follows the new expression from now on"] if changed else []
        changes.append(SourceChange(new.label(scan), was, tuple(notes)))
    return tuple(changes)


def _continued(old: JobRecord, new: JobRecord) -> list[int | None]:
    """Return, for each scan of the query, the index of the job's scan that it continues; None if it is a new scan."""
    pairs = sorted(
        (_differences(before, scan), number, index)
        for number, scan in enumerate(new.scans)
        for index, before in enumerate(old.scans)
        if _is_same(before, scan)
    )
    indexes: dict[int, int] = {}
    for _, number, index in pairs:
        if number not in indexes and index not in indexes.values():
            indexes[number] = index
    return [indexes.get(number) for number in range(len(new.scans))]


def _is_same(old: ScanRecord, new: ScanRecord) -> bool:
    return old.table.lower() == new.table.lower() and (
        not old.kind or (old.kind, old.location) == (new.kind, new.location)
    )


def _differences(old: ScanRecord, new: ScanRecord) -> int:
    # Records of earlier versions have no options.
    names = {*old.options, *new.options} if old.options else set[str]()
    return sum(old.options.get(n) != new.options.get(n) for n in names) + (_watermark(old) != _watermark(new))


def _gone(old: JobRecord, indexes: Sequence[int | None]) -> Counter[str]:
    """Return, by table in lower case, how many scans of the job no scan of the query continues."""
    return Counter(s.table.lower() for index, s in enumerate(old.scans) if index not in indexes)


def _watermark(scan: ScanRecord) -> tuple[str | None, str | None]:
    return scan.time_column, optional_form(scan.watermark_expression)


def dropped_sources(old: JobRecord, new: JobRecord) -> tuple[str, ...]:
    """Return the names of the tables that the job reads and the new query does not.

    If the new query has fewer scans of a table than the job, the names of the scans that end are among them.
    """
    indexes = _continued(old, new)
    begun = Counter(s.table.lower() for s, index in zip(new.scans, indexes, strict=True) if index is None)
    names = {s.table.lower() for s in new.scans}
    dropped: dict[str, None] = {}
    for index, scan in enumerate(old.scans):
        table = scan.table.lower()
        if index in indexes:
            continue
        if begun[table] > 0:
            # The table is read from another place.
            begun[table] -= 1
        else:
            dropped[f"{scan.table} as {scan.name}" if table in names else scan.table] = None
    return tuple(dropped)


# -- sinks


def compared_sinks(
    old: JobRecord, new: JobRecord, pairs: Pairs, fresh: Collection[str], *, is_fork: bool
) -> tuple[tuple[SinkChange, ...], tuple[str, ...]]:
    """Return the changes of the tables that the query writes, and reasons why it cannot write some of them.

    `fresh` are the names of the operators that begin without state. A table continues a table of the job with the same kind, name
    and position. The other warehouse tables of a fork continue the other ones of the job, in their order, if there are as many.
    """
    indexes: dict[int, int] = {}
    # The malformed rows of the first job stay with it.
    others = {i for i, s in enumerate(new.sinks) if is_fork and has_malformed_rows(s)}
    for i, sink in enumerate(new.sinks):
        was = None if i in others else next((j for j, o in enumerate(old.sinks) if _is_same_sink(o, sink)), None)
        if was is not None:
            indexes[i] = was
    if is_fork:
        tables = (j for j, o in enumerate(old.sinks) if o.kind == TABLE and not has_malformed_rows(o))
        theirs = [j for j in tables if j not in indexes.values()]
        ours = [i for i, s in enumerate(new.sinks) if s.kind == TABLE and i not in indexes and i not in others]
        if len(theirs) == len(ours):
            indexes |= dict(zip(ours, theirs, strict=True))
    changes, refusals = [], []
    for i, sink in enumerate(new.sinks):
        if i not in indexes:
            changes.append(SinkChange(sink.table, None, ("begins with the rows that come from now on",)))
            continue
        before = old.sinks[indexes[i]]
        refusals += [f'table "{sink.table}": {reason}' for reason in _refusals(before, sink, pairs, fresh)]
        changes.append(SinkChange(sink.table, indexes[i], tuple(_notes(before, sink)), _columns(before, sink)))
    return tuple(changes), tuple(refusals)


def has_malformed_rows(sink: SinkRecord) -> bool:
    """Tell whether a table stores the malformed rows of a job; other jobs may write into it, too."""
    return sink.kind == TABLE and not sink.paths and sink.columns == tuple((c.name, c.type) for c in MALFORMED)


def _is_same_sink(old: SinkRecord, new: SinkRecord) -> bool:
    return (old.kind, old.table.lower(), old.location) == (new.kind, new.table.lower(), new.location)


def dropped_sinks(old: JobRecord, sinks: Sequence[SinkChange]) -> tuple[str, ...]:
    """Return the names of the tables that the job writes and the new query does not."""
    indexes = {s.was for s in sinks}
    return tuple(s.table for i, s in enumerate(old.sinks) if i not in indexes)


def _columns(old: SinkRecord, new: SinkRecord) -> dict[str, str] | None:
    """Return the SQL of each column of a warehouse table over its old columns; None if these are the same, and elsewhere."""
    if new.kind != TABLE or old.columns == new.columns:
        return None
    types = {name.lower(): (name, type) for name, type in old.columns}
    columns = {}
    for name, type in new.columns:
        before = types.get(name.lower())
        if before is None:
            columns[name] = f"CAST(NULL AS {type})"
        else:
            columns[name] = widened(quote_name(before[0]), before[1], type, f'table "{new.table}": column {name}')
    return columns


def _notes(old: SinkRecord, new: SinkRecord) -> Iterator[str]:
    before, after = ({name.lower(): type for name, type in sink.columns} for sink in (old, new))
    rows = "rows that were written before" if new.kind == TABLE else "what was written before stays as it is"
    for name, type in new.columns:
        if name.lower() not in before:
            yield f"column {name} is new" + (f": NULL in {rows}" if new.kind == TABLE else f"; {rows}")
        elif before[name.lower()] != type:
            yield f"column {name} was {before[name.lower()]}, and is {type}"
    for name, _ in old.columns:
        if name.lower() not in after:
            yield f"column {name} goes" + (f", also in {rows}" if new.kind == TABLE else f"; {rows}")
    shared = [c for c in new.columns if c[0].lower() in before]
    if old.paths and _forms(old, shared) != _forms(new, shared):
        yield "its rows are made otherwise from now on; those that were written before stay"


def _forms(sink: SinkRecord, columns: Sequence[tuple[str, str]]) -> list[tuple[object, ...]]:
    names = [name for name, _ in columns]
    paths = [replace(p, columns={c: without_arrival(sql) for c, sql in p.columns.items()}) for p in sink.paths]
    return [(p.scan, steps_form(p.steps), *columns_form(p, names)) for p in paths]


def _refusals(old: SinkRecord, new: SinkRecord, pairs: Pairs, fresh: Collection[str]) -> Iterator[str]:
    """Yield reasons why new rows of a table cannot follow the rows that the job has written."""
    if (old.changing, old.key, old.upserts, old.order) != (new.changing, new.key, new.upserts, new.order):
        yield f"{_other_rows(old, new)}; write another table"
        return
    before = {name.lower(): type for name, type in old.columns}
    for name, type in new.columns:
        was = before.get(name.lower(), type)
        if new.kind == TABLE and not is_wider(was, type):
            yield f"column {name} was {was}, and would be {type}, which does not hold all its values"
    if not new.changing:
        return
    if [steps_form(p.steps) for p in old.paths] != [steps_form(p.steps) for p in new.paths]:
        yield "rows that were written could not be taken back, as others are filtered out now; write another table"
    sources = [pairs.get(p.source, p.source) for p in new.paths]
    if sources != [p.source for p in old.paths] and not new.key:
        yield "rows that were written could not be taken back, as they came from another operator; write another table"
    if any(p.source in fresh for p in new.paths) and not new.key:
        yield "rows that were written could not be taken back by an operator that begins anew; write another table"
    shared = [c for c in new.columns if c[0].lower() in before]
    if not new.key and (len(shared) < len(new.columns) or _forms(old, shared) != _forms(new, shared)):
        yield "without a PRIMARY KEY no column can be added or made otherwise: rows could not be taken back as they were"


def _other_rows(old: SinkRecord, new: SinkRecord) -> str:
    """Return how the new rows of a table would differ in kind from its old rows."""
    if _manner(old) != _manner(new):
        return f"it holds {_manner(old)}, and would hold {_manner(new)}"
    if old.upserts != new.upserts:
        count, would = ("one row", "several") if old.upserts else ("several rows", "one")
        return f"the query gave {count} for each key {', '.join(new.key)}, and would give {would}"
    return "other columns would tell which row of a key is the last one"


def _manner(sink: SinkRecord) -> str:
    if not sink.changing:
        return "rows that stay"
    return f"changes by the key {', '.join(sink.key)}" if sink.key else "changes without a key"
