"""Every type, through DuckDB and back, as Python objects of the class that the hint names."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, TypedDict
from uuid import UUID

import duckdb
import pytest

from sqlstream import functions
from sqlstream.functions.types import UnusableType, codec, sql_type


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    label: str | None = None


@dataclass
class Path:
    points: list[Point]
    lengths: dict[str, Decimal]
    start: Point | None


@dataclass
class Loop:
    next: Loop | None


class Kind(enum.StrEnum):
    A = "a"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Airport(TypedDict):
    code: str
    runways: list[int]


Metres = NewType("Metres", float)
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)
P = Point(1.5, -2.0, "é")

# hint, DuckDB type, a literal of that type, the Python value that a function receives for it
CASES: list[tuple[Any, str, str, Any]] = [
    (int, "BIGINT", "-9223372036854775808", -(2**63)),
    (float, "DOUBLE", "0.1", 0.1),
    (float, "DOUBLE", "'infinity'", float("inf")),
    (str, "VARCHAR", "'Zürich 🚀'", "Zürich 🚀"),
    (str, "VARCHAR", "''", ""),
    (bool, "BOOLEAN", "true", True),
    (bytes, "BLOB", "'\\x00\\xFF'", b"\x00\xff"),
    (dt.date, "DATE", "'1969-12-31'", dt.date(1969, 12, 31)),
    (dt.datetime, "TIMESTAMP", "'2024-02-29 12:00:00.000001'", NOON),
    (dt.time, "TIME", "'23:59:59.999999'", dt.time(23, 59, 59, 999999)),
    (dt.timedelta, "INTERVAL", "'1 month 2 days 3 us'", dt.timedelta(days=32, microseconds=3)),
    (dt.timedelta, "INTERVAL", "'-1 second'", dt.timedelta(seconds=-1)),
    (Decimal, "DECIMAL(38,10)", "'-12345678901234567890.0123456789'", Decimal("-12345678901234567890.0123456789")),
    (UUID, "UUID", "'d9c1b6e8-7b6e-4b6e-8b6e-7b6e4b6e8b6e'", UUID("d9c1b6e8-7b6e-4b6e-8b6e-7b6e4b6e8b6e")),
    (list[int], "BIGINT[]", "[1, NULL, 3]", [1, None, 3]),
    (tuple[int, ...], "BIGINT[]", "[1, NULL, 3]", (1, None, 3)),
    (tuple[int, str | None], "STRUCT(f0 BIGINT, f1 VARCHAR)", "{'f0': 1, 'f1': NULL}", (1, None)),
    (
        list[tuple[dt.date, tuple[str, ...]]],
        "STRUCT(f0 DATE, f1 VARCHAR[])[]",
        "[{'f0': DATE '2024-01-01', 'f1': ['a', 'b']}, NULL]",
        [(dt.date(2024, 1, 1), ("a", "b")), None],
    ),
    (list[list[str]], "VARCHAR[][]", "[['a'], []]", [["a"], []]),
    (dict[str, int | None], "MAP(VARCHAR, BIGINT)", "MAP {'a': 1, 'b': NULL}", {"a": 1, "b": None}),
    (dict[str, list[dt.date]], "MAP(VARCHAR, DATE[])", "MAP {'a': [DATE '2024-01-01']}", {"a": [dt.date(2024, 1, 1)]}),
    (Point, "STRUCT(x DOUBLE, y DOUBLE, label VARCHAR)", "{'x': 1.5, 'y': -2, 'label': 'é'}", P),
    (
        list[Point],
        "STRUCT(x DOUBLE, y DOUBLE, label VARCHAR)[]",
        "[{'x': 1.5, 'y': -2, 'label': 'é'}, NULL]",
        [P, None],
    ),
    (
        Path,
        "STRUCT(points STRUCT(x DOUBLE, y DOUBLE, label VARCHAR)[], lengths MAP(VARCHAR, DECIMAL(38,10)),"
        ' "start" STRUCT(x DOUBLE, y DOUBLE, label VARCHAR))',
        "{'points': [{'x': 1.5, 'y': -2, 'label': 'é'}], 'lengths': MAP {'a': 1.25}, 'start': NULL}",
        Path([P], {"a": Decimal("1.2500000000")}, None),
    ),
    (Airport, "STRUCT(code VARCHAR, runways BIGINT[])", "{'code': 'JFK', 'runways': [4, 13]}", None),
    (Colour, "VARCHAR", "'blue'", Colour.BLUE),
    (Level, "BIGINT", "2", Level.HIGH),
    (Literal["on", "off"], "VARCHAR", "'on'", "on"),
    (Annotated[int, "seats"], "BIGINT", "7", 7),
    (Metres, "DOUBLE", "2.5", 2.5),
]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def identity(hint: Any, result: Any = None) -> Any:
    def same(value):  # type: ignore[no-untyped-def]
        return value

    same.__annotations__ = {"value": hint, "return": result or hint}
    return same


@pytest.mark.parametrize(("hint", "type_", "literal", "value"), CASES, ids=lambda v: str(v)[:40])
def test_a_value_reaches_the_function_and_comes_back(
    con: duckdb.DuckDBPyConnection, hint: Any, type_: str, literal: str, value: Any
) -> None:
    assert sql_type(hint) == type_ or codec(sql_type(hint)) == codec(type_)

    def shown(v):  # type: ignore[no-untyped-def]
        return repr(v)

    shown.__annotations__ = {"v": hint, "return": str}
    functions.register(con, [functions.declare(identity(hint)), functions.declare(shown)])
    rows = f"(VALUES (({literal})::{type_}), (NULL), (({literal})::{type_})) t(v)"
    if value is not None:
        # Once more by value: the repr of the classes below does not depend on where they were defined.
        assert con.execute(f"SELECT shown(v) FROM {rows}").fetchall() == [(repr(value),), (None,), (repr(value),)]
    # A NULL, and the same value in a column, as a constant, and in a column of NULLs only.
    assert con.execute(f"SELECT same(v) IS NOT DISTINCT FROM v FROM {rows}").fetchall() == [(True,)] * 3
    if type_ != "INTERVAL":
        assert con.execute(f"SELECT same(({literal})::{type_}) = ({literal})::{type_}").fetchone() == (True,)
    assert con.execute(f"SELECT same(v) FROM (VALUES (NULL::{type_}), (NULL)) t(v)").fetchall() == [(None,), (None,)]
    assert con.execute(f"SELECT typeof(same(NULL::{type_})) = typeof(NULL::{type_})").fetchone() == (True,)


@pytest.mark.parametrize(("hint", "type_", "literal", "value"), CASES, ids=lambda v: str(v)[:40])
def test_a_function_without_parameters_returns_any_type(
    con: duckdb.DuckDBPyConnection, hint: Any, type_: str, literal: str, value: Any
) -> None:
    value = {"code": "JFK", "runways": [4, 13]} if value is None else value

    def answer():  # type: ignore[no-untyped-def]
        return value

    answer.__annotations__ = {"return": hint}
    functions.register(con, [functions.declare(answer, deterministic=False)])
    sql = f"SELECT answer() = ({literal})::{type_}, typeof(answer()) = typeof(NULL::{type_}) FROM range(3)"
    assert con.execute(sql).fetchall() == [(True, True)] * 3


@pytest.mark.parametrize(
    ("type_", "literal", "value"),
    [
        ("TINYINT", "-128", -128),
        ("UBIGINT", "18446744073709551615", 2**64 - 1),
        ("HUGEINT", "-99999999999999999999999999999999999999", -(10**38) + 1),
        ("FLOAT", "0.5", 0.5),
        ("DECIMAL(4,1)", "-99.9", Decimal("-99.9")),
        ("TIMESTAMP_S", "'2024-02-29 12:00:00'", dt.datetime(2024, 2, 29, 12)),
        ("TIMESTAMP_MS", "'2024-02-29 12:00:00.001'", dt.datetime(2024, 2, 29, 12, 0, 0, 1000)),
        ("TIMESTAMP WITH TIME ZONE", "'2024-02-29 12:00:00.000001+00'", NOON.replace(tzinfo=dt.UTC)),
        ("JSON", "'{\"a\": 1}'", '{"a": 1}'),
        ("INTEGER[2]", "[1, 2]", [1, 2]),
        ('STRUCT("a b" INTEGER, c VARCHAR[])', "{'a b': 1, 'c': ['x']}", {"a b": 1, "c": ["x"]}),
    ],
)
def test_types_named_in_sql_need_no_hint(
    con: duckdb.DuckDBPyConnection, type_: str, literal: str, value: object
) -> None:
    def same(v):  # type: ignore[no-untyped-def]
        assert (v, type(v)) == (value, type(value))
        return v

    functions.register(con, [functions.declare(same, parameters={"v": type_}, returns=type_)])
    sql = f"SELECT same(v) = v, typeof(same(v)) = typeof(v) FROM (VALUES (({literal})::{type_}), (NULL)) t(v)"
    assert con.execute(sql).fetchall() == [(True, True), (None, True)]


def test_instants_keep_their_meaning_in_any_session_zone(con: duckdb.DuckDBPyConnection) -> None:
    def later(at: dt.datetime) -> dt.datetime:
        return at + dt.timedelta(hours=1)

    def shown(at: dt.datetime, several: list[dt.datetime]) -> str:
        return f"{at} {several[0]}"

    instant = "TIMESTAMP WITH TIME ZONE"
    types = {"at": instant, "several": f"{instant}[]"}
    functions.register(con, [functions.declare(later, parameters={"at": instant}, returns=instant)])
    functions.register(con, [functions.declare(shown, parameters=types)])
    con.execute("SET TimeZone = 'Europe/Berlin'")
    assert con.execute("SELECT epoch(later('2024-06-01 00:00:00+00'::timestamptz))").fetchone() == (1717203600.0,)
    utc = "2024-06-01 00:00:00+00:00"
    assert con.execute("SELECT shown(t, [t]) FROM (SELECT '2024-06-01 00:00:00+00'::timestamptz t)").fetchone() == (
        f"{utc} {utc}",
    )


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (object, "object has no SQL type"),
        (list, "list has no SQL type"),
        (tuple, "tuple has no SQL type"),
        (tuple[()], "tuple[()] does not say what is in it"),
        (int | str, "int | str has no SQL type"),
        (int | str | None, "int | str | None has no SQL type"),
        (None, "None has no SQL type"),
        (list[set[int]], "set[int] has no SQL type"),
        (Loop, "Loop contains itself, which a STRUCT cannot"),
        (Mixed, "the values of Mixed are not all str or all int"),
        (Literal[1, "a"], "the values of typing.Literal[1, 'a'] are not all str or all int"),
    ],
    ids=str,
)
def test_hints_without_a_sql_type(hint: object, reason: str) -> None:
    with pytest.raises(UnusableType) as raised:
        sql_type(hint)
    assert str(raised.value) == reason


@pytest.mark.parametrize("type_", ["TIMESTAMP_NS", "BIT", "BIGNUM", "UNION(a INTEGER, b VARCHAR)", "BIT[]"])
def test_sql_types_without_python_values(type_: str) -> None:
    with pytest.raises(UnusableType, match="cannot be given to Python functions"):
        codec(type_)


@pytest.mark.parametrize(
    ("hint", "given", "result"),
    [
        (float, 2**60 + 1, 2.0**60),  # an int is a float to a type checker
        (int, True, 1),
        (Decimal, Decimal(1) / 3, Decimal("0.3333333333")),
        (Decimal, Decimal("0.00000000005"), Decimal("0.0000000001")),  # half up, as CAST rounds
        (Decimal, 7, Decimal(7)),
        (list[int], (1, 2), [1, 2]),
        (str, Kind.A, "a"),
        (dict[str, int], {}, {}),
        (int, None, None),
    ],
    ids=str,
)
def test_values_that_are_taken_as_the_declared_type(
    con: duckdb.DuckDBPyConnection, hint: object, given: object, result: object
) -> None:
    def answer(_i):  # type: ignore[no-untyped-def]
        return given

    answer.__annotations__ = {"_i": int, "return": hint}
    functions.register(con, [functions.declare(answer)])
    assert con.execute("SELECT answer(i) FROM range(2) t(i)").fetchall() == [(result,), (result,)]


def test_numpy_values_are_taken_as_python_ones(con: duckdb.DuckDBPyConnection) -> None:
    import numpy as np

    def score(v: int) -> float:
        return np.float32(v) / 2  # type: ignore[return-value]

    def halves(v: int) -> list[int]:
        return np.arange(v)  # type: ignore[return-value]

    functions.register(con, [functions.declare(score), functions.declare(halves)])
    assert con.execute("SELECT score(3), halves(3)").fetchone() == (1.5, [0, 1, 2])


AWARE = NOON.replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        ("BIGINT", "1", "'1' (str), which is no BIGINT"),
        ("BIGINT", 1.0, "1.0 (float), which is no BIGINT"),
        ("BIGINT", 2**63, "9223372036854775808 (int), which is no BIGINT"),
        ("INTEGER", 2**31, "2147483648 (int), which is no INTEGER"),
        ("DOUBLE", "1", "'1' (str), which is no DOUBLE"),
        ("DOUBLE", Decimal(1), "Decimal('1') (Decimal), which is no DOUBLE"),
        ("VARCHAR", 1, "1 (int), which is no VARCHAR"),
        ("VARCHAR", b"a", "b'a' (bytes), which is no VARCHAR"),
        ("VARCHAR", "\ud800", "'\\ud800' (str), which is no VARCHAR"),
        ("BOOLEAN", 1, "1 (int), which is no BOOLEAN"),
        ("BLOB", "a", "'a' (str), which is no BLOB"),
        ("DATE", NOON, f"{NOON!r} (datetime), which is no DATE"),
        ("TIMESTAMP", NOON.date(), "datetime.date(2024, 2, 29) (date), which is no TIMESTAMP"),
        ("TIMESTAMP", AWARE, f"{AWARE!r} (datetime), which is no TIMESTAMP"),
        ("TIMESTAMP WITH TIME ZONE", NOON, f"{NOON!r} (datetime), which is no TIMESTAMP WITH TIME ZONE"),
        ("TIME", NOON, f"{NOON!r} (datetime), which is no TIME"),
        ("INTERVAL", 5, "5 (int), which is no INTERVAL"),
        ("DECIMAL(4,1)", Decimal("1000"), "Decimal('1000') (Decimal), which is no DECIMAL(4,1)"),
        ("DECIMAL(4,1)", Decimal("NaN"), "Decimal('NaN') (Decimal), which is no DECIMAL(4,1)"),
        ("DECIMAL(4,1)", Decimal("1e999999"), "Decimal('1E+999999') (Decimal), which is no DECIMAL(4,1)"),
        ("BIGINT[]", [1, "a"], "[1, 'a'] (list), which is no BIGINT[]"),
        ("BIGINT[]", "12", "'12' (str), which is no BIGINT[]"),
        ("BIGINT[2]", [1], "[1] (list), which is no BIGINT[2]"),
        ("MAP(VARCHAR, BIGINT)", {None: 1}, "{None: 1} (dict), which is no MAP(VARCHAR, BIGINT)"),
        ("STRUCT(a BIGINT)", {"b": 1}, "{'b': 1} (dict), which is no STRUCT(a BIGINT)"),
        ("UUID", "a", "'a' (str), which is no UUID"),
        ("HUGEINT", 10**38, f"{10**38} (int), which is no HUGEINT"),
    ],
)
def test_a_value_of_another_type_is_an_error(
    con: duckdb.DuckDBPyConnection, type_: str, value: object, shown: str
) -> None:
    def wrong(i: int):  # type: ignore[no-untyped-def]
        return value if i == 3 else None

    def constant():  # type: ignore[no-untyped-def]
        return value

    functions.register(con, [functions.declare(f, returns=type_) for f in (wrong, constant)])
    with pytest.raises(duckdb.Error) as raised:
        con.execute("SELECT wrong(i) FROM range(5) t(i)").fetchall()
    error = functions.recover(raised.value)
    assert error is not None
    assert error.message == f'function "wrong" returned {shown}'
    assert error.detail is not None
    assert error.detail.endswith("arguments: i=3")
    with pytest.raises(duckdb.Error) as raised:
        con.execute("SELECT constant()").fetchall()
    error = functions.recover(raised.value)
    assert error is not None
    assert error.message == f'function "constant" returned {shown}'


@pytest.mark.parametrize(
    ("hint", "literal", "message"),
    [
        (dt.datetime, "'infinity'::TIMESTAMP", 'a value of parameter "value": OverflowError: '),
        (dt.date, "'20000-01-01'::DATE", 'a value of parameter "value": OverflowError: '),
        (dt.date, "'0044-03-15 (BC)'::DATE", 'a value of parameter "value": OverflowError: '),
        (Colour, "'green'", "'green' as parameter \"value\": ValueError: 'green' is not a valid Colour"),
    ],
)
def test_an_argument_that_python_cannot_hold_is_an_error(
    con: duckdb.DuckDBPyConnection, hint: object, literal: str, message: str
) -> None:
    functions.register(con, [functions.declare(identity(hint))])
    with pytest.raises(duckdb.Error) as raised:
        con.execute(f"SELECT same({literal})").fetchall()
    error = functions.recover(raised.value)
    assert error is not None
    assert error.message.startswith(f'function "same" cannot take {message}')
    assert error.detail is not None
    assert "test_function_types.py:" in error.detail
