"""From an aggregate call to SQL: one builder per kind of function.

A builder adds columns and returns the final expression over them; where values must be kept, only the latter.
Every merge ignores rows in which its column is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_text
from sqlstream.duck.types import stored_type
from sqlstream.errors import UnsupportedError
from sqlstream.operators.aggregates.functions import FUNCTIONS, REFUSED, STATES, Kind, State


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A bound call. All texts are DuckDB SQL over the input's columns, all types are as DuckDB's `typeof` prints them.

    `function` is lower case with `ALIASES` resolved; `arguments` is () for count(*). `order_by` holds texts such as
    `expr DESC NULLS LAST`, `order_types` the type of each expression (needed where it is none of the arguments). Write
    `percentile_cont(q) WITHIN GROUP (ORDER BY x DESC)` as quantile_cont with arguments (x, q) and order_by ("x DESC",).
    `result_type` must be set.
    """

    function: str
    arguments: tuple[str, ...]
    argument_types: tuple[str, ...]
    distinct: bool = False
    order_by: tuple[str, ...] = ()
    filter: str | None = None
    result_type: str = ""
    order_types: tuple[str, ...] = ()


class Strategy(Enum):
    """How a call runs: a `Partial` in plain SQL, a `Partial` of exported state, or `Values`."""

    PLAIN = "plain"
    STATE = "state"
    VALUES = "values"


# The name of the window over which a merge runs.
FRAME = internal("frame")


class Refused(ValueError):
    """The call cannot run incrementally; the message is the reason."""


class Columns:
    """The columns of one call. Equal columns of several calls get one name, through `known`."""

    def __init__(self, prefix: str, known: dict[tuple[str, str, str], str], rows: str | None = None) -> None:
        self.prefix = prefix
        self.rows = rows
        self.used: dict[str, tuple[str, str, str, str]] = {}
        self._known = known

    def add(self, type_: str, made: str, merge: Callable[[str, str], str]) -> str:
        """Return the name of a column; `merge` writes what merges a column, with what follows the aggregate in it."""
        _keep(type_)
        name = self._known.setdefault((type_, made, merge("?", "")), f"{self.prefix}_{len(self._known)}")
        self.used[name] = (type_, made, merge(name, ""), merge(name, f" OVER {FRAME}"))
        return name


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an ORDER BY inside a call."""

    expression: str
    type: str
    direction: str


_Built = tuple[Strategy, str]
_DIRECTION = re.compile(r"(?P<key>.*?)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?", re.I | re.S)


def build(call: AggregateCall, columns: Columns) -> _Built:
    """Add the call's columns and return its final expression; raise Refused."""
    if call.function in REFUSED:
        raise Refused(REFUSED[call.function])
    shape = FUNCTIONS.get(call.function)
    if shape is None:
        raise Refused(f"there is no incremental form of the aggregate {call.function}")
    if call.distinct and shape.idempotent and not _limited(call):
        call = replace(call, distinct=False)
    if call.distinct:
        if call.function in _MACROS or shape.kind is Kind.ARG:
            raise Refused(f"{call.function} does not take DISTINCT")
        return _values(call, columns)
    return _BUILDERS[shape.kind](call, columns)


def _keep(type_: str) -> str:
    if '"NULL"' in type_:
        raise Refused("a value that is always NULL has no type; write CAST(NULL AS INTEGER)")
    try:
        stored_type(type_)
    except UnsupportedError as error:
        raise Refused(error.message) from None
    return type_


def _keys(call: AggregateCall) -> list[Key]:
    types = dict(zip(call.arguments, call.argument_types, strict=True))
    keys = []
    for i, text in enumerate(call.order_by):
        found = _DIRECTION.fullmatch(text.strip())
        assert found is not None
        direction = f"{(found['way'] or 'ASC').upper()} NULLS {(found['nulls'] or 'LAST').upper()}"
        keys.append(Key(found["key"], types.get(found["key"]) or call.order_types[i], direction))
    return keys


