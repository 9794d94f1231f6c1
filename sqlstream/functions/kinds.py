"""Declares Python functions and classes of all kinds: scalar, table, aggregate and process functions."""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import AggregateFunction, AnyFunction, ProcessFunction
from sqlstream.errors import BindError
from sqlstream.functions.aggregates.api import is_aggregate
from sqlstream.functions.aggregates.declare import declare_aggregate
from sqlstream.functions.declare import declare
from sqlstream.functions.decorators import DECORATORS, decoration_of
from sqlstream.functions.process.api import is_process, table_options
from sqlstream.functions.process.declare import declare_process

# What to write in a process function in place of the options of other functions.
_OF_PROCESS = {
    "returns": "Write a type hint of what its methods yield: -> Iterator[Alert].",
    "parameters": "Write type hints of its rows, and of the parameters of __init__.",
    "deterministic": "Leave it out: a process function keeps what it has computed in its state.",
    "vectorized": "Write @process(vectorized=..).",
}


def is_marked(value: object) -> bool:
    """Return whether a value is a function or a class under one of the decorators."""
    return decoration_of(value) is not None or is_process(value) or is_aggregate(value)


def decorator_of(function: AnyFunction) -> str:
    """Return the name of the decorator that makes functions of this kind."""
    match function:
        case ProcessFunction():
            return "process"
        case AggregateFunction():
            return "udaf"
        case _:
            return DECORATORS[function.kind]


def declare_any(value: Any, *, name: str | None = None, root: str | None = None, **options: Any) -> AnyFunction:
    """Return the catalog's entry of a Python function or class of any kind; `name` overrides its own name.

    `options` override the decorator's. Without a decorator, a class with `accumulate` and `finish` is an aggregate function, and
    a class with the methods of a process function is a process function. Raises BindError or UnsupportedError, with the position.
    Options of process functions and aggregate functions are an error, too: only the decorator can set them.
    """
    option = next((option for option, setting in options.items() if setting is not None), None)
    if is_process(value) or (not is_marked(value) and _processes(value)):
        if option is not None:
            raise BindError(f"{option} of a process function is said by its class", hint=_OF_PROCESS[option])
        return declare_process(value, name=name, root=root)
    if is_aggregate(value) or (decoration_of(value) is None and _aggregates(value)):
        if option is not None:
            raise BindError(
                f"{option} of an aggregate function is said by its class", hint=f"Write @udaf({option}=..)."
            )
        return declare_aggregate(value, name=name, root=root)
    return declare(value, name=name, root=root, **options)


def _aggregates(value: object) -> bool:
    """Return whether a class without a decorator has the methods of an aggregate function."""
    return isinstance(value, type) and hasattr(value, "accumulate") and hasattr(value, "finish")


def _processes(value: object) -> bool:
    """Return whether a class without a decorator has methods of a process function, and none of a scalar one."""
    if not isinstance(value, type) or hasattr(value, "eval") or "__call__" in dir(value):
        return False
    return hasattr(value, "process") or any(table_options(getattr(value, name, None)) for name in dir(value))
