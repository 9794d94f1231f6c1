"""Registers user functions in DuckDB connections: the binder's, a worker process's and a state query's."""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sqlstream.catalog import AggregateFunction, AnyFunction, DuckFunction, Function
from sqlstream.duck.sql import quote_name
from sqlstream.duck.types import element_of, kind_of
from sqlstream.errors import BindError, JobError, OutageError, UserCodeError
from sqlstream.functions import pickling as carry
from sqlstream.functions import types
from sqlstream.functions.invocation import OUTAGE, Invocation

_START = re.compile(rf'({JobError.kind}|{OUTAGE}): (?=function ")')
# The steps of an aggregate function that DuckDB calls: see AggregateSteps.
STEPS = ("accumulate", "merge", "change", "scan", "finish")


class RegisteredFunctions:
    """The functions that one call of `register` has registered. `close` closes the resources that they have opened."""

    def __init__(self, calls: Iterable[_LazyFunction]):
        self._calls = tuple(calls)

    def close(self) -> None:
        """Close the resources of all functions. Raises the first JobError after all of them are closed."""
        failed: list[JobError] = []
        for call in self._calls:
            try:
                call.close()
            except JobError as error:
                failed.append(error)
        if failed:
            raise failed[0]


def register(connection: duckdb.DuckDBPyConnection, functions: Iterable[AnyFunction]) -> RegisteredFunctions:
    """Register functions in a connection and its cursors; they replace registered functions of the same name.

    Process functions are skipped: DuckDB does not call them. A function is unpickled on its first call, so registering is cheap.
    Raises BindError if DuckDB has a function of the name. Close the connection when done: if it is still open when Python ends,
    DuckDB prints about leaked objects.
    """
    calls = []
    for function in functions:
        if not isinstance(function, Function | AggregateFunction):
            continue
        with contextlib.suppress(duckdb.InvalidInputException):  # It is new here.
            unregister(connection, function)
        calls.append(_LazyFunction(function))
        try:
            if isinstance(function, AggregateFunction):
                _create_stand_in(connection, function)
                _create_steps(connection, function, calls[-1])
            else:
                _create(connection, function, calls[-1], function.name)
        except duckdb.CatalogException as error:
            raise BindError(f'function "{function.name}" cannot be registered: the name is taken in DuckDB') from error
    return RegisteredFunctions(calls)


def unregister(connection: duckdb.DuckDBPyConnection, function: DuckFunction) -> None:
    """Remove a function from a connection. Raises duckdb.InvalidInputException if it is not registered."""
    connection.remove_function(function.name)
    if isinstance(function, AggregateFunction):
        for step in STEPS:
            connection.remove_function(function.step(step))


def register_for_queries(
    connection: duckdb.DuckDBPyConnection, functions: Iterable[DuckFunction]
) -> RegisteredFunctions:
    """Register functions for SQL that our binder does not see, so that DuckDB resolves default values and named arguments.

    A macro with the function's name declares the defaults, and calls the function, which is registered under another name. For a
    table function it is a table macro, for an aggregate function a macro that calls its steps.
    """
    calls = []
    for function in functions:
        calls.append(_LazyFunction(function))
        if isinstance(function, AggregateFunction):
            _create_steps(connection, function, calls[-1])
            typed = zip(map(quote_name, function.names), function.parameters, strict=True)
            rows = [f"CAST({name} AS {type})" for name, type in typed]
            row = rows[0] if len(rows) == 1 else f"struct_pack({', '.join(f'p{i} := {r}' for i, r in enumerate(rows))})"
            accumulated = f"{quote_name(function.step('accumulate'))}(list({row}))"
            _create_macro(connection, function, f"{quote_name(function.step('finish'))}({accumulated})")
            continue
        if not function.parameters and function.kind == "scalar":
            _create(connection, function, calls[-1], function.name)
            continue
        hidden = f"_udf_{function.name}"
        _create(connection, function, calls[-1], hidden)
        call = f"{quote_name(hidden)}({', '.join(quote_name(name) for name in function.names)})"
        _create_macro(connection, function, call if function.kind == "scalar" else f"TABLE {_rows(function, call)}")
    return RegisteredFunctions(calls)


def _create_macro(connection: duckdb.DuckDBPyConnection, function: DuckFunction, body: str) -> None:
    parameter_defaults = zip(map(quote_name, function.names), function.defaults, strict=True)
    parameters = ", ".join(name if default is None else f"{name} := {default}" for name, default in parameter_defaults)
    connection.execute(f"CREATE MACRO {quote_name(function.name)}({parameters}) AS {body}")


