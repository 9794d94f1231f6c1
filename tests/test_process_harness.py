"""`sqlstream.testing.ProcessHarness`: a process function under test, without SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from sqlstream import (
    Context,
    ListState,
    MapState,
    ReducingState,
    Row,
    SideOutput,
    ValueState,
    process,
    side_output,
    state,
    table,
)
from sqlstream.errors import BindError, JobError, SqlStreamError, UsageError
from sqlstream.functions.process.context import Timer
from sqlstream.testing import Emitted, ProcessHarness
from tests.slt_aggregating_functions import Summaries
from tests.slt_broadcast_functions import (
    ApplyLimits,
    Excess,
    Known,
    KnownWords,
    Limit,
    Payment,
    Rates,
    Word,
)
from tests.slt_process_functions import (
    Alert,
    Doubled,
    Inverse,
    Paid,
    Reading,
    Reconcile,
    Reminders,
    TemperatureAlerts,
    Visits,
)

TEN = "2026-01-01 10:00:00"


def test_rows_give_rows_and_state_that_survives() -> None:
    with ProcessHarness(TemperatureAlerts, threshold=5, keys="sensor") as harness:
        assert harness.rows([Reading("a", 20.0), Reading("b", 1.0), Reading("a", 26.0)]) == [Alert(26.0, 6.0)]
        assert harness.state("last") == {"a": 26.0, "b": 1.0}
        harness.restart()
        assert harness.state("last", key="a") == 26.0
        assert harness.state("last", key="c") is None
        # A mapping, and a tuple in the order of the columns.
        assert harness.rows([{"sensor": "b", "temperature": 9.0}]) == [Alert(9.0, 8.0)]
        assert harness.rows([("a", 20.0)]) == [Alert(20.0, -6.0)]
        assert harness.emitted()[1:] == [Emitted("b", Alert(9.0, 8.0), None), Emitted("a", Alert(20.0, -6.0), None)]


def test_state_expires_by_the_clock() -> None:
    with ProcessHarness(TemperatureAlerts, 5, keys="sensor") as harness:
        harness.advance("1 h")
        harness.rows([Reading("a", 20.0)])
        harness.advance("59 min")
        assert harness.state("last", "a") == 20.0
        harness.advance("1 min")
        assert harness.now == datetime(1970, 1, 1, 2, tzinfo=UTC)
        assert harness.state("last") == {}
        assert harness.rows([Reading("a", 90.0)]) == []


def test_timers_of_event_time_wait_for_the_watermark() -> None:
    with ProcessHarness(Visits, keys=("u",), on_time="ts") as harness:
        clicks = [{"u": 1, "page": "x", "ts": TEN}, {"u": 2, "page": "y", "ts": "2026-01-01 11:00:00"}]
        # Rows do not move the watermark, the test does.
        assert harness.rows([*clicks, {"u": 1, "page": "y", "ts": TEN}]) == []
        assert harness.timers() == {
            1: [Timer("end", datetime(2026, 1, 1, 10, 0, 10), True)],
            2: [Timer("end", datetime(2026, 1, 1, 11, 0, 10), True)],
        }
        assert harness.state("pages") == {1: ["x", "y"], 2: ["y"]}
        assert harness.state("opened", key=1) == {"x": 1, "y": 1}
        assert harness.counters() == {"clicks": 3}
        harness.restart()
        [visit] = harness.watermark("2026-01-01 10:00:10")
        assert visit.pages == ["x", "y"]
        assert harness.timers(1) == []
        assert (harness.state("pages", 1), harness.state("opened", 1)) == ([], {})
        assert len(harness.watermark(datetime(2026, 1, 1, 11, 0, 10))) == 1
        assert [row.time for row in harness.emitted()] == [
            datetime(2026, 1, 1, 10, 0, 10),
            datetime(2026, 1, 1, 11, 0, 10),
        ]
        assert harness.finish() == []


def test_timers_of_processing_time_wait_for_the_clock() -> None:
    with ProcessHarness(Reminders, keys="x") as harness:
        harness.rows([{"x": 1}])
        assert harness.timers(1) == [Timer("remind", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), False)]
        assert harness.advance("4999 ms") == []
        assert harness.advance("1 ms") == [datetime(1970, 1, 1, 0, 0, 5)]
        assert harness.timers() == {}


def test_several_tables() -> None:
    with ProcessHarness(Reconcile, keys="ride_id") as harness:
        rides = [{"ride_id": 2, "street": "Wall"}, {"ride_id": 1, "street": "Broadway"}]
        assert harness.rows(rides=rides, fares=[{"ride_id": 1, "amount": 2.0}]) == [Paid("Broadway", 2.0)]
        assert harness.rows(fares=[{"ride_id": 2, "amount": 3.0}]) == [Paid("Wall", 3.0)]
    columns = {"rides": "id BIGINT, street STRING", "fares": "ride BIGINT, amount DOUBLE"}
    with ProcessHarness(Reconcile, keys={"rides": "id", "fares": "ride"}, columns=columns) as harness:
        assert harness.rows(rides=[(1, "Broadway")]) == []
        assert harness.rows(fares=[(1, 2.0)]) == [Paid("Broadway", 2.0)]


def test_without_keys_every_row_stands_alone() -> None:
    with ProcessHarness(Doubled) as harness:
        assert harness.rows([{"x": 1}, {"x": 0}, {"x": 2}]) == [2, 4]
        assert {row.key for row in harness.emitted()} == {None}


@process
class Halves:
    """Emits the half of an even number; odd ones are in a side output, some later."""

    odd: SideOutput[int] = side_output()

    def process(self, ctx: Context, row: Row) -> Iterator[float]:
        if row.x % 2:
            ctx.timers.at(ctx.event_time + timedelta(seconds=1))
            ctx.emit("odd", row.x)
        else:
            yield row.x / 2

    def on_timer(self, ctx: Context) -> None:
        ctx.emit("odd", -1)


def test_side_outputs() -> None:
    with ProcessHarness(Halves, keys="k", on_time="ts") as harness:
        assert harness.rows([{"k": "a", "x": x, "ts": TEN} for x in (1, 2, 3)]) == [1.0]
        assert harness.emitted("odd") == [
            Emitted("a", 1, datetime(2026, 1, 1, 10)),
            Emitted("a", 3, datetime(2026, 1, 1, 10)),
        ]
        harness.restart()
        assert harness.watermark("2026-01-01 10:00:01") == []
        assert harness.emitted("odd")[2:] == [Emitted("a", -1, datetime(2026, 1, 1, 10, 0, 1))]
        with pytest.raises(UsageError, match='the function has no side output "even"'):
            harness.emitted("even")


def test_ordered_rows_wait_for_the_watermark() -> None:
    rows = [{"k": "a", "x": x, "ts": f"2026-01-01 10:00:0{8 - x}"} for x in (2, 4, 6)]
    with ProcessHarness(Halves, keys="k", on_time="ts", ordered=True) as harness:
        assert harness.rows(rows) == []
        harness.restart()
        assert harness.watermark("2026-01-01 10:00:05") == [3.0, 2.0]
        assert harness.finish() == [1.0]
    with pytest.raises(UsageError, match="the order of rows is that of their event time"):
        ProcessHarness(Halves, keys="k", ordered=True)


@dataclass
class Point:
    x: int
    labels: list[str]


@process
class Points:
    last: ValueState[Point] = state()
    all: ListState[Point] = state()
    named: MapState[str, Point] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Point]:
        self.last.value = point = Point(row.x, [row.label])
        self.all.append(point)
        self.named[row.label] = point
        yield point


def test_broadcast_tables_have_no_keys() -> None:
    with ProcessHarness(ApplyLimits, keys="account") as harness:
        card = Payment("a", "card", 120.0)
        # Those of a step come before the rows of keys.
        assert harness.rows(rules=[Limit("card", 100.0)], payments=[card]) == [Excess("card", 120.0, 20.0)]
        harness.restart()
        assert harness.state("limits") == {"card": 100.0}
        assert harness.state("seen") == {"a": 1}
        harness.rows(rules=[Limit("card", 110.0), Limit("cash", 1.0)])
        assert harness.rows(payments=[card]) == [Excess("card", 120.0, 10.0)]
        harness.rows(rules=[Limit("card", None)])
        assert harness.rows(payments=[card]) == []
        assert harness.state("limits") == {"cash": 1.0}
        assert harness.counters() == {"rules": 4}


def test_broadcast_values_and_lists() -> None:
    with ProcessHarness(
        KnownWords, columns={"rows": "x BIGINT", "counted": "x BIGINT", "said": "word STRING"}
    ) as harness:
        harness.rows(said=[Word("one"), Word("two")])
        assert (harness.state("words"), harness.state("last"), harness.state("most")) == (["one", "two"], "two", None)
        assert harness.rows(rows=[{"x": 1}], counted=[{"x": 5}]) == [Known(1, 2, "two", 5)]


def test_ordered_broadcast_rows_wait_for_the_watermark() -> None:
    with ProcessHarness(Rates, keys="account", on_time="ts", ordered=True) as harness:
        limits = [{"kind": "card", "amount": n / 10, "ts": f"2026-01-01 10:00:0{n}"} for n in range(4)]
        harness.rows(limits=limits[::-1])
        assert harness.state("rates") == {}
        harness.rows(payments=[{"account": "a", "kind": "card", "amount": 7.0, "ts": "2026-01-01 10:00:01.5"}])
        assert harness.watermark("2026-01-01 10:00:02") == [Excess("card", 7.0, 0.1)]
        assert harness.state("rates") == {"card": 0.1}
        assert harness.finish() == [Excess("card", -1.0, 0.2)]
        assert harness.state("rates") == {"card": 0.3}


def test_classes_come_back_as_they_are() -> None:
    with ProcessHarness(Points, keys=("k", "d")) as harness:
        rows: list[dict[str, Any]] = [{"k": 1, "d": "a", "x": n, "label": str(n)} for n in range(2)]
        assert harness.rows(rows) == [Point(0, ["0"]), Point(1, ["1"])]
        assert harness.state("last", key=(1, "a")) == Point(1, ["1"])
        assert harness.state("all") == {(1, "a"): [Point(0, ["0"]), Point(1, ["1"])]}
        assert harness.state("named", key=(1, "a"))["0"] == Point(0, ["0"])


def test_an_error_names_key_and_row_and_nothing_is_kept() -> None:
    with ProcessHarness(Inverse, keys="x") as harness:
        assert harness.rows([{"x": 2}]) == [0.5]
        with pytest.raises(JobError, match='process function "inverse" raised ZeroDivisionError') as error:
            harness.rows([{"x": 4}, {"x": 0}])
        assert "key: 0\nrow: Row(x=0)" in str(error.value.detail)
        assert harness.state("total") == {2: 2}


@process
class Assigned:
    last: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        self.last = row.x
        yield row.x


def test_a_state_that_is_assigned_to_is_not_lost() -> None:
    with (
        ProcessHarness(Assigned, keys="k") as harness,
        pytest.raises(JobError, match='process function "assigned" replaced its state "last" by 7'),
    ):
        harness.rows([{"k": 1, "x": 7}])


@dataclass
class Even:
    x: int


@dataclass
class Odd:
    x: int


class Twin(NamedTuple):
    x: int


@process
class Sorted:
    """Yields rows of its result, and of the side outputs `odd` and `twin`; `alike` and `same` have one class."""

    odd: SideOutput[Odd] = side_output()
    twin: SideOutput[Twin] = side_output()
    alike: SideOutput[Point] = side_output()
    same: SideOutput[Point] = side_output()

    def process(self, ctx: Context, row: Row) -> Iterator[Even | Odd]:
        yield Odd(row.x) if row.x % 2 else Even(row.x)
        if row.x == 0:
            ctx.emit("odd", Odd(-1))
        ctx.timers.at(ctx.event_time)

    def on_timer(self, ctx: Context) -> list[Even | Twin] | None:
        return [Twin(9), Even(8)] if ctx.key == 1 else None


@pytest.mark.parametrize("ordered", [False, True])
def test_rows_of_side_outputs_are_yielded(ordered: bool) -> None:
    at = datetime(2026, 1, 1, 10)
    with ProcessHarness(Sorted, keys="k", on_time="ts", ordered=ordered) as harness:
        harness.rows([{"k": k, "x": x, "ts": at} for k, x in ((1, 0), (1, 3), (2, 1))])
        harness.finish()
        assert [(e.key, e.row, e.time) for e in harness.emitted()] == [(1, Even(0), at), (1, Even(8), at)]
        assert [(e.key, e.row, e.time) for e in harness.emitted("twin")] == [(1, Twin(9), at)]
        assert [(e.key, e.row, e.time) for e in harness.emitted("odd")] == [
            (1, Odd(-1), at),
            (1, Odd(3), at),
            (2, Odd(1), at),
        ]


def test_the_hint_says_which_side_outputs_a_method_yields() -> None:
    class Unsaid(Sorted):
        def on_timer(self, ctx: Context) -> Iterator[Even]:  # type: ignore[override]
            yield Odd(9)  # type: ignore[misc]

    class Ambiguous(Sorted):
        def on_timer(self, ctx: Context) -> Iterator[Even | Point]:  # type: ignore[override]
            yield Even(9)

    at = datetime(2026, 1, 1, 10)
    with ProcessHarness(process(Unsaid), keys="k", on_time="ts") as harness:
        harness.rows([{"k": 1, "x": 1, "ts": at}])
        with pytest.raises(JobError, match=r"emitted Odd\(x=9\) \(Odd\), not a Even"):
            harness.finish()
    with pytest.raises(BindError, match="is not one class"):
        ProcessHarness(process(Ambiguous), keys="k", on_time="ts")


@process
class BegunWithValues:
    """Would begin with values, which no key would ever have."""

    last: ValueState[int] = state()
    rules: MapState[str, int] = state(broadcast=True)

    def __init__(self, name: str):
        if name == "last":
            setattr(self, name, 7)
        self.name = name

    def open(self) -> None:
        if self.name == "rules":
            setattr(self, self.name, {"a": 7})

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[int]:
        yield self.last.value or 0

    @table(broadcast=True)
    def rule(self, ctx: Context, row: Row) -> None:
        pass


@pytest.mark.parametrize(("name", "value"), [("last", "7"), ("rules", "{'a': 7}")])
def test_a_state_does_not_begin_with_what_is_assigned_before_the_first_row(name: str, value: str) -> None:
    columns = {"rows": "k BIGINT", "rule": "name STRING"}
    message = re.escape(f'"begun_with_values" assigned {value} to its state "{name}" in __init__ or open')
    with ProcessHarness(BegunWithValues, name=name, keys="k", columns=columns) as harness:
        with pytest.raises(JobError, match=message) as error:
            harness.rows(rows=[{"k": 1}])
        assert f"self.{name}.clear()" in str(error.value.hint)


@process
class AssignedByBroadcast:
    """Its broadcast table assigns to the state that the row names."""

    last: ValueState[int] = state()
    rules: MapState[str, int] = state(broadcast=True)
    most: ReducingState[int] = state(broadcast=True, reduce=max)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[int]:
        yield self.last.value or 0

    @table(broadcast=True)
    def rule(self, ctx: Context, row: Row) -> None:
        setattr(self, row.name, {})


@pytest.mark.parametrize(("name", "change"), [("rules", "put(key, ..)"), ("most", "add(..)"), ("last", "value = ..")])
def test_a_state_that_only_rows_of_a_broadcast_table_assign_to_is_not_lost(name: str, change: str) -> None:
    columns = {"rows": "k BIGINT", "rule": "name STRING"}
    with ProcessHarness(AssignedByBroadcast, keys="k", columns=columns) as harness:
        with pytest.raises(JobError, match=f'"assigned_by_broadcast" replaced its state "{name}" by {{}}') as error:
            harness.rows(rule=[{"name": name}])
        assert f"self.{name}.{change}, self.{name}.clear()" in str(error.value.hint)


CALLS: dict[str, tuple[Any, str]] = {
    "no keys": (
        lambda: ProcessHarness(TemperatureAlerts).rows([Reading("a", 1.0)]),
        'process function "temperature_alerts" keeps state for each key',
    ),
    "a row without its key": (
        lambda: ProcessHarness(Reminders, keys="x").rows([{"x": 1}, {"y": 1}]),
        'row 2 for table "row" has no "x", by which rows are partitioned',
    ),
    "a row without its time": (
        lambda: ProcessHarness(Visits, keys="u", on_time="ts").rows([{"u": 1, "page": "x"}]),
        'row 1 for table "click" has no "ts", the event time',
    ),
    "another argument": (
        lambda: ProcessHarness(TemperatureAlerts, limit=1),
        "got an unexpected keyword argument 'limit'",
    ),
    "an argument of another type": (
        lambda: ProcessHarness(TemperatureAlerts, "much"),
        "argument \"threshold\" is DOUBLE, not 'much'",
    ),
    "another state": (
        lambda: ProcessHarness(TemperatureAlerts).state("first"),
        'the function has no state "first"',
    ),
    "another table": (
        lambda: ProcessHarness(Reconcile, keys="x").rows(trips=[]),
        'the function has no table "trips"',
    ),
    "a table that is not named": (
        lambda: ProcessHarness(Reconcile, keys="x").rows([{"x": 1}]),
        "the function reads several tables",
    ),
    "columns that nobody knows": (
        lambda: ProcessHarness(Reconcile, keys="x").rows(rides=[{"x": 1, "street": "a"}]),
        'the columns of table "fares" are not known',
    ),
    "a type that nobody knows": (
        lambda: ProcessHarness(Reminders, keys="x").rows([{"x": None}]),
        'the type of column "x" of table "row" is not known',
    ),
    "a watermark without event time": (
        lambda: ProcessHarness(Reminders, keys="x").watermark(TEN),
        "a watermark needs an event time",
    ),
    "a duration that is none": (lambda: ProcessHarness(Reminders, keys="x").advance("soon"), "soon"),
    "a duration below the clock's": (
        lambda: ProcessHarness(Reminders, keys="x").advance("500 us"),
        "the clock moves by whole milliseconds, not by 0.5 ms",
    ),
    "a clock that goes back": (
        lambda: ProcessHarness(Reminders, keys="x").advance(timedelta(hours=-1)),
        "is negative",
    ),
    "keys of a broadcast table": (
        lambda: ProcessHarness(ApplyLimits, keys={"payments": "account", "rules": "kind"}),
        'table "rules" is broadcast: its rows have no key',
    ),
    "the key of a broadcast state": (
        lambda: ProcessHarness(ApplyLimits, keys="account").state("limits", key="card"),
        'state "limits" is broadcast: it is the same for all keys',
    ),
    "a row that is none": (lambda: ProcessHarness(Reminders, keys="x").rows([1]), "a row is a mapping"),
    "a column that its row does not have": (
        lambda: ProcessHarness(TemperatureAlerts, keys="sensor", columns="sensor STRING").rows([("a",)]),
        "temperature",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_refused(call: str) -> None:
    run, message = CALLS[call]
    with pytest.raises(SqlStreamError) as error:
        run()
    assert message in error.value.message
    assert isinstance(error.value, UsageError) or call == "a column that its row does not have"


def test_the_results_of_states_that_aggregate() -> None:
    with ProcessHarness(Summaries, keys="k") as harness:
        harness.rows([{"k": 1, "op": "add", "x": 2}, {"k": 1, "op": "add", "x": 4}, {"k": 2, "op": "add", "x": 7}])
        assert harness.state("mean") == {1: 3.0, 2: 7.0}
        assert harness.state("weighted") == {1: 3.0, 2: 7.0}
        assert harness.state("path") == {1: "x2>x4", 2: "x7"}
        [shown] = harness.rows([{"k": 1, "op": "show", "x": None}])
        assert (shown.total, shown.n, shown.largest, shown.deviation) == (6, 2, 4, 1.0)
