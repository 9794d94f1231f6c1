"""User functions in a DuckDB connection: of the binder, of a worker process, of a state query."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sqlstream.catalog import Function
from sqlstream.errors import BindError, JobError
from sqlstream.functions import carry, types

_START = 'job failed: function "'


def register(connection: duckdb.DuckDBPyConnection, functions: Iterable[Function]) -> None:
    """Make functions callable in a connection and its cursors, replacing those registered here before by the same name.

    A function is decoded on its first call, so that registering is cheap. Close the connection when done: one that is
    still open when Python ends makes DuckDB print about leaked objects.
    """
    for function in functions:
        with contextlib.suppress(duckdb.InvalidInputException):  # It is new here.
            connection.remove_function(function.name)
        try:
            _create(connection, function)
        except duckdb.CatalogException as error:
            raise BindError(f'function "{function.name}" cannot be registered: the name is taken in DuckDB') from error


def recover(error: duckdb.Error) -> JobError | None:
    """Return the error of a user's function that DuckDB passed on as text, or None for an error of another kind."""
    _, found, rest = str(error).partition(_START)
    if not found:
        return None
    message, _, detail = (_START + rest).removeprefix("job failed: ").partition("\n")
    return JobError(message, detail=detail or None)


def _create(connection: duckdb.DuckDBPyConnection, function: Function) -> None:
    # A chunk of an Arrow function without parameters would not tell how many rows it has.
    vectorised = bool(function.parameters)
    connection.create_function(
        function.name,
        _columns(function) if vectorised else _constant(function),
        list(function.parameters),
        function.returns,
        type=PythonUDFType.ARROW if vectorised else PythonUDFType.NATIVE,
        null_handling=FunctionNullHandling.SPECIAL,
        side_effects=not function.deterministic,
    )


def _columns(function: Function) -> Callable[..., pa.Array]:
    name, pickled = function.name, function.pickled

    def columns(*chunks: pa.ChunkedArray) -> pa.Array:
        return carry.unpack(name, pickled)(*chunks)

    # DuckDB counts the parameters of what it is given.
    parameters = [
        inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(function.parameters))
    ]
    columns.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return columns


def _constant(function: Function) -> Callable[[], Any]:
    # Arrow's values become the ones that DuckDB takes from Python: a MAP as a dict, an INTERVAL as a timedelta.
    name, pickled, codec = function.name, function.pickled, types.codec(function.returns)

    def constant() -> Any:
        return codec.decode(carry.unpack(name, pickled).constant())

    return constant