def _rows(function: Function, call: str) -> str:
    """Return the SELECT of the rows of a table function, whose call returns them as a list."""
    if kind_of(element_of(function.returns)) != "struct":
        return f"SELECT unnest({call}) AS {quote_name(function.name)}"
    fields = (f"struct_extract_at(_row, {i}) AS {quote_name(name)}" for i, (name, _) in enumerate(function.columns, 1))
    return f"SELECT {', '.join(fields)} FROM (SELECT unnest({call}) AS _row)"


def recover(error: duckdb.Error) -> JobError | None:
    """Return the error that a user's function raised, from the text of DuckDB's error; None if the error has another cause."""
    text = str(error)
    if (match := _START.search(text)) is None:
        return None
    message, _, detail = text[match.end() :].partition("\n")
    return (OutageError if match[1] == OUTAGE else UserCodeError)(message, detail=detail or None)


class _LazyFunction:
    """A function in one connection. Its first call unpickles it, and opens its resource if it has one.

    A resource that is not closed is closed with the last reference to its connection, at the latest when Python ends.
    """

    def __init__(self, function: DuckFunction):
        self.function = function
        self._call: Any = None
        self._unclosed: weakref.finalize[[Invocation], _LazyFunction] | None = None
        # Reentrant: a process that is ended while it opens a resource closes it from the same thread.
        self._lock = threading.RLock()

    def call(self) -> Any:
        with self._lock:
            if self._call is None:
                self._call = carry.unpack(self.function.name, self.function.pickled).opened()
                if self._call.resource is not None:
                    self._unclosed = weakref.finalize(self, _close_quietly, self._call)
            return self._call

    def close(self) -> None:
        with self._lock:
            call, self._call = self._call, None
        if self._unclosed is not None and self._unclosed.detach() and call is not None:
            call.close()


def _close_quietly(call: Invocation) -> None:
    # Nobody is left who could receive the error.
    with contextlib.suppress(JobError):
        call.close()


def _create(connection: duckdb.DuckDBPyConnection, function: Function, lazy: _LazyFunction, name: str) -> None:
    # An Arrow function without parameters would receive no chunk, and not know how many rows it has.
    changing = not function.deterministic
    if function.parameters:
        _create_arrow(connection, name, _columns(lazy), function.parameters, function.returns, changing)
        return
    connection.create_function(
        name,
        _constant(function, lazy),
        [],
        function.returns,
        type=PythonUDFType.NATIVE,
        null_handling=FunctionNullHandling.SPECIAL,
        side_effects=changing,
    )


def _create_stand_in(connection: duckdb.DuckDBPyConnection, function: AggregateFunction) -> None:
    """Register a scalar function under the name of an aggregate function, so that DuckDB can bind calls; it is never run."""

    def never(*chunks: pa.ChunkedArray) -> pa.Array:
        raise JobError(f'function "{function.name}" is an aggregate function: it has no value for a row')

    _create_arrow(connection, function.name, never, function.parameters, function.returns, side_effects=True)


def _create_steps(connection: duckdb.DuckDBPyConnection, function: AggregateFunction, lazy: _LazyFunction) -> None:
    accumulator, rows = function.accumulator, f"{function.row}[]"
    types_of = {
        "accumulate": ((rows,), accumulator),
        "merge": ((f"{accumulator}[]",), accumulator),
        "change": ((accumulator, rows, rows), accumulator),
        "scan": (
            (accumulator, f"STRUCT(r {function.row})[]"),
            f"STRUCT(results {function.returns}[], accumulator {accumulator})",
        ),
        "finish": ((accumulator,), function.returns),
    }
    for step in STEPS:
        parameters, returned = types_of[step]
        _create_arrow(connection, function.step(step), _step(step, lazy), parameters, returned)


def _step(step: str, lazy: _LazyFunction) -> Callable[..., pa.Array]:
    def called(*chunks: pa.ChunkedArray) -> pa.Array:
        return getattr(lazy.call(), step)(*(chunk.combine_chunks() for chunk in chunks))

    return called


def _create_arrow(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    called: Callable[..., pa.Array],
    parameters: Sequence[str],
    returns: str,
    side_effects: bool = False,
) -> None:
    # DuckDB counts the parameters of the Python function.
    positions = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(parameters))]
    called.__signature__ = inspect.Signature(positions)  # type: ignore[attr-defined]
    connection.create_function(
        name,
        called,
        list(parameters),
        returns,
        type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL,
        side_effects=side_effects,
    )


def _columns(lazy: _LazyFunction) -> Callable[..., pa.Array]:
    def columns(*chunks: pa.ChunkedArray) -> pa.Array:
        return lazy.call()(*chunks)

    return columns


def _constant(function: Function, lazy: _LazyFunction) -> Callable[[], Any]:
    # From Arrow's values to the ones that DuckDB takes from Python: a MAP as a dict, an INTERVAL as a timedelta.
    codec = types.codec(function.returns)

    def constant() -> Any:
        return codec.decode(lazy.call().constant())

    return constant
