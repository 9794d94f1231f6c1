"""Classes under @process: what SQL knows of them, and what is said of those that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from sqlstream import Context, ListState, MapState, Row, ValueState, process, state, table
from sqlstream.catalog import Function, ProcessFunction
from sqlstream.errors import BindError, SqlStreamError
from sqlstream.functions import load
from sqlstream.functions.kinds import declare_any
from sqlstream.functions.process.declare import declare_process
from sqlstream.functions.process.instances import Instance
from sqlstream.testing import Stream
from sqlstream.units import parse_duration


@dataclass
class Ride:
    ride_id: int
    street: str | None


class Pair(NamedTuple):
    a: int
    b: list[str]


@process
class AllKinds:
    value: ValueState[Ride] = state(ttl="1 h", refresh="read")
    items: ListState[str] = state(ttl=timedelta(0))
    entries: MapState[str, int] = state(visibility="until_cleaned")

    def __init__(self, limit: int, name: str | None = None):
        self.limit, self.name = limit, name

    @table
    def rides(self, ctx: Context, ride: Ride) -> Iterator[Pair]:
        yield Pair(self.limit, [])

    @table(name="other")
    def others(self, ctx: Context, row: Row) -> None: ...

    def on_timer(self, ctx: Context) -> list[Pair]:
        return []


def test_what_sql_knows_of_a_class() -> None:
    found = declare_process(AllKinds)
    assert (found.name, found.has_timers) == ("all_kinds", True)
    assert [(t.name, t.method) for t in found.tables] == [("rides", "rides"), ("other", "others")]
    columns = found.tables[0].columns
    assert columns is not None
    assert [(c.name, c.type) for c in columns] == [("ride_id", "BIGINT"), ("street", "VARCHAR")]
    assert found.tables[1].columns is None
    assert [(s.name, s.type, s.nullable, s.default) for s in found.scalars] == [
        ("limit", "BIGINT", False, None),
        ("name", "VARCHAR", True, "CAST(NULL AS VARCHAR)"),
    ]
    assert [(s.name, s.kind, s.key_type, s.ttl, s.refreshed_by, s.visible) for s in found.states] == [
        ("value", "value", None, parse_duration("1 h"), "read", False),
        ("items", "list", None, parse_duration("0 s"), "write", False),
        ("entries", "map", "VARCHAR", None, "write", True),
    ]
    assert [(c.name, c.type) for c in found.outputs] == [("a", "BIGINT"), ("b", "VARCHAR[]")]


def test_the_class_itself_stays_what_it_was() -> None:
    """A class that is decoded in the process that has packed it is another one."""
    method = AllKinds.rides
    # From the first time on, what `typing` makes of equal hints is one object, which is packed once.
    declare_process(AllKinds)
    found = declare_process(AllKinds)
    instance = Instance(found, ("7", "NULL"))
    assert type(instance._user_object) is not AllKinds
    assert AllKinds.rides is method
    assert declare_process(AllKinds).pickled == found.pickled


WRONG = {
    """
    class F:
        x: ValueState = state()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has no kind',
    """
    class F:
        x: ValueState[set] = state()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has no usable type: set has no SQL type',
    """
    class F:
        x: ValueState[int] = state(ttl="soon")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f"',
    """
    class F:
        x: ValueState[int] = state(ttl=60)
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f": 60 (int) is not a duration',
    """
    class F:
        x: ValueState[int]
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" is annotated, but not declared',
    """
    class F:
        x: ValueState[int] = state(refresh="never")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has options that do not exist',
    """
    class F:
        x: ReducingState[int] = state()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has no function reduce',
    """
    class F:
        x: AggregatingState[float, float] = state()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has no aggregate',
    """
    class F:
        x: ListState[float] = state(aggregate="avg")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" has an aggregate',
    """
    class F:
        x: AggregatingState[float, float] = state(aggregate="median")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: median does not merge',
    """
    class F:
        x: AggregatingState[float, float] = state(aggregate="averag")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: DuckDB has no aggregate averag',
    """
    class F:
        x: AggregatingState[str, float] = state(aggregate="avg")
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: Binder Error',
    """
    class F:
        x: AggregatingState[str, int] = state(aggregate=Total)
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: Total takes (BIGINT), not (VARCHAR)',
    """
    class F:
        x: AggregatingState[int, str] = state(aggregate=Total)
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: Total returns BIGINT, not VARCHAR',
    """
    class F:
        x: AggregatingState[int, int] = state(aggregate=7)
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'state "x" of process function "f" cannot aggregate: 7 is no aggregate',
    """
    class F:
        def run(self, ctx, row) -> Iterator[int]: ...
    """: 'process function "f" has no method "process"',
    """
    class F:
        def process(self, row) -> Iterator[int]: ...
    """: 'method "process" of process function "f" has other parameters than it is called with',
    """
    class F:
        async def process(self, ctx, row) -> Iterator[int]: ...
    """: 'method "process" of process function "f" is async',
    """
    class F:
        def process(self, ctx, row): ...
    """: 'method "process" of process function "f" has no hint of what it emits',
    """
    class F:
        def process(self, ctx, row) -> int: ...
    """: 'what method "process" of process function "f" emits has no usable type: int does not say which rows there are',
    """
    class F:
        def process(self, ctx, row) -> None: ...
    """: 'process function "f" emits nothing',
    """
    class F:
        def process(self, ctx, row) -> Iterator[int]: ...
        def on_timer(self, ctx) -> Iterator[str]: ...
    """: 'method "on_timer" of process function "f" emits other rows than method "process"',
    """
    class F:
        def process(self, ctx, row: int) -> Iterator[int]: ...
    """: 'parameter "row" of method "process" of "f": int is no row',
    """
    class F:
        def __init__(self, x): ...
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'parameter "x" of process function "f" has no type hint',
    """
    class F:
        def __init__(self, x: int = "a"): ...
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'the default value of parameter "x" of process function "f", \'a\', is no BIGINT',
    """
    class F:
        def __init__(self, *x: int): ...
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'parameter "x" of process function "f" takes any number of arguments',
    """
    class F:
        def __init__(self, uid: str): ...
        def process(self, ctx, row) -> Iterator[int]: ...
    """: '"uid" cannot be an argument of process function "f"',
    """
    class F:
        def __init__(self, row: str): ...
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'process function "f" has two arguments "row"',
    """
    class Count:
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'process function "count" has the name of an aggregate function of SQL',
    """
    class F:
        def process(self, ctx, row) -> Iterator[int]: ...
        @table
        def others(self, ctx, row) -> Iterator[int]: ...
    """: 'process function "f" has a method "process" beside @table',
    """
    class F:
        x: ValueState[int] = side_output()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'side output "x" of process function "f" has no type',
    """
    class F:
        x: SideOutput[set] = side_output()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'side output "x" of process function "f" has no usable type: set has no SQL type',
    """
    class F:
        x: SideOutput[int] = side_output()
        X: SideOutput[int] = side_output()
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'side output "X" of process function "f": there are two of this name',
    """
    class SideOutput:
        def process(self, ctx, row) -> Iterator[int]: ...
    """: 'process function "side_output" has the name of a table function of SQL',
}
HEAD = """\
from collections.abc import Iterator
from sqlstream import AggregatingState, ListState, MapState, ReducingState, SideOutput, ValueState
from sqlstream import process, side_output, state, table

class Total:
    def accumulate(self, acc: int, x: int) -> int:
        return acc + x

    def finish(self, acc: int) -> int:
        return acc

@process
"""


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_class_is_said_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "wrong.py").write_text(HEAD + dedent(text).lstrip())
    with pytest.raises(SqlStreamError) as raised:
        load(str(tmp_path / "udfs"))
    assert WRONG[text] in str(raised.value)
    assert "udfs/wrong.py:" in str(raised.value)


