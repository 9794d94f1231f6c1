"""DuckDB's most common aggregates in Python: calling DuckDB for every value that a state adds or reads would take too long.

Their accumulators equal DuckDB's partial results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_ORDERED = _INTEGERS | {"DOUBLE", "VARCHAR", "DATE", "TIMESTAMP"}
_MOMENTS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


@dataclass(frozen=True, slots=True)
class PlainAggregate:
    """The add and finish functions of an aggregate. Values are never NULL; the accumulator None has no values."""

    add: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


def plain_aggregate(function: str, parameters: tuple[str, ...], own: str, returns: str) -> PlainAggregate | None:
    """Return an aggregate of DuckDB in Python, None if there is none. Its result has the type `own`, and is cast to `returns`."""
    if len(parameters) != 1 or (returns not in ("BIGINT", "DOUBLE") and returns != own):
        return None
    casts: dict[str, Callable[[Any], Any]] = {"BIGINT": _whole, "DOUBLE": float}
    cast = casts.get(returns, lambda v: v)
    [type] = parameters
    if function == "count":
        return PlainAggregate(lambda acc, _: (acc or 0) + 1, lambda acc: cast(acc or 0))
    if function in ("min", "max") and type in _ORDERED and own == type:
        return PlainAggregate(
            _least if function == "min" else _greatest, lambda acc: None if acc is None else cast(acc)
        )
    if type not in _INTEGERS and type != "DOUBLE":
        return None
    if function == "sum":
        return PlainAggregate(
            lambda acc, v: v if acc is None else acc + v, lambda acc: None if acc is None else cast(acc)
        )
    if function == "avg" and own == "DOUBLE":
        return PlainAggregate(_mean_with, lambda acc: cast(_mean(acc)) if acc and acc["part_1"] else None)
    if function in _MOMENTS and type == "DOUBLE":
        return PlainAggregate(
            _moments_with, lambda acc: None if (spread := _spread(function, acc)) is None else cast(spread)
        )
    return None


def _whole(value: Any) -> int:
    # As DuckDB casts: to the nearest, and to the even one of two.
    return value if isinstance(value, int) else round(value)


def _rank(value: Any) -> Any:
    # NaN is the greatest.
    return (math.isnan(value), value) if isinstance(value, float) else value


def _least(acc: Any, value: Any) -> Any:
    return value if acc is None or _rank(value) < _rank(acc) else acc


def _greatest(acc: Any, value: Any) -> Any:
    return value if acc is None or _rank(value) > _rank(acc) else acc


def _mean_with(acc: Any, value: Any) -> Any:
    if acc is None or acc["part_0"] is None:
        return {"part_0": value, "part_1": 1}
    return {"part_0": acc["part_0"] + value, "part_1": acc["part_1"] + 1}


def _mean(acc: Any) -> float:
    return float(acc["part_0"]) / float(acc["part_1"])


def _moments_with(acc: Any, value: float) -> Any:
    """Add a value by Welford's algorithm, as DuckDB does."""
    count, mean, squares = (acc["count"], acc["mean"], acc["dsquared"]) if acc else (0, 0.0, 0.0)
    count += 1
    after = mean + (value - mean) / count
    return {"count": count, "mean": after, "dsquared": squares + (value - mean) * (value - after)}


def _spread(function: str, acc: Any) -> float | None:
    freedom = (acc["count"] if acc else 0) - function.endswith("_samp")
    if freedom <= 0:
        return None
    # A single value has no spread, even if it is NaN.
    variance: float = acc["dsquared"] / freedom if acc["count"] > 1 else 0.0
    return math.sqrt(variance) if function.startswith("stddev") else variance