def _where(call: AggregateCall, *conditions: str) -> str:
    kept = [f"({c})" for c in (*conditions, call.filter) if c]
    return f" FILTER (WHERE {' AND '.join(kept)})" if kept else ""


def _limited(call: AggregateCall) -> bool:
    """Whether the call asks for the n extreme values."""
    return len(call.arguments) > {Kind.FOLD: 1, Kind.ARG: 2}.get(FUNCTIONS[call.function].kind, 9)


# -- counts and sums


def _count(call: AggregateCall, columns: Columns) -> _Built:
    column = _sum_up(columns, "BIGINT", f"count({', '.join(call.arguments) or '*'}){_where(call)}")
    return Strategy.PLAIN, f"coalesce({column}, 0)"


def _count_if(call: AggregateCall, columns: Columns) -> _Built:
    return Strategy.PLAIN, _sum_up(columns, "BIGINT", f"CAST(count_if({call.arguments[0]}){_where(call)} AS BIGINT)")


def _sum(call: AggregateCall, columns: Columns) -> _Built:
    return Strategy.PLAIN, _sum_column(call, columns, call.arguments[0], call.argument_types[0])


def _avg(call: AggregateCall, columns: Columns) -> _Built:
    if call.result_type != "DOUBLE":  # of dates, times and intervals
        return _state(call, columns)
    return Strategy.PLAIN, _average(call, columns, call.arguments[0], call.argument_types[0])


def _geomean(call: AggregateCall, columns: Columns) -> _Built:
    logarithm = f"ln(CAST({call.arguments[0]} AS DOUBLE))"
    return Strategy.PLAIN, f"exp({_average(call, columns, logarithm, 'DOUBLE')})"


def _weighted(call: AggregateCall, columns: Columns) -> _Built:
    value, weight = (f"CAST({a} AS DOUBLE)" for a in call.arguments)
    weighted = _sum_column(call, columns, f"{value} * {weight}", "DOUBLE")
    weights = _sum_column(call, columns, f"CASE WHEN {value} IS NOT NULL THEN {weight} ELSE 0 END", "DOUBLE")
    return Strategy.PLAIN, f"{weighted} / {weights}"


def _sum_up(columns: Columns, type_: str, made: str) -> str:
    return columns.add(type_, made, lambda c, over: f"CAST(sum({c}){over} AS {type_})")


_NARROW = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", '"NULL"'}


def _sum_column(call: AggregateCall, columns: Columns, argument: str, type_: str) -> str:
    if type_ in _NARROW:
        kept = "BIGINT"  # is written twice as fast as HUGEINT, and holds 2^31 rows of the greatest INTEGER
    elif type_ in {"BIGINT", "UBIGINT", "HUGEINT"}:
        kept = "DECIMAL(38,0)"  # what a HUGEINT is on disk: no cast when it is read
    elif scale := re.fullmatch(r"DECIMAL\(\d+,\s?(\d+)\)", type_):
        kept = f"DECIMAL(38,{scale[1]})"
    elif type_ == "BIGNUM" and call.function == "sum":
        kept = type_
    else:
        kept = "DOUBLE"
        argument = argument if type_ == "DOUBLE" else f"CAST({argument} AS DOUBLE)"
    return _sum_up(columns, kept, f"CAST(sum({argument}){_where(call)} AS {kept})")


def _average(call: AggregateCall, columns: Columns, argument: str, type_: str) -> str:
    total = _sum_column(call, columns, argument, type_)
    count = _sum_up(columns, "BIGINT", f"count({argument}){_where(call)}")
    return f"CAST({total} AS DOUBLE) / {count}"


# -- functions that merge with themselves, and rows that win