def test_files_and_create_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "doubles.py").write_text(
        HEAD
        + "class Doubled:\n    def process(self, ctx, row) -> Iterator[int]:\n        yield FACTOR * row.x\n\nFACTOR = 2\n"
    )
    [found] = load(str(tmp_path / "udfs"))
    assert (found.name, found.location) == ("doubled", "udfs/doubles.py:13")
    script = "CREATE TABLE t (x BIGINT); CREATE TABLE out (y BIGINT); INSERT INTO out SELECT * FROM {}(TABLE t)"
    with Stream(script.format("DOUBLED"), functions=[found]) as stream:
        stream.batch("t", [(3,)])
        assert stream.rows("out") == [(6,)]


def test_create_function_takes_a_class_without_the_decorator() -> None:
    class Plain:
        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            yield row.x

    class Tables:
        @table
        def rides(self, ctx: Context, ride: Row) -> Iterator[int]:
            yield ride.x

    class Scalar:
        def __call__(self, x: int) -> int:
            return self.process(x)

        def process(self, x: int) -> int:
            return x

    assert [type(declare_any(made)) for made in (Plain, Tables, Scalar)] == [ProcessFunction, ProcessFunction, Function]


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"vectorized": True}, "Write @process(vectorized=..)."),
        ({"returns": "DOUBLE"}, "Write a type hint of what its methods yield: -> Iterator[Alert]."),
        ({"parameters": {"x": "DOUBLE"}}, "Write type hints of its rows, and of the parameters of __init__."),
        ({"deterministic": False}, "Leave it out: a process function keeps what it has computed in its state."),
    ],
)
@pytest.mark.parametrize("is_marked", [False, True])
def test_options_are_said_by_the_class(option: dict[str, Any], hint: str, is_marked: bool) -> None:
    class Plain:
        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            yield row.x

    made = process(Plain) if is_marked else Plain
    [name] = option
    with pytest.raises(BindError) as refused:
        declare_any(made, **option)
    assert refused.value.message == f"{name} of a process function is said by its class"
    assert refused.value.hint == hint


def test_resources_are_opened_once_and_closed_with_the_job(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def say(text: str, to: str = str(log)) -> None:
        with open(to, "a") as file:
            file.write(text + "\n")

    made = _resource(say)
    script = "CREATE TABLE t (x BIGINT); CREATE TABLE out (y BIGINT); INSERT INTO out SELECT * FROM resource(TABLE t)"
    with Stream(script, functions=[made]) as stream:
        stream.batch("t", [(1,), (2,), (3,), (4,)])
        stream.batch("t", [(5,)])
        assert sorted(stream.rows("out")) == [(11,), (12,), (13,), (14,), (15,)]
        assert log.read_text().splitlines() == ["open"]
    assert log.read_text().splitlines() == ["open", "close"]


def _resource(say: Callable[[str], None]) -> type:
    @process
    class Resource:
        def open(self) -> None:
            self.base = 10
            say("open")

        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            yield self.base + row.x

        def close(self) -> None:
            say("close")

    return Resource
