"""Windows with other aggregates, other columns, another lateness, or windows that are sums of stretches of the old ones."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlstream.duck.sql import no_rows, quote_name
from sqlstream.jobs.upgrades.adaptations import grids
from sqlstream.jobs.upgrades.adaptations.aggregates import added_calls, kept_columns_note, removed_notes
from sqlstream.jobs.upgrades.adaptations.calls import merged_parts
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed
from sqlstream.jobs.upgrades.changes import SINCE, Adapted
from sqlstream.jobs.upgrades.settings_words import windows_words
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.state_settings import (
    AnyState,
    EarlyFiring,
    RankState,
    SessionWindows,
    SessionWindowState,
    Sql,
    WindowAggregateState,
    WindowRankState,
    Windows,
)
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.windows import TimeWindows
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.windows.assigners import END, PARTIALS, START
from sqlstream.operators.windows.corrections import Corrections
from sqlstream.operators.windows.early_results import PENDING
from sqlstream.operators.windows.emitted import EMITTED
from sqlstream.operators.windows.late_rows import LATE
from sqlstream.operators.windows.retention import KEPT
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.physical.plan import StatefulStage
from sqlstream.units import NO_TIME, Duration, duration
from sqlstream.warehouse.jobs import OperatorRecord

_BOUND = re.compile(r"\bwindow_(start|end|time)\b")


def adapt_windows(old: OperatorRecord, new: OperatorRecord, stage: StatefulStage) -> Adapted:
    """Return how the state of windows becomes that of others. Raises CannotAdapt."""
    operator = stage.operator
    assert isinstance(operator, WindowOperator)
    carrying = Carrying(old, new)
    carrying.check_settings(("windows", "bounds", "lateness", "limit", "late_rows", "early"))
    notes = [*carrying.widened(), *carrying.recomputed_below(), *n_notes(carrying)]
    made: dict[tuple[str, str], str] = {}
    if isinstance(operator.of, Grouped):
        made, said = added_calls(carrying, dict(operator.of.calls), PARTIALS, merged_parts)
        notes += said
    else:
        _check_rows(carrying)
        notes += kept_columns_note(carrying.added)
        anew = [item for item in carrying.added if item.kind == "aggregate"]
        notes += [f"{listed(anew)}: from all rows, which are kept"] if anew else []
    notes += removed_notes(carrying)
    times, said = _times(carrying, operator, stage)
    notes += said + _lateness_notes(carrying, operator)
    made |= {(t.name, name): sql for t in new.tables if t.name != LATE for name, sql in times.items()}
    if isinstance(operator.trigger, Corrections):
        times[KEPT.name] = f"{times.get(END, END)} + to_microseconds({operator.trigger.retention.lateness or NO_TIME})"
        made |= {(t.name, KEPT.name): times[KEPT.name] for t in new.tables if any(n == KEPT.name for n, _ in t.columns)}
        made |= _emitted(carrying)
    tables = replace(carrying, made=made).tables()
    other_times = _early(carrying.old_settings) != _early(carrying.new_settings)
    for table in new.tables:
        # Late rows are shown to people, with other columns they begin anew; what waits to be emitted early is counted again.
        is_same = _is_same(old, table.name, table.columns) and not (table.name == PENDING and other_times)
        if table.name in (LATE, PENDING) and not is_same:
            tables[table.name] = no_rows(table.declaration.columns)
            if table.name == LATE:
                notes.append("the late rows that were kept have other columns, and are kept from now on")
    return Adapted(new.name, old.name, tuple(notes), tables)


def _check_rows(carrying: Carrying) -> None:
    """Raise CannotAdapt where rows with a new column may be taken back that were kept without it."""
    if carrying.new_settings.changing and (missing := [item for item in carrying.added if item.kind == "column"]):
        raise CannotAdapt(f"the column {listed(missing)} was not kept, and rows without it may be taken back")


def _is_same(old: OperatorRecord, table: str, columns: tuple[tuple[str, str], ...]) -> bool:
    return any(t.name == table and t.columns == columns for t in old.tables)


def n_notes(carrying: Carrying) -> list[str]:
    """Return sentences about another number of best rows."""
    before, after = limit_of(carrying.old_settings), limit_of(carrying.new_settings)
    if before == after:
        return []
    said = f"n: was {limit_words(before)}, is {limit_words(after)}"
    more = after is None or (before is not None and after > before)
    if not more:
        return [f"{said}; rows beyond it are forgotten"]
    return [
        f"{said}; of rows so far the best {before} were kept, what comes after them is missing; {SINCE} all rows count"
    ]


def limit_of(settings: AnyState) -> int | None:
    """Return how many best rows count, None where all do, or where there is no such number."""
    return settings.limit if isinstance(settings, RankState | WindowRankState) else None


def limit_words(limit: int | None) -> str:
    """Return how many best rows count, for people."""
    return "all" if limit is None else str(limit)


def _lateness(settings: AnyState) -> Duration:
    return settings.lateness if isinstance(settings, WindowAggregateState) else NO_TIME


def _early(settings: AnyState) -> EarlyFiring | None:
    return settings.early if isinstance(settings, WindowAggregateState) else None


def _windows(settings: AnyState) -> tuple[Windows, ...]:
    assert isinstance(settings, SessionWindowState | WindowAggregateState | WindowRankState)
    return settings.windows


def _times(carrying: Carrying, operator: WindowOperator, stage: StatefulStage) -> tuple[dict[str, str], list[str]]:
    """Return the SQL of the columns of windows that lie elsewhere, and sentences. Raises CannotAdapt."""
    old, new = _windows(carrying.old_settings), _windows(carrying.new_settings)
    if old == new:
        return {}, []
    if isinstance(operator.trigger, Corrections):
        raise CannotAdapt("results of other windows were emitted, and would have to be corrected")
    if isinstance(operator.groups.windows, Sessions) and len(old) == len(new) == 1:
        [was], [now] = old, new
        if isinstance(was, SessionWindows) and isinstance(now, SessionWindows):
            return _longer_gap(was, now)
    before, after = grids.sums_of(old, new)
    if any(name == START for table in carrying.new.tables for name, _ in table.columns):
        raise CannotAdapt("the bounds of the windows are columns of the rows")
    if _makes_windows(stage.node):
        _check_bounds(carrying)
    if not isinstance(operator.of, Grouped) and before.overlaps:
        raise CannotAdapt("rows in overlapping windows were kept once for each of them")
    if not isinstance(operator.of, Grouped) and after.overlaps:
        raise CannotAdapt("rows were kept once, and are in several windows now")
    if after.slide > after.size:
        raise CannotAdapt("not every row is in a window now")
    notes = [
        f"windows: were {windows_words(old)}, are {windows_words(new)}; each is the sum of what was kept",
        "windows that begin before the oldest one that was open have only the rows since then",
    ]
    return grids.columns(before, after), notes


def _makes_windows(node: Node | None) -> bool:
    """Tell whether rows get their windows right below an operator. Those of windows that have ended leave it at once."""
    children = node.children if node is not None else ()
    return any(isinstance(c, TimeWindows) or (not isinstance(c, StatefulNode) and _makes_windows(c)) for c in children)


def _check_bounds(carrying: Carrying) -> None:
    """Raise CannotAdapt where bounds of the windows are in what is kept: rows so far have those of the old windows."""
    for item in (*carrying.new_shape.keys, *carrying.new_shape.items):
        if any(item.columns.values()) and _BOUND.search(item.value):
            raise CannotAdapt(
                f'"{item.name}" is made of the bounds of the windows, and is kept with those of the old ones'
            )
    if any(_BOUND.search(step) for path in carrying.new_shape.paths for step in path.steps):
        raise CannotAdapt("rows are filtered by the bounds of their windows, and were by those of the old ones")


def _longer_gap(before: SessionWindows, after: SessionWindows) -> tuple[dict[str, str], list[str]]:
    """Return the SQL of the ends of sessions with a longer gap. Raises CannotAdapt where it is shorter."""
    if isinstance(before.gap, Sql) or isinstance(after.gap, Sql):
        raise CannotAdapt(f"windows: were {windows_words([before])}, are {windows_words([after])}")
    if before.time != after.time:
        raise CannotAdapt(f"sessions are by {after.time.text}, and were by {before.time.text}")
    longer = after.gap - before.gap
    if longer < 0:
        raise CannotAdapt("sessions with a shorter gap would be parts of those that are kept as one")
    note = "the gap of sessions is longer; sessions that have ended do not go on"
    return {END: f"{END} + to_microseconds({longer})"}, [note]


def _lateness_notes(carrying: Carrying, operator: WindowOperator) -> list[str]:
    """Return sentences about another lateness. Raises CannotAdapt where results begin or cease to change."""
    old, new = carrying.old_settings, carrying.new_settings
    corrected = any(table.name == EMITTED for table in carrying.old.tables)
    if corrected != operator.trigger.corrects:
        was = "were corrected" if corrected else "were final"
        raise CannotAdapt(f"results {was}, and a changed ALLOWED_LATENESS or EARLY_FIRE would make them the other")
    if _early(old) is not None and _early(new) is None:
        raise CannotAdapt("windows that are open were emitted early, and would not be taken back at their end")
    notes = []
    before, after = _lateness(old), _lateness(new)
    if before != after:
        notes.append(f"lateness: was {duration(before)}, is {duration(after)}")
    if after > before:
        notes.append(
            f"windows that were forgotten are not known any more: late rows of them make results of their own until the "
            f"watermark is {duration(after)} beyond their end"
        )
    if _early(old) != _early(new):
        notes.append("windows that are open are emitted early when the next rows come for them")
    return notes


def _emitted(carrying: Carrying) -> dict[tuple[str, str], str]:
    """Return the SQL of the results that were emitted, by their place among the calls; those of new ones are NULL."""
    if all(table.name != EMITTED for table in carrying.old.tables):
        return {}
    before = [item for item in carrying.old_shape.items if item.kind == "aggregate"]
    pairs = {pair.new.name: pair.old for pair in carrying.items}
    found = {}
    for number, item in enumerate(i for i in carrying.new_shape.items if i.kind == "aggregate"):
        old = pairs.get(item.name)
        found[EMITTED, f"r{number}"] = quote_name(f"r{before.index(old)}") if old is not None else "NULL"
    return found
