"""The rows of SHOW FUNCTIONS and DESCRIBE FUNCTION, for users' functions of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlstream.catalog import AggregateFunction, AnyFunction, Catalog, ProcessFunction
from sqlstream.errors import BindError, missing
from sqlstream.sql.nodes import Name
from sqlstream.units import duration

Row = tuple[str | None, ...]


def function_rows(catalog: Catalog, like: Callable[[str], bool]) -> tuple[Row, ...]:
    """Return the rows of SHOW FUNCTIONS, by name: name, parameters, result, kind, and position of the declaration.

    `like` tells which names to list.
    """
    functions: list[AnyFunction] = [*catalog.duck_functions, *catalog.process_functions.values()]
    matches = sorted((f for f in functions if like(f.name)), key=lambda f: f.name.lower())
    return tuple((f.name, f"({', '.join(_takes(f))})", _returns(f), _kind(f), f.location) for f in matches)


def described_function(name: Name, catalog: Catalog) -> tuple[Row, ...]:
    """Return the rows of DESCRIBE FUNCTION, one for each part: kind, name, type, "true" if it can be NULL, and default value.

    Raises BindError for a function that does not exist.
    """
    function = catalog.any_function(name.text)
    if function is None:
        hint = missing("function", name.text, catalog.function_names)
        raise BindError(f'function "{name.text}" does not exist', name.span, hint=hint)
    return (f"{_kind(function)} function", function.name, None, None, None), *_parts(function)


def _parts(function: AnyFunction) -> Iterable[Row]:
    if isinstance(function, ProcessFunction):
        for table in function.tables:
            columns = table.columns and f"TABLE({', '.join(f'{c.name} {c.type}' for c in table.columns)})"
            kind = "broadcast table" if table.broadcast else "table"
            yield kind, table.name, columns or "TABLE", None, None
        for scalar in function.scalars:
            yield "parameter", scalar.name, scalar.type, _text(scalar.nullable), scalar.default
        for state in function.states:
            contents = f"{state.kind} of {state.key_type + ' to ' if state.key_type else ''}{state.type}"
            kind = "broadcast state" if state.broadcast else "state"
            yield kind, state.name, contents + (f", for {duration(state.ttl)}" if state.ttl else ""), None, None
        for column in function.outputs:
            yield "column", column.name, column.type, "true", None
        for side in function.side_outputs:
            yield "side output", side.name, _table((c.name, c.type) for c in side.columns), None, None
        return
    parameters = zip(function.names, function.parameters, function.nullable, function.defaults, strict=True)
    for name, type_, nullable, default in parameters:
        yield "parameter", name, type_, _text(nullable), default
    if isinstance(function, AggregateFunction):
        steps = ["accumulate", *["merge"] * function.merges, *["retract"] * function.retracts, "finish"]
        yield "methods", ", ".join(steps), None, None, None
        yield "accumulator", None, function.accumulator, "true", None
        yield "result", None, function.returns, "true", None
        return
    for name, type_ in function.columns:
        yield "column", name, type_, "true", None
    if function.kind == "scalar":
        yield "result", None, function.returns, "true", None


def _takes(function: AnyFunction) -> Iterable[str]:
    if isinstance(function, ProcessFunction):
        return [
            *(f"TABLE {t.name}{' BROADCAST' if t.broadcast else ''}" for t in function.tables),
            *(s.type for s in function.scalars),
        ]
    return function.parameters


def _returns(function: AnyFunction) -> str:
    if isinstance(function, ProcessFunction):
        return _table((c.name, c.type) for c in function.outputs)
    if isinstance(function, AggregateFunction):
        return function.returns
    return _table(function.columns) if function.kind == "table" else function.returns


def _table(columns: Iterable[tuple[str, str]]) -> str:
    return f"TABLE({', '.join(f'{name} {type_}' for name, type_ in columns)})"


def _kind(function: AnyFunction) -> str:
    match function:
        case ProcessFunction():
            return "process"
        case AggregateFunction():
            return "aggregate"
        case _:
            return function.kind


def _text(value: bool) -> str:
    return "true" if value else "false"
