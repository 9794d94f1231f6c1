"""`@udf` and `@udtf`: decorators that make Python functions and classes callable from SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from sqlstream.catalog import FunctionKind

F = TypeVar("F", bound=Callable[..., Any])
# The decorator of each kind of function.
DECORATORS: dict[FunctionKind, str] = {"scalar": "udf", "table": "udtf"}
_DECORATION = "__sqlstream_udf__"


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """The arguments of a decorator. Without `name` or `returns`, the function's own name or type hint counts."""

    name: str | None = None
    returns: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = True
    vectorized: bool = False


@dataclass(frozen=True, slots=True)
class Decoration:
    """What a decorator says of a function or a class: the kind of function, and the decorator's arguments."""

    kind: FunctionKind
    options: FunctionOptions


def decoration_of(value: object) -> Decoration | None:
    """Return the decoration of a function or a class itself, not on a base class; None if there is none."""
    decoration = getattr(value, "__dict__", {}).get(_DECORATION) if callable(value) else None
    return decoration if isinstance(decoration, Decoration) else None


def _decorated(decoration: Decoration, function: F | None) -> Any:
    def marked(function: F) -> F:
        setattr(function, _DECORATION, decoration)
        return function

    return marked if function is None else marked(function)


@overload
def udf(function: F, /) -> F: ...
@overload
def udf(
    *,
    name: str | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> Callable[[F], F]: ...
def udf(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> F | Callable[[F], F]:
    """Mark a Python function or class as a scalar function of SQL. Python still calls it as before.

    SQL types come from the type hints (see `sqlstream.functions.types`). `returns` and `parameters` name them instead,
    in DuckDB's spelling: `@udf(returns="DECIMAL(10,2)", parameters={"at": "TIMESTAMP WITH TIME ZONE"})`. A NULL
    argument makes the result NULL without a call, unless the parameter's hint says `| None`. `deterministic=False` is
    for results that differ between calls with equal arguments: such a function is called for every row, and refused
    where a replay could differ.

    `vectorized=True` is for a function that takes and returns Arrow arrays, many rows at a time: with hints such as
    pyarrow.Int64Array, or with `returns` and `parameters`. It receives NULLs.

    For a class, SQL calls `__call__` or `eval` of one instance per worker process and job. Its `open()`, if it has one, runs
    before the first row, its `close()` when the process has finished the job.
    """
    options = FunctionOptions(name, returns, dict(parameters or {}), deterministic, vectorized)
    marked: F | Callable[[F], F] = _decorated(Decoration("scalar", options), function)
    return marked


@overload
def udtf(function: F, /) -> F: ...
@overload
def udtf(
    *,
    name: str | None = None,
    returns: str | type | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> Callable[[F], F]: ...
def udtf(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    returns: str | type | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> F | Callable[[F], F]:
    """Mark a Python function or class as a table function of SQL, which returns rows: `t CROSS JOIN LATERAL f(t.x) AS r`.

    Columns come from the type hint of the result: `Iterator[Row]` with a dataclass, NamedTuple or TypedDict has a column per
    field, `Iterator[tuple[int, str]]` has `f0` and `f1`, any other type is one column with the name that SQL gives the rows.
    `returns` names the row type instead, as a class or in DuckDB's spelling: `@udtf(returns="STRUCT(word VARCHAR, n BIGINT)")`.
    For a NULL argument there is no call and there are no rows, unless the parameter's hint says `| None`.

    With `vectorized=True` the function takes Arrow arrays and returns a pair: an Arrow table with the rows for all of them, and
    for each of these rows the index of its input row, from 0. It needs `returns`, and receives NULLs.

    Everything else is as in `udf`.
    """
    options = FunctionOptions(name, returns, dict(parameters or {}), deterministic, vectorized)
    marked: F | Callable[[F], F] = _decorated(Decoration("table", options), function)
    return marked
