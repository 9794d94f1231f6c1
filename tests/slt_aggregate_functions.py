"""Python aggregate functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import udaf


@dataclass
class Sums:
    total: float = 0.0
    weight: int = 0


@udaf
class WeightedMean:
    def accumulate(self, acc: Sums, value: float, weight: int = 1) -> None:
        acc.total += value * weight
        acc.weight += weight

    def merge(self, acc: Sums, other: Sums) -> None:
        acc.total += other.total
        acc.weight += other.weight

    def finish(self, acc: Sums) -> float | None:
        return acc.total / acc.weight if acc.weight else None


@udaf
class RetractedMean(WeightedMean):
    """It takes rows out, and says so where it was never given them."""

    def retract(self, acc: Sums, value: float, weight: int = 1) -> None:
        if acc.weight < weight:
            raise ValueError("there is no such row")
        acc.total -= value * weight
        acc.weight -= weight


@dataclass
class Counted:
    words: dict[str, int] = field(default_factory=dict)


@udaf
class WordsOf:
    """It takes rows out, but cannot merge."""

    def accumulate(self, acc: Counted, word: str | None) -> None:
        word = word or "?"
        acc.words[word] = acc.words.get(word, 0) + 1

    def retract(self, acc: Counted, word: str | None) -> None:
        word = word or "?"
        acc.words[word] -= 1
        if not acc.words[word]:
            del acc.words[word]

    def finish(self, acc: Counted) -> str:
        return " ".join(f"{word}:{number}" for word, number in sorted(acc.words.items()))


@udaf(vectorized=True, accumulator="STRUCT(total BIGINT, rows BIGINT)", returns="BIGINT", parameters={"x": "BIGINT"})
class VectorSum:
    """Takes rows out, many groups at a time."""

    def accumulate(self, groups: pa.Array, x: pa.Array) -> pa.Table:
        return self.sums(pa.table({"g": groups, "total": pc.fill_null(x, 0), "rows": pa.repeat(1, len(x))}))

    def merge(self, groups: pa.Array, accumulators: pa.Table) -> pa.Table:
        return self.sums(accumulators.append_column("g", groups))

    def retract(self, accumulators: pa.Table, groups: pa.Array, x: pa.Array) -> pa.Table:
        less = self.accumulate(groups, x)
        return pa.table({name: pc.subtract(accumulators[name], less[name]) for name in ("total", "rows")})

    def finish(self, accumulators: pa.Table) -> pa.Array:
        return accumulators["total"]

    def sums(self, rows: pa.Table) -> pa.Table:
        found = rows.group_by("g", use_threads=False).aggregate([("total", "sum"), ("rows", "sum")])
        return pa.table({"total": found["total_sum"], "rows": found["rows_sum"]})


@udaf(
    vectorized=True, accumulator="STRUCT(lowest BIGINT, highest BIGINT)", returns="BIGINT", parameters={"x": "BIGINT"}
)
class Spread:
    """The difference of the greatest and the least value."""

    def accumulate(self, groups: pa.Array, x: pa.Array) -> pa.Table:
        return self.extremes(pa.table({"g": groups, "lowest": x, "highest": x}))

    def merge(self, groups: pa.Array, accumulators: pa.Table) -> pa.Table:
        return self.extremes(accumulators.append_column("g", groups))

    def finish(self, accumulators: pa.Table) -> pa.Array:
        return pc.subtract(accumulators["highest"], accumulators["lowest"])

    def extremes(self, rows: pa.Table) -> pa.Table:
        found = rows.group_by("g", use_threads=False).aggregate([("lowest", "min"), ("highest", "max")])
        return pa.table({"lowest": found["lowest_min"], "highest": found["highest_max"]})


@dataclass
class Path:
    steps: list[str] = field(default_factory=list)


@udaf
class PathOf:
    """It cannot merge, so its values are kept: in the order that the call says, else in ascending order."""

    def accumulate(self, acc: Path, step: str | None) -> None:
        acc.steps.append("?" if step is None else step)

    def finish(self, acc: Path) -> str:
        return ">".join(acc.steps)


@udaf(name="bits_of")
class Bits:
    """An accumulator that is a plain value, and whose result is not NULL without rows."""

    def accumulate(self, acc: int, bit: int) -> int:
        if bit < 0:
            raise ValueError("a bit has no sign")
        return acc | 1 << bit

    def merge(self, acc: int, other: int) -> int:
        return acc | other

    def finish(self, acc: int) -> int:
        return acc


@udaf
class WrongResult:
    def accumulate(self, acc: int, x: int) -> int:
        return acc + x

    def merge(self, acc: int, other: int) -> int:
        return acc + other

    def finish(self, acc: int) -> int:
        return "many" if acc > 9 else acc  # type: ignore[return-value]


@udaf
class OneByOne:
    """Its accumulators cannot really be put together."""

    def accumulate(self, acc: int, x: int) -> int:
        return acc + x

    def merge(self, acc: int, other: int) -> int:
        raise ValueError("never merged")

    def finish(self, acc: int) -> int:
        return acc


@udaf(deterministic=False)
class ChangingSum:
    def accumulate(self, acc: int, x: int) -> int:
        return acc + x

    def finish(self, acc: int) -> int:
        return acc


class Summed:
    def accumulate(self, acc: int, x: int) -> int:
        return acc + x

    def merge(self, acc: int, other: int) -> int:
        return acc + other

    def finish(self, acc: int) -> int:
        return acc


AGGREGATE_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    WeightedMean,
    RetractedMean,
    WordsOf,
    VectorSum,
    Spread,
    PathOf,
    Bits,
    WrongResult,
    OneByOne,
    ChangingSum,
)
