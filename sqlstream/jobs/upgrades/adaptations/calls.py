"""Which stored columns of aggregate calls hold what those of other calls held: an average has the sum and the count in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, Refused
from sqlstream.duck.aggregates.calls import partials, strategy
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.jobs.upgrades.forms import call_form
from sqlstream.warehouse.jobs import ShapeItem

# What tells the columns of a call apart, in their order; none where they are not partial results.
PartsOf: TypeAlias = Callable[[AggregateCall], Sequence[str]]


def merged_parts(call: AggregateCall) -> Sequence[str]:
    """Return what tells the partial results of a call apart: what makes and what merges them, whatever their types are."""
    if strategy(call) in (None, Strategy.VALUES):
        return ()
    [found] = partials([call], "p")
    texts = zip(found.columns, found.partial, found.merge, strict=True)
    return [f"{_bare(made, type)} / {_bare(merge, type).replace(name, '?')}" for (name, type), made, merge in texts]


def _bare(sql: str, type: str) -> str:
    """Return SQL without the cast to the type in which it is stored, which may be a wider one now."""
    cast = f" AS {type})"
    return sql[len("CAST(") : -len(cast)] if sql.startswith("CAST(") and sql.endswith(cast) else sql


def found_in_others(
    item: ShapeItem, call: AggregateCall, old: Iterable[ShapeItem], table: str, parts_of: PartsOf
) -> Mapping[str, str]:
    """Return the old columns in a table that hold what columns of a new call hold, by the names of these; maybe not of all."""
    written = call_form(item.value)
    found: dict[str, str] = {}
    if written is None or table not in item.columns:
        return found
    wanted = dict(zip(parts_of(call), item.columns[table], strict=False))
    for other in old:
        kept = call_form(other.value) if other.kind == "aggregate" and table in other.columns else None
        if kept is None or kept.rest != written.rest:
            continue
        for part, column in zip(_parts_of(call, kept.function, parts_of), other.columns[table], strict=False):
            if part in wanted:
                found.setdefault(wanted[part], column)
    return found


def _parts_of(call: AggregateCall, function: str, parts_of: PartsOf) -> Sequence[str]:
    """Return the parts of a call with another function in it, none where there is no such call."""
    name = ALIASES.get(function.lower(), function.lower())
    if name not in FUNCTIONS:
        return ()
    try:
        return parts_of(replace(call, function=name, result_type="DOUBLE"))
    except Refused:
        return ()
