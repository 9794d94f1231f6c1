"""Finds stored columns of aggregate calls that other calls can use: an average has a sum and a count in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental
from sqlstream.duck.aggregates.calls import partials, strategy
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.jobs.upgrades.forms import call_form
from sqlstream.warehouse.jobs import ShapeItem

# Returns a text for each stored column of a call that identifies its contents; none if they are not partial results.
PartsOf: TypeAlias = Callable[[AggregateCall], Sequence[str]]


def merged_parts(call: AggregateCall) -> Sequence[str]:
    """Return the SQL that computes and merges each partial result of a call, without its type, to compare it with others."""
    if strategy(call) in (None, Strategy.VALUES):
        return ()
    [partial_columns] = partials([call], "p")
    texts = zip(partial_columns.columns, partial_columns.partial, partial_columns.merge, strict=True)
    return [
        f"{_bare(partial, type)} / {_bare(merge, type).replace(name, '?')}" for (name, type), partial, merge in texts
    ]


def _bare(sql: str, type: str) -> str:
    """Return SQL without its cast to the stored type, which may be wider now."""
    cast = f" AS {type})"
    return sql[len("CAST(") : -len(cast)] if sql.startswith("CAST(") and sql.endswith(cast) else sql


def columns_in_others(
    item: ShapeItem, call: AggregateCall, old: Iterable[ShapeItem], table: str, parts_of: PartsOf
) -> Mapping[str, str]:
    """Return the old column of a table with the contents of each column of a new call; columns without one are left out."""
    written = call_form(item.value)
    columns: dict[str, str] = {}
    if written is None or table not in item.columns:
        return columns
    new_columns = dict(zip(parts_of(call), item.columns[table], strict=False))
    for other in old:
        other_form = call_form(other.value) if other.kind == "aggregate" and table in other.columns else None
        if other_form is None or other_form.rest != written.rest:
            continue
        for part, column in zip(_parts_of(call, other_form.function, parts_of), other.columns[table], strict=False):
            if part in new_columns:
                columns.setdefault(new_columns[part], column)
    return columns


def _parts_of(call: AggregateCall, function: str, parts_of: PartsOf) -> Sequence[str]:
    """Return the parts of a call with another function; none if there is no such call."""
    name = ALIASES.get(function.lower(), function.lower())
    if name not in FUNCTIONS:
        return ()
    try:
        return parts_of(replace(call, function=name, result_type="DOUBLE"))
    except NotIncremental:
        return ()
