"""`@udf` and `@udtf`: marks that make Python functions and classes callable from SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from sqlstream.catalog import FunctionKind

F = TypeVar("F", bound=Callable[..., Any])
# The decorator of each kind of function.
DECORATORS: dict[FunctionKind, str] = {"scalar": "udf", "table": "udtf"}
_MARK = "__sqlstream_udf__"


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """What a decorator was told; None stands for what the function itself says."""

    name: str | None = None
    returns: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = True
    vectorized: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """What a decorator leaves on a function or a class."""

    kind: FunctionKind
    options: FunctionOptions


def mark_of(value: object) -> Mark | None:
    """Return what a decorator has left on a function or a class itself, not on a class above it."""
    found = getattr(value, "__dict__", {}).get(_MARK) if callable(value) else None
    return found if isinstance(found, Mark) else None


def _marking(mark: Mark, function: F | None) -> Any:
    def marked(function: F) -> F:
        setattr(function, _MARK, mark)
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
    """Mark a Python function as callable from SQL; from Python it stays what it was.

    SQL types come from the type hints (see `sqlstream.functions.types`). `returns` and `parameters` name them instead,
    in DuckDB's spelling: `@udf(returns="DECIMAL(10,2)", parameters={"at": "TIMESTAMP WITH TIME ZONE"})`. A NULL
    argument makes the result NULL without a call, unless the parameter's hint says `| None`. `deterministic=False` is
    for results that differ between calls with equal arguments: such a function is called for every row, and refused
    where a replay could differ.

    `vectorized=True` is for a function that takes and returns Arrow arrays, many rows at a time: with hints such as
    pyarrow.Int64Array, or with `returns` and `parameters`. NULLs are its own business.

    Of a class SQL calls `__call__`, or `eval`, of one instance per worker process and job; its `open()`, if there is
    one, is called before the first row, its `close()` when the process is done with the job.
    """
    options = FunctionOptions(name, returns, dict(parameters or {}), deterministic, vectorized)
    marked: F | Callable[[F], F] = _marking(Mark("scalar", options), function)
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
    """Mark a Python function that gives any number of rows for its arguments: `t CROSS JOIN LATERAL f(t.x) AS r`.

    Columns come from the hint of what it yields: `Iterator[Row]` of a dataclass, NamedTuple or TypedDict has a column for each
    field, `Iterator[tuple[int, str]]` has `f0` and `f1`, any other type is one column with the name that SQL gives the rows.
    `returns` says what a row is instead, as a class or in DuckDB's spelling: `@udtf(returns="STRUCT(word VARCHAR, n BIGINT)")`.
    A NULL argument gives no rows without a call, unless the parameter's hint says `| None`.

    With `vectorized=True` the function takes Arrow arrays and returns a pair: an Arrow table of the rows for all of them, and
    for each of those the index of the input row that it belongs to. It needs `returns`. NULLs are its own business.

    All else is as of `udf`.
    """
    options = FunctionOptions(name, returns, dict(parameters or {}), deterministic, vectorized)
    marked: F | Callable[[F], F] = _marking(Mark("table", options), function)
    return marked
