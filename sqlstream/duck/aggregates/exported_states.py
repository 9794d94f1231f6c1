"""Aggregates whose partial result is the state that DuckDB exports."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental
from sqlstream.duck.aggregates.functions import State, state_of
from sqlstream.duck.aggregates.kept_values import collected
from sqlstream.duck.aggregates.partial_columns import Built, Columns, Strategy
from sqlstream.duck.sql import quote_text


def quantile(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the list of values, which is the exported state of quantile_disc; return the SQL of the quantile.

    Faster than list(), and all quantiles of x share the column. Raises NotIncremental if ORDER BY names anything but the
    argument.
    """
    value, type_ = call.arguments[0], call.argument_types[0]
    if call.shape.ordered and call.order_by:
        keys = call.keys
        if len(keys) != 1 or keys[0].expression != value:
            raise NotIncremental(f"{call.function} can only be ordered by its argument")
        if keys[0].direction.startswith("DESC"):
            return collected(call, columns)
    list_type = f"{type_}[]"
    state = State("quantile_disc", (type_, "DOUBLE"), list_type)

    def plain(exported: str) -> str:
        # An exported list keeps the type AGGREGATE_STATE through CAST, but not through ||.
        return f"(CAST({exported} AS {list_type}) || CAST([] AS {list_type}))"

    partial = plain(f"quantile_disc({value}, 0.5){call.where()} EXPORT_STATE")
    column = columns.add(
        list_type, partial, lambda c, over: plain(f"combine_aggr({_as_state(state, c, ('0.5',))}){over}")
    )
    return Strategy.STATE, f"list_aggregate({', '.join((column, quote_text(call.function), *call.arguments[1:]))})"


def exported(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the exported state of the function; return the SQL of its result. Raises NotIncremental."""
    shape = call.shape
    positions = shape.constants
    listed = any("[" in call.argument_types[i] for i in positions)
    result = call.result_type.removesuffix("[]") if listed else call.result_type
    state = state_of(call.function, call.argument_types[0], result)
    own = tuple(call.arguments[i] for i in positions)
    shared = state.constants or own
    arguments = [
        f"CAST({text} AS {state.parameters[i]})" for i, text in enumerate(call.arguments) if i not in positions
    ]

    def merge(column: str, over: str) -> str:
        order = f" ORDER BY {column}" if state.ordered else ""
        return f"CAST(combine_aggr({_as_state(state, column, shared)}{order}){over} AS {state.type})"

    partial = f"{state.exporter}({', '.join((*arguments, *shared))}){call.where()} EXPORT_STATE"
    column = columns.add(state.type, f"CAST({partial} AS {state.type})", merge)
    last = (f"{state.parameters[-1]}[]",) if listed else state.parameters[-1:]
    own_state = replace(state, exporter=call.function, parameters=(*state.parameters[:-1], *last))
    return Strategy.STATE, f"coalesce(finalize({_as_state(own_state, column, own)}), {shape.empty})"


def _as_state(state: State, column: str, constants: tuple[str, ...]) -> str:
    """Return the SQL that turns a column back into a state, with the exact type, signature and constants that DuckDB demands."""
    signature = ", ".join(map(quote_text, state.parameters))
    constant_list = ", ".join(("NULL",) * (len(state.parameters) - len(constants)) + constants)
    constant = f", [{constant_list}]" if constants else ""
    return f"to_aggregate_state(CAST({column} AS {state.type}), '{state.exporter}', [{signature}]{constant})"
