"""`@udaf`: a mark that makes a Python class an aggregate function of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from sqlstream.functions.decorators import FunctionOptions

C = TypeVar("C", bound=type)
_MARK = "__sqlstream_udaf__"


@overload
def udaf(aggregate: C, /) -> C: ...
@overload
def udaf(
    *,
    name: str | None = None,
    accumulator: str | type | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> Callable[[C], C]: ...
def udaf(
    aggregate: C | None = None,
    /,
    *,
    name: str | None = None,
    accumulator: str | type | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> C | Callable[[C], C]:
    """Mark a Python class as an aggregate function of SQL.

    - `accumulate(self, acc, x, ..)` adds a row to the accumulator. The parameters behind `acc` are the SQL function's.
    - `finish(self, acc)` returns the result.
    - `merge(self, acc, other)`, optional, merges two accumulators; `retract(self, acc, x, ..)`, optional, removes a row.
    - `create(self)`, optional, returns an accumulator without rows; otherwise its class is called without arguments.

    The type of the accumulator is the hint of `acc` in `accumulate`: a dataclass, or any type that `udf` takes. A method whose
    result has the accumulator as its hint returns it; any other method changes its argument. Rows with NULL are skipped, unless
    the parameter's hint says `| None`.

    With `vectorized=True` the methods take Arrow arrays for many groups. `groups` has the group of each row: a number from 0, in
    ascending order; each group has rows. `accumulators` is an Arrow table with a column per field, or one column `value`.

    - `accumulate(self, groups, x, ..)` and `merge(self, groups, accumulators)` return a table with one accumulator per group.
    - `retract(self, accumulators, groups, x, ..)` returns the accumulators without the rows.
    - `finish(self, accumulators)` returns an array of results.

    `accumulator` (a class, or a type in DuckDB's spelling) and `returns` name the types. The methods receive NULLs. All else is
    as in `udf`.
    """
    options = FunctionOptions(name, returns, dict(parameters or {}), deterministic, vectorized)

    def marked(aggregate: C) -> C:
        setattr(aggregate, _MARK, (options, accumulator))
        return aggregate

    return marked if aggregate is None else marked(aggregate)


def mark_of(value: object) -> tuple[FunctionOptions, str | type | None] | None:
    """Return the options of `@udaf` on a class itself, not on a base class, and its `accumulator`; None without `@udaf`."""
    mark: tuple[FunctionOptions, Any] | None = (
        getattr(value, "__dict__", {}).get(_MARK) if isinstance(value, type) else None
    )
    return mark


def is_aggregate(value: object) -> bool:
    """Return whether a value is a class under `@udaf`."""
    return mark_of(value) is not None