def _fold(call: AggregateCall, columns: Columns) -> _Built:
    if _limited(call):
        return Strategy.PLAIN, _extremes_column(call, columns, call.arguments[0], call.argument_types[0], _where(call))
    return Strategy.PLAIN, _fold_column(columns, call.function, call.arguments[0], call.result_type, _where(call))


def _fold_column(columns: Columns, function: str, argument: str, type_: str, where: str) -> str:
    return columns.add(type_, f"{function}({argument}){where}", lambda c, over: f"{function}({c}){over}")


def _extremes_column(call: AggregateCall, columns: Columns, argument: str, type_: str, where: str) -> str:
    """Keep the n least or greatest values as a list."""
    n = call.arguments[-1].strip()
    if not re.fullmatch(r"0*[1-9]\d*", n):
        raise Refused(f"the number of values that {call.function} returns must be a positive integer literal")
    way = call.function.removeprefix("arg_")[:3]
    order = "'ASC'" if way == "min" else "'DESC'"
    return columns.add(
        f"{type_}[]",
        f"{way}({argument}, {n}){where}",
        lambda c, over: f"list_sort(flatten(list({c}) FILTER (WHERE {c} IS NOT NULL){over}), {order})[:{n}]",
    )


def _bitstring(call: AggregateCall, columns: Columns) -> _Built:
    if len(call.arguments) != 3:
        raise Refused("bitstring_agg needs its bounds; write bitstring_agg(x, min, max)")
    made = f"bitstring_agg({', '.join(call.arguments)}){_where(call)}"
    return Strategy.PLAIN, columns.add("BIT", made, lambda c, over: f"bit_or({c}){over}")


def _arg(call: AggregateCall, columns: Columns) -> _Built:
    """Keep the key and the value as one struct, which is ordered by the key, then by the value.

    Two to three times slower than DuckDB's own state, but that keeps the first of equal keys, whichever came first.
    """
    if call.order_by:
        return _values(call, columns)
    (value, key), (value_type, key_type) = call.arguments[:2], call.argument_types[:2]
    _, way, *suffix = call.function.split("_")
    row, type_ = f"k := {key}, v := {value}", f"k {key_type}, v {value_type}"
    conditions = [f"({key}) IS NOT NULL"] + ([] if suffix else [f"({value}) IS NOT NULL"])
    if suffix == ["nulls", "last"]:
        # NULL is the greatest of all keys, yet must be the last choice: `n` goes before it.
        row, type_ = f"n := ({key}) IS {'NOT ' if way == 'max' else ''}NULL, {row}", f"n BOOLEAN, {type_}"
        conditions = []
    row, type_, where = f"struct_pack({row})", f"STRUCT({type_})", _where(call, *conditions)
    if _limited(call):
        rows = _extremes_column(call, columns, row, type_, where)
        return Strategy.PLAIN, f"list_transform({rows}, lambda r: r.v)"
    return Strategy.PLAIN, f"struct_extract({_fold_column(columns, way, row, type_, where)}, 'v')"


def _pick(call: AggregateCall, columns: Columns) -> _Built:
    """Keep the first or last row, with its keys; without ORDER BY any value will do, so the least or greatest."""
    function = "last" if call.function.startswith("last") else "first"
    value, type_ = call.arguments[0], call.argument_types[0]
    if not call.order_by:
        way = "max" if function == "last" else "min"
        if call.function in {"first_value", "last_value"}:
            raise Refused(f"rows of a stream have no order; write {function}(x ORDER BY ts) or arg_{way}(x, ts)")
        return Strategy.PLAIN, _fold_column(columns, way, value, type_, _where(call))
    keys = _keys(call)
    fields = [f"o{i} := {key.expression}" for i, key in enumerate(keys)]
    types = [f"o{i} {key.type}" for i, key in enumerate(keys)]
    order = [f"{key.expression} {key.direction}" for key in keys]
    again = [f"struct_extract({{0}}, 'o{i}') {key.direction}" for i, key in enumerate(keys)]
    where = _where(call, f"({value}) IS NOT NULL" if call.function == "any_value" else "")
    column = columns.add(
        f"STRUCT({', '.join((*types, f'v {type_}'))})",
        f"{function}(struct_pack({', '.join((*fields, f'v := {value}'))})"
        f" ORDER BY {', '.join(order)}, {value} ASC NULLS LAST){where}",
        lambda c, over: (
            f"{function}({c} ORDER BY {', '.join(again).format(c)}, struct_extract({c}, 'v') ASC NULLS LAST)"
            f" FILTER (WHERE {c} IS NOT NULL){over}"
        ),
    )
    return Strategy.PLAIN, f"struct_extract({column}, 'v')"


