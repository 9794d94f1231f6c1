"""Aggregates that keep all their values, since they have no smaller partial result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental, kept_type, row_of
from sqlstream.duck.aggregates.functions import Kind
from sqlstream.duck.aggregates.partial_columns import Built, Columns, Strategy


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of kept values: its name, its type, and its expression over the input."""

    name: str
    type: str
    expression: str


def argument_rows(call: AggregateCall, prefix: str) -> list[ValueColumn]:
    """Return a column for each argument that is not a constant: `prefix` with v0, v1, and so on. Raises NotIncremental."""
    constants = call.shape.constants
    pairs = [pair for i, pair in enumerate(zip(call.arguments, call.argument_types, strict=True)) if i not in constants]
    return [ValueColumn(f"{prefix}v{i}", kept_type(type_), text) for i, (text, type_) in enumerate(pairs)]


def key_rows(call: AggregateCall, prefix: str) -> list[ValueColumn]:
    """Return a column for each key of ORDER BY that is no argument: `prefix` with o0, o1, and so on.

    Raises NotIncremental for such a key in a DISTINCT call.
    """
    if not call.shape.ordered:
        return []
    keys = [key for key in call.keys if key.expression not in call.arguments]
    if keys and call.distinct:
        raise NotIncremental("in a DISTINCT aggregate, ORDER BY can only name its arguments")
    return [ValueColumn(f"{prefix}o{i}", kept_type(key.type), key.expression) for i, key in enumerate(keys)]


def collected(call: AggregateCall, columns: Columns) -> Built:
    """Return the result of a call as the function over all kept values. Raises NotIncremental for DISTINCT it does not take."""
    if call.distinct and (call.function in _JSON or call.function in _NOT_DISTINCT or call.shape.kind is Kind.ARG):
        raise NotIncremental(f"{call.function} does not take DISTINCT")
    shape = call.shape
    arguments = argument_rows(call, columns.prefix)
    order, where = "", f" FILTER (WHERE {columns.rows})" if columns.rows else ""
    if shape.ordered:
        names = {row.expression: row.name for row in (*key_rows(call, columns.prefix), *arguments)}
        chosen = {names[key.expression]: key.direction for key in call.keys}
        ways = chosen | {row.name: "ASC NULLS LAST" for row in arguments if row.name not in chosen}
        order = f" ORDER BY {', '.join(f'{name} {way}' for name, way in ways.items())}"
    if call.python is not None:
        return Strategy.VALUES, _accumulated(call, [row.name for row in arguments], order, where)
    if call.function in _JSON:
        return Strategy.VALUES, _JSON[call.function]([row.name for row in arguments], order, columns.rows)
    names_left = iter(row.name for row in arguments)
    texts = [text if i in shape.constants else next(names_left) for i, text in enumerate(call.arguments)]
    return Strategy.VALUES, f"{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(texts)}{order}){where}"


def _accumulated(call: AggregateCall, names: Sequence[str], order: str, where: str) -> str:
    """Return the SQL of a user's function over kept values."""
    row = row_of(names)
    if call.distinct and len(names) > 1:
        # With DISTINCT, DuckDB orders only by the whole value.
        if call.order_by:
            raise NotIncremental("a DISTINCT aggregate of several arguments has no ORDER BY")
        order = f" ORDER BY {row}"
    rows = f"list({'DISTINCT ' if call.distinct else ''}{row}{order}){where}"
    return call.step("finish", call.step("accumulate", rows))


def _json_array(names: Sequence[str], order: str, rows: str | None) -> str:
    where = f" FILTER (WHERE {rows})" if rows else ""
    return f"'[' || string_agg({_as_json(names[0])}, ','{order}){where} || ']'"


def _json_structure(names: Sequence[str], order: str, rows: str | None) -> str:
    return f"json_structure(CAST({_json_array(names, order, rows)} AS JSON)) -> 0"


def _json_object(names: Sequence[str], order: str, rows: str | None) -> str:
    key, value = names
    where, guard = (f" FILTER (WHERE {rows})", f" AND {rows}") if rows else ("", "")
    wrong = "error('json_group_object key cannot be NULL')"
    text = f"CASE WHEN {key} IS NULL{guard} THEN {wrong} ELSE to_json(CAST({key} AS VARCHAR)) END"
    return f"'{{' || string_agg({text} || ':' || {_as_json(value)}, ','{order}){where} || '}}'"


def _as_json(value: str) -> str:
    return f"coalesce(CAST(to_json({value}) AS VARCHAR), 'null')"


# DuckDB's aggregate macros over kept values: the arguments are the values' names, their ORDER BY, and a condition on rows.
_JSON: dict[str, Callable[[Sequence[str], str, str | None], str]] = {
    "json_group_array": _json_array,
    "json_group_structure": _json_structure,
    "json_group_object": _json_object,
}
_NOT_DISTINCT = {"geomean", "weighted_avg", "earliest_by_offset", "latest_by_offset"}
