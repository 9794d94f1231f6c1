"""Default values and named arguments, in jobs and in state queries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.testing import Stream


def told(
    x: int,
    scale: int = 2,
    name: str | None = None,
    listed: list[str] = ["it's", "a, b"],  # noqa: B006
    day: date = date(2026, 1, 1),
    price: Decimal = Decimal("1.5"),
) -> str:
    return f"{x * scale} {name} {listed} {day} {price.normalize()}"


def plain(first: int, second: int) -> int:
    return first - second


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream("CREATE TABLE t (x BIGINT)", functions=[told, plain]) as found:
        yield found


CALLS = [
    ("told(3)", "6 None [\"it's\", 'a, b'] 2026-01-01 1.5"),
    ("told(3, 5)", "15 None [\"it's\", 'a, b'] 2026-01-01 1.5"),
    ("told(3, scale => 5, name => 'q')", "15 q [\"it's\", 'a, b'] 2026-01-01 1.5"),
    ("told(day => DATE '2020-02-02', x => 3, listed => ['z'])", "6 None ['z'] 2020-02-02 1.5"),
    ("told(3, name := 'q')", "6 q [\"it's\", 'a, b'] 2026-01-01 1.5"),
    ("plain(second => 1, first => 3)", 2),
    ("plain(3, 1)", 2),
]


@pytest.mark.parametrize(("call", "result"), CALLS)
def test_in_a_job(stream: Stream, call: str, result: object) -> None:
    stream.script(f"SELECT {call} FROM t")
    stream.batch("t", [(1,)])
    assert stream.rows("result") == [(result,)]


@pytest.mark.parametrize(("call", "result"), CALLS)
def test_in_a_query(stream: Stream, call: str, result: object) -> None:
    assert stream.query(f"SELECT {call}") == [(result,)]


@pytest.mark.parametrize(
    ("call", "message", "wrong"),
    [
        ("told(x, scael => 1)", 'function "told" has no parameter "scael"', "scael => 1"),
        ("told(x, X => 1)", 'parameter "x" of function "told" is given twice', "X => 1"),
        ("told(scale => 1)", 'function "told" needs a value for "x"', "told(scale => 1)"),
        ("plain(x)", 'function "plain" needs a value for "second"', "plain(x)"),
        ("told(x => 1, 2)", "named arguments come last", "x => 1"),
        ("told(nothing)", 'column "nothing" does not exist in table "t"', "nothing"),
        ("told(x, name => nothing)", 'column "nothing" does not exist in table "t"', "nothing"),
    ],
)
def test_calls_that_do_not_fit(stream: Stream, call: str, message: str, wrong: str) -> None:
    with pytest.raises(SqlStreamError) as caught:
        stream.script(f"SELECT {call} FROM t")
    assert caught.value.message == message
    assert caught.value.span is not None
    assert caught.value.span.text == wrong


def test_in_windows() -> None:
    script = """
        CREATE TABLE t (x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        CREATE TABLE out (k BIGINT, n BIGINT, d BIGINT);
        INSERT INTO out SELECT plain(second => 1, first => x), COUNT(*), plain(COUNT(*), second => MIN(plain(x, second => 2)))
        FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY plain(x, 1), window_start, window_end
    """
    with Stream(script, functions=[plain]) as stream:
        stream.batch("t", [(5, "2026-01-01 00:00:00"), (5, "2026-01-01 00:00:01")])
        stream.finish()
        assert stream.rows("out") == [(4, 2, -1)]