# -- exported states


def _quantile(call: AggregateCall, columns: Columns) -> _Built:
    """Keep the list of values, as quantile_disc exports it: faster than list(), and one for all quantiles of x."""
    value, type_ = call.arguments[0], call.argument_types[0]
    if FUNCTIONS[call.function].ordered and call.order_by:
        keys = _keys(call)
        if len(keys) != 1 or keys[0].expression != value:
            raise Refused(f"{call.function} can only be ordered by its argument")
        if keys[0].direction.startswith("DESC"):
            return _values(call, columns)
    kept = f"{type_}[]"
    state = State("quantile_disc", (type_, "DOUBLE"), kept)

    def plain(exported: str) -> str:
        # CAST leaves an exported list the type AGGREGATE_STATE; joining it to a list does not.
        return f"(CAST({exported} AS {kept}) || CAST([] AS {kept}))"

    made = plain(f"quantile_disc({value}, 0.5){_where(call)} EXPORT_STATE")
    column = columns.add(kept, made, lambda c, over: plain(f"combine_aggr({_as_state(state, c, ('0.5',))}){over}"))
    return Strategy.STATE, f"list_aggregate({', '.join((column, quote_text(call.function), *call.arguments[1:]))})"


def _state(call: AggregateCall, columns: Columns) -> _Built:
    entry = STATES.get(f"{call.function} {call.result_type}") or STATES[call.function]
    positions = FUNCTIONS[call.function].constants if call.function in FUNCTIONS else ()
    listed = any("[" in call.argument_types[i] for i in positions)

    def fill(text: str) -> str:
        result = call.result_type.removesuffix("[]") if listed else call.result_type
        return text.replace("{0}", call.argument_types[0]).replace("{r}", result)

    state = replace(entry, parameters=tuple(map(fill, entry.parameters)), type=fill(entry.type))
    own = tuple(call.arguments[i] for i in positions)
    shared = entry.constants or own
    arguments = [
        f"CAST({text} AS {state.parameters[i]})" for i, text in enumerate(call.arguments) if i not in positions
    ]

    def merge(column: str, over: str) -> str:
        order = f" ORDER BY {column}" if entry.ordered else ""
        return f"CAST(combine_aggr({_as_state(state, column, shared)}{order}){over} AS {state.type})"

    made = f"{entry.exporter}({', '.join((*arguments, *shared))}){_where(call)} EXPORT_STATE"
    column = columns.add(state.type, f"CAST({made} AS {state.type})", merge)
    last = (f"{state.parameters[-1]}[]",) if listed else state.parameters[-1:]
    state = replace(state, exporter=call.function, parameters=(*state.parameters[:-1], *last))
    return Strategy.STATE, f"coalesce(finalize({_as_state(state, column, own)}), {FUNCTIONS[call.function].empty})"


def _as_state(state: State, column: str, constants: tuple[str, ...]) -> str:
    """Turn a column back into a state: DuckDB wants its exact type and signature, and the constants."""
    signature = ", ".join(map(quote_text, state.parameters))
    given = ", ".join(("NULL",) * (len(state.parameters) - len(constants)) + constants)
    constant = f", [{given}]" if constants else ""
    return f"to_aggregate_state(CAST({column} AS {state.type}), '{state.exporter}', [{signature}]{constant})"


