"""Aggregate functions over Arrow: what a class declares, its steps for groups of rows, and what is said when they do not fit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import BindError, JobError, SourceText
from sqlstream.functions import pickling
from sqlstream.functions.aggregates.api import udaf
from sqlstream.functions.aggregates.declare import declare_aggregate
from sqlstream.functions.aggregates.steps import AggregateSteps
from sqlstream.functions.kinds import declare_any
from sqlstream.testing import Stream
from tests.kinds import jobs_of

PAIRS = pa.list_(pa.struct([("value", pa.float64()), ("weight", pa.int64())]))
NUMBERS = pa.list_(pa.int64())


@dataclass
class Sums:
    total: float = 0.0
    weight: int = 0


@udaf
class WeightedAverage:
    def accumulate(self, acc: Sums, value: float, weight: int = 1) -> None:
        acc.total += value * weight
        acc.weight += weight

    def retract(self, acc: Sums, value: float, weight: int = 1) -> None:
        acc.total -= value * weight
        acc.weight -= weight

    def merge(self, acc: Sums, other: Sums) -> None:
        acc.total += other.total
        acc.weight += other.weight

    def finish(self, acc: Sums) -> float | None:
        return acc.total / acc.weight if acc.weight else None


@udaf(name="multiplied")
class Products:
    """An accumulator that is a plain value: its methods return it."""

    def create(self) -> int:
        return 1

    def accumulate(self, acc: int, x: int) -> int:
        return acc * x

    def merge(self, acc: int, other: int) -> int:
        return acc * other

    def finish(self, acc: int) -> str:
        return str(acc)


@udaf(vectorized=True, accumulator=Sums, returns="DOUBLE", parameters={"value": "DOUBLE", "weight": "BIGINT"})
class VectorizedAverage:
    def accumulate(self, groups, value, weight):  # type: ignore[no-untyped-def]
        rows = pa.table({"g": groups, "total": pc.multiply(value, pc.cast(weight, pa.float64())), "weight": weight})
        return self.summed(rows)

    def merge(self, groups, accumulators):  # type: ignore[no-untyped-def]
        return self.summed(accumulators.append_column("g", groups))

    def retract(self, accumulators, groups, value, weight):  # type: ignore[no-untyped-def]
        less = self.accumulate(groups, value, weight)  # type: ignore[no-untyped-call]
        return pa.table({name: pc.subtract(accumulators[name], less[name]) for name in ("total", "weight")})

    def finish(self, accumulators):  # type: ignore[no-untyped-def]
        return pc.divide(accumulators["total"], accumulators["weight"])

    def summed(self, rows: pa.Table) -> pa.Table:
        sums = rows.group_by("g", use_threads=False).aggregate([("total", "sum"), ("weight", "sum")])
        return pa.table({"total": sums["total_sum"], "weight": sums["weight_sum"]})


def opened(made: type) -> AggregateSteps:
    """Return what a worker process has of a class."""
    function = declare_aggregate(made)
    call = pickling.unpack(function.name, function.pickled)
    assert isinstance(call, AggregateSteps)
    return call.opened()


def pairs(*groups: Sequence[tuple[float | None, int]] | None) -> pa.Array:
    rows = [None if g is None else [{"value": v, "weight": w} for v, w in g] for g in groups]
    return pa.array(rows, PAIRS)


def numbers(*groups: list[int | None]) -> pa.Array:
    return pa.array(groups, NUMBERS)


# -- declaring


def test_what_a_class_declares() -> None:
    function = declare_aggregate(WeightedAverage)
    assert (function.name, function.parameters, function.names) == (
        "weighted_average",
        ("DOUBLE", "BIGINT"),
        ("value", "weight"),
    )
    assert (function.accumulator, function.returns) == ("STRUCT(total DOUBLE, weight BIGINT)", "DOUBLE")
    assert (function.merges, function.retracts, function.nullable) == (True, True, (False, False))
    assert function.defaults == (None, "CAST('1' AS BIGINT)")
    product = declare_aggregate(Products)
    assert (product.name, product.accumulator, product.returns) == ("multiplied", "BIGINT", "VARCHAR")
    assert (product.merges, product.retracts) == (True, False)
    vectorized = declare_aggregate(VectorizedAverage)
    assert (vectorized.parameters, vectorized.nullable) == (("DOUBLE", "BIGINT"), (True, True))
    assert vectorized.accumulator == "STRUCT(total DOUBLE, weight BIGINT)"


def test_classes_that_are_no_aggregates() -> None:
    class Empty: ...

    class Endless:
        def accumulate(self, acc: int, x: int) -> int:
            return acc + x

    class Untyped:
        def accumulate(self, acc, x: int) -> None: ...  # type: ignore[no-untyped-def]
        def finish(self, acc) -> int:  # type: ignore[no-untyped-def]
            return 1

    class Unmade:
        def accumulate(self, acc: Required, x: int) -> None: ...
        def finish(self, acc: Required) -> int:
            return acc.n

    class Other:
        def accumulate(self, acc: Sums, x: int) -> None: ...
        def retract(self, acc: Sums, y: int) -> None: ...
        def finish(self, acc: Sums) -> int:
            return 1

    @udaf(vectorized=True, accumulator="BIGINT", returns="BIGINT", parameters={"x": "BIGINT"})
    class Unmerged:
        def accumulate(self, groups: Any, x: Any) -> pa.Table: ...
        def retract(self, accumulators: Any, groups: Any, x: Any) -> pa.Table: ...
        def finish(self, accumulators: Any) -> pa.Array: ...

    @udaf(vectorized=True, returns="DOUBLE")
    class Unnamed:
        def accumulate(self, groups: Any, x: pa.Int64Array) -> pa.Table: ...
        def finish(self, accumulators: Any) -> pa.Array: ...

    @udaf(name="avg")
    class Taken(WeightedAverage): ...

    class OfFlink(WeightedAverage):
        def create_accumulator(self) -> Any: ...

    class OfJava:
        def accumulate(self, acc: Sums, x: int) -> None: ...
        def getValue(self, acc: Sums) -> Any: ...

    class Unchanged:
        def accumulate(self, acc: float, x: float) -> None:
            acc += x

        def finish(self, acc: float) -> float:
            return acc

    class UnchangedByMerge:
        def accumulate(self, acc: int | None, x: int) -> int:
            return (acc or 0) + x

        def merge(self, acc: int, other: int): ...  # type: ignore[no-untyped-def]
        def finish(self, acc: int) -> int:
            return acc

    class Locked(WeightedAverage):
        def finish(self, acc: Sums) -> float | None:
            with LOCK:
                return None

    wrong: dict[type, str] = {
        Empty: 'class "Empty" has no method accumulate',
        Endless: 'class "Endless" has no method finish',
        Untyped: 'the accumulator of aggregate function "Untyped" has no type',
        Unmade: 'an accumulator of aggregate function "Unmade" cannot be made',
        Other: 'retract of aggregate function "Other" takes other parameters than accumulate',
        Unmerged: 'vectorized aggregate function "Unmerged" has retract, but no merge',
        Unnamed: 'the accumulator of aggregate function "Unnamed" has no type',
        Taken: 'function "avg" has the name of an aggregate function of SQL',
        OfFlink: 'class "OfFlink" has a method create_accumulator, which is called create here',
        OfJava: 'class "OfJava" has a method getValue, which is called finish here',
        Unchanged: 'accumulate of aggregate function "Unchanged" does not return its accumulator',
        UnchangedByMerge: 'merge of aggregate function "UnchangedByMerge" does not return its accumulator',
        Locked: "cannot be sent to worker processes",
    }
    for made, message in wrong.items():
        with pytest.raises(BindError, match=message):
            declare_aggregate(made)


@dataclass
class Required:
    n: int


LOCK = threading.Lock()


# -- row by row and many rows at a time


@pytest.mark.parametrize("made", [WeightedAverage, VectorizedAverage])
def test_the_steps_of_both_forms(made: type) -> None:
    call = opened(made)
    accumulators = call.accumulate(pairs([(1.0, 2), (4.0, 1)], [], None, [(7.0, 3)]))
    sums = [{"total": 6.0, "weight": 3}, None, None, {"total": 21.0, "weight": 3}]
    assert accumulators.to_pylist() == sums
    assert call.finish(accumulators).to_pylist() == [2.0, None, None, 7.0]
    merged = call.merge(pa.array([[sums[0], sums[3]], [None], [], [None, sums[3]]], pa.list_(accumulators.type)))
    assert merged.to_pylist() == [{"total": 27.0, "weight": 6}, None, None, sums[3]]
    changed = call.change(
        accumulators, pairs([], [(1.0, 2), (3.0, 1)], [], [(9.0, 1)]), pairs([(4.0, 1)], [(1.0, 2)], [], [])
    )
    assert changed.to_pylist() == [
        {"total": 2.0, "weight": 2},
        {"total": 3.0, "weight": 1},
        None,
        {"total": 30.0, "weight": 4},
    ]
    assert call.accumulate(pairs()).to_pylist() == []


@pytest.mark.parametrize("made", [WeightedAverage, VectorizedAverage])
def test_a_scan_tells_the_result_after_each_row(made: type) -> None:
    call = opened(made)
    kept = call.accumulate(pairs([(2.0, 1)], [], [(9.0, 1)]))
    rows: list[list[tuple[float, int] | None]] = [[(4.0, 1), None, (6.0, 2)], [(5.0, 1)] * 7, []]
    structs = [[None if row is None else {"r": {"p0": row[0], "p1": row[1]}} for row in group] for group in rows]
    row_type = pa.struct([("r", pa.struct([("p0", pa.float64()), ("p1", pa.int64())]))])
    found = call.scan(kept, pa.array(structs, pa.list_(row_type)))
    results, after = found.flatten()
    assert results.to_pylist() == [[3.0, 3.0, 4.5], [5.0] * 7, []]
    last = [{"total": 18.0, "weight": 4}, {"total": 35.0, "weight": 7}, {"total": 9.0, "weight": 1}]
    assert after.to_pylist() == last


def test_null_leaves_a_row_out_unless_the_hint_takes_it() -> None:
    class Counted:
        def accumulate(self, acc: int, x: int | None) -> int:
            return acc + 1

        def finish(self, acc: int) -> int:
            return acc

    assert opened(Counted).accumulate(numbers([None, 1], [None])).to_pylist() == [2, 1]
    call = opened(Products)
    assert call.accumulate(numbers([None, 3, None, 5], [None])).to_pylist() == [15, None]
    assert call.finish(call.accumulate(numbers([None]))).to_pylist() == ["1"]


def test_accumulators_of_lists_are_not_shared() -> None:
    @dataclass
    class Seen:
        values: list[int] = field(default_factory=list)

    class Distinction:
        def accumulate(self, acc: Seen, x: int) -> None:
            if x not in acc.values:
                acc.values.append(x)

        def merge(self, acc: Seen, other: Seen) -> None:
            for x in other.values:
                self.accumulate(acc, x)

        def finish(self, acc: Seen) -> int:
            return len(acc.values)

    Distinction.accumulate.__annotations__["acc"] = Distinction.finish.__annotations__["acc"] = Seen
    Distinction.merge.__annotations__.update(acc=Seen, other=Seen)
    call = opened(Distinction)
    parts = call.accumulate(numbers([1, 1, 2], [2, 3], [4]))
    merged = call.merge(pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), parts))
    assert call.finish(merged).to_pylist() == [3, 1]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(-50, 50).map(float), st.integers(1, 9)), max_size=6), max_size=6))
def test_any_cut_into_partials_gives_the_same(groups: list[list[tuple[float, int]]]) -> None:
    for made in (WeightedAverage, VectorizedAverage):
        call = opened(made)
        whole = call.finish(call.accumulate(pairs(*groups))).to_pylist()
        parts = call.accumulate(pairs(*(part for g in groups for part in (g[: len(g) // 2], g[len(g) // 2 :]))))
        offsets = pa.array(range(0, 2 * len(groups) + 1, 2), pa.int32())
        merged = call.finish(call.merge(pa.ListArray.from_arrays(offsets, parts))).to_pylist()
        expected = [sum(v * w for v, w in g) / sum(w for _, w in g) if g else None for g in groups]
        assert whole == merged == expected


# -- errors


def failure(step: Callable[[], object]) -> JobError:
    with pytest.raises(JobError) as caught:
        step()
    return caught.value


def test_errors_name_the_step_the_line_and_the_row() -> None:
    class Raising(WeightedAverage):
        def accumulate(self, acc: Sums, value: float, weight: int = 1) -> None:
            acc.total += 1 / weight

        def finish(self, acc: Sums) -> float | None:
            return "x"  # type: ignore[return-value]

    call, line = opened(Raising), Raising.accumulate.__code__.co_firstlineno
    error = failure(lambda: call.accumulate(pairs([(1.0, 1)], [(2.0, 1), (3.0, 0)])))
    assert error.message == 'function "raising" raised ZeroDivisionError: division by zero'
    assert (
        error.detail == f" --> tests/functions/test_aggregate_functions.py:{line + 1}\narguments: value=3.0, weight=0"
    )
    error = failure(lambda: call.finish(call.accumulate(pairs([(1.0, 1)]))))
    assert error.message == "function \"raising\" finish returned 'x' (str), which is no DOUBLE"


@pytest.mark.parametrize("method", ["accumulate", "merge"])
def test_a_result_without_a_hint_is_not_lost(method: str) -> None:
    class Totals:
        def accumulate(self, acc: list[int], x: int) -> list[int]:
            return [*acc, x]

        def merge(self, acc: list[int], other: list[int]) -> list[int]:
            return acc + other

        def finish(self, acc: list[int]) -> int:
            return sum(acc)

    del getattr(Totals, method).__annotations__["return"]
    call = opened(Totals)
    steps = {
        "accumulate": lambda: call.accumulate(numbers([1, 2])),
        "merge": lambda: call.merge(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([[1], [2]]))),
    }
    error = failure(steps[method])
    assert error.message.startswith(f'function "totals" method "{method}" returned ')
    assert error.message.endswith("but has no hint of a result: write one, or return nothing")


def test_accumulators_of_the_wrong_type() -> None:
    class Strayed(Products):
        def accumulate(self, acc: int, x: int) -> int:
            return "x"  # type: ignore[return-value]

    error = failure(lambda: opened(Strayed).accumulate(numbers([1])))
    assert error.message.startswith("function \"strayed\" has made the accumulator 'x' (str), which is no BIGINT")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (pa.table({"total": [1.0]}), 'returned a table without the column "weight"'),
        (
            pa.table({"total": ["x", "y"], "weight": [1, 2]}),
            'returned a table whose column "total" is an array of string',
        ),
        (pa.table({"total": [1.0], "weight": [1]}), "returned 1 accumulators for 2 groups"),
        (pa.array([1, 2]), "returned a Int64Array, not an Arrow table of accumulators"),
    ],
)
def test_tables_that_do_not_fit(result: Any, message: str) -> None:
    @udaf(vectorized=True, accumulator=Sums, returns="DOUBLE", parameters={"value": "DOUBLE", "weight": "BIGINT"})
    class Broken:
        def accumulate(self, groups, value, weight):  # type: ignore[no-untyped-def]
            return result if len(groups) == 3 else None

        def finish(self, accumulators):  # type: ignore[no-untyped-def]
            return accumulators["total"]

    groups = [(1.0, 1)], [(1.0, 1), (2.0, 2)]
    if isinstance(result, pa.Table) and result.num_rows == 1 and result.num_columns == 1:
        result = pa.concat_tables([result, result])
    error = failure(lambda: opened(Broken).accumulate(pairs(*groups)))
    assert error.message.startswith(f'function "broken" {message}')


# -- in a job


def fingerprint(made: type) -> str:
    """Return the identity of a job that calls a class as `total`."""
    script = "CREATE TABLE t (x BIGINT); SELECT total(x) FROM t"
    compiler = Compiler()
    try:
        compiler.add_functions([declare_any(made, name="total")])
        return jobs_of(compiler.scripts([SourceText("test", script)]))[-1].fingerprint
    finally:
        compiler.close()


def test_another_accumulator_makes_another_job_and_other_methods_do_not() -> None:
    class Total:
        def accumulate(self, acc: int, x: int) -> int:
            return acc + x

        def merge(self, acc: int, other: int) -> int:
            return acc + other

        def finish(self, acc: int) -> int:
            return acc

    class Changed(Total):
        def finish(self, acc: int) -> int:
            return -acc

    class Wider(Total):
        def accumulate(self, acc: float, x: int) -> float:  # type: ignore[override]
            return acc + x

    assert fingerprint(Total) == fingerprint(Changed)
    assert fingerprint(Total) != fingerprint(Wider)


@pytest.mark.slow
def test_a_function_that_is_registered_again_is_the_new_one() -> None:
    class Doubled:
        def accumulate(self, acc: int, x: int) -> int:
            return acc + 2 * x

        def finish(self, acc: int) -> int:
            return acc

    class Tripled(Doubled):
        def accumulate(self, acc: int, x: int) -> int:
            return acc + 3 * x

    script = "CREATE TABLE t (x BIGINT); CREATE TABLE out (x BIGINT); INSERT INTO out SELECT total(x) FROM t"
    found = []
    for made in (Doubled, Tripled):
        with Stream(script, functions=[declare_any(made, name="total")]) as stream:
            stream.batch("t", [(1,), (2,)])
            found.append(stream.rows("out"))
    assert found == [[(6,)], [(9,)]]


def test_options_of_a_class_are_said_by_its_decorator() -> None:
    with pytest.raises(BindError, match="returns of an aggregate function is said by its class"):
        declare_any(WeightedAverage, returns="DOUBLE")