# -- kept values


@dataclass(frozen=True, slots=True)
class Row:
    """A column of the value table: its name there, its type, and its expression over the input."""

    name: str
    type: str
    expression: str


def argument_rows(call: AggregateCall, prefix: str) -> list[Row]:
    """Return the columns v0, v1, .. for the arguments that are not constants."""
    constants = FUNCTIONS[call.function].constants
    pairs = [pair for i, pair in enumerate(zip(call.arguments, call.argument_types, strict=True)) if i not in constants]
    return [Row(f"{prefix}v{i}", _keep(type_), text) for i, (text, type_) in enumerate(pairs)]


def key_rows(call: AggregateCall, prefix: str) -> list[Row]:
    """Return the columns o0, o1, .. for the keys of ORDER BY that are no arguments."""
    if not FUNCTIONS[call.function].ordered:
        return []
    keys = [key for key in _keys(call) if key.expression not in call.arguments]
    if keys and call.distinct:
        raise Refused("in a DISTINCT aggregate, ORDER BY can only name its arguments")
    return [Row(f"{prefix}o{i}", _keep(key.type), key.expression) for i, key in enumerate(keys)]


_JSON_ARRAY = "'[' || string_agg(coalesce(CAST(to_json({0}) AS VARCHAR), 'null'), ','{order}){where} || ']'"
_JSON_KEY = (
    "CASE WHEN {0} IS NULL{guard} THEN error('json_group_object key cannot be NULL')"
    " ELSE to_json(CAST({0} AS VARCHAR)) END"
)
# DuckDB's aggregate macros; those with a text keep values, and it says what becomes of them.
_MACROS = {
    "geomean": "",
    "weighted_avg": "",
    "json_group_array": _JSON_ARRAY,
    "json_group_structure": f"json_structure(CAST({_JSON_ARRAY} AS JSON)) -> 0",
    "json_group_object": f"'{{{{' || string_agg({_JSON_KEY} || ':' ||"
    " coalesce(CAST(to_json({1}) AS VARCHAR), 'null'), ','{order}){where} || '}}'",
}


def _values(call: AggregateCall, columns: Columns) -> _Built:
    shape = FUNCTIONS[call.function]
    arguments = argument_rows(call, columns.prefix)
    order, where = "", f" FILTER (WHERE {columns.rows})" if columns.rows else ""
    if shape.ordered:
        names = {row.expression: row.name for row in (*key_rows(call, columns.prefix), *arguments)}
        chosen = {names[key.expression]: key.direction for key in _keys(call)}
        ways = chosen | {row.name: "ASC NULLS LAST" for row in arguments if row.name not in chosen}
        order = f" ORDER BY {', '.join(f'{name} {way}' for name, way in ways.items())}"
    if call.function in _MACROS:
        guard = f" AND {columns.rows}" if columns.rows else ""
        names_of = (row.name for row in arguments)
        return Strategy.VALUES, _MACROS[call.function].format(*names_of, order=order, where=where, guard=guard)
    names_left = iter(row.name for row in arguments)
    texts = [text if i in shape.constants else next(names_left) for i, text in enumerate(call.arguments)]
    return Strategy.VALUES, f"{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(texts)}{order}){where}"


_BUILDERS: dict[Kind, Callable[[AggregateCall, Columns], _Built]] = {
    Kind.COUNT: _count,
    Kind.COUNT_IF: _count_if,
    Kind.SUM: _sum,
    Kind.AVG: _avg,
    Kind.GEOMEAN: _geomean,
    Kind.WEIGHTED: _weighted,
    Kind.FOLD: _fold,
    Kind.PICK: _pick,
    Kind.ARG: _arg,
    Kind.BITSTRING: _bitstring,
    Kind.STATE: _state,
    Kind.QUANTILE: _quantile,
    Kind.VALUES: _values,
}
