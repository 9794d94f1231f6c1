"""Table functions in a DuckDB connection: columns from hints, rows to Arrow, and what is said when they do not fit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sqlstream import functions, udtf
from sqlstream.catalog import Function
from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import BindError, JobError, SourceText, UnsupportedError
from sqlstream.testing import Stream


@dataclass
class Word:
    word: str
    length: int | None


class Long(Word):
    pass


class Point(NamedTuple):
    x: int
    y: float


class Tagged(TypedDict):
    tag: str
    on: date


class Color(Enum):
    RED = "r"


@dataclass
class Nested:
    color: Color
    words: list[Word]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def rows(con: duckdb.DuckDBPyConnection, function: Callable[..., Any], *arguments: str, **options: Any) -> list[Any]:
    """Return what a function gives for each value of its only argument, or for nothing."""
    functions.register(con, [functions.declare(function, **options)])
    call = f"{function.__name__}({'v' if arguments else ''})"
    values = ", ".join(f"({n}, {v})" for n, v in enumerate(arguments or ("1",)))
    found = con.execute(f"SELECT {call} FROM (VALUES {values}) AS t(n, v) ORDER BY n").fetchall()
    return [value for (value,) in found]


def failure(con: duckdb.DuckDBPyConnection, function: Callable[..., Any], *arguments: str, **options: Any) -> JobError:
    with pytest.raises(duckdb.Error) as caught:
        rows(con, function, *arguments, **options)
    error = functions.recover(caught.value)
    assert error is not None, caught.value
    return error


# -- declaring


def dataclasses() -> Iterator[Word]:
    raise AssertionError


def named_tuples() -> Iterable[Point]:
    raise AssertionError


def dicts() -> Generator[Tagged, None, None]:
    raise AssertionError


def tuples() -> Iterator[tuple[int, str | None]]:
    raise AssertionError


def plain() -> Iterator[Decimal | None]:
    raise AssertionError


def lists() -> list[list[int]]:
    raise AssertionError


def nested() -> Iterator[Nested]:
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        (dataclasses, (("word", "VARCHAR"), ("length", "BIGINT"))),
        (named_tuples, (("x", "BIGINT"), ("y", "DOUBLE"))),
        (dicts, (("tag", "VARCHAR"), ("on", "DATE"))),
        (tuples, (("f0", "BIGINT"), ("f1", "VARCHAR"))),
        (plain, (("plain", "DECIMAL(38,10)"),)),
        (lists, (("lists", "BIGINT[]"),)),
        (nested, (("color", "VARCHAR"), ("words", "STRUCT(word VARCHAR, length BIGINT)[]"))),
    ],
)
def test_columns_from_the_hint(function: Callable[..., Any], columns: tuple[tuple[str, str], ...]) -> None:
    declared = functions.declare(udtf(function))
    assert (declared.kind, declared.columns, declared.parameters) == ("table", columns, ())


def test_columns_that_the_decorator_names() -> None:
    def made(x: int): ...  # type: ignore[no-untyped-def]
    def hinted(x: int) -> Iterator[tuple[int, str]]:
        raise AssertionError

    by_class = functions.declare(udtf(returns=Word)(made))
    assert by_class.columns == (("word", "VARCHAR"), ("length", "BIGINT"))
    by_type = functions.declare(udtf(returns="STRUCT(a SMALLINT, b VARCHAR)")(hinted))
    assert by_type.columns == (("a", "SMALLINT"), ("b", "VARCHAR"))
    assert functions.declare(udtf(returns="SMALLINT", name="n")(made)).columns == (("n", "SMALLINT"),)


def test_a_generator_is_a_table_function_without_a_decorator() -> None:
    def generating(x: int) -> Iterator[int]:
        yield x

    def listed(x: int) -> list[int]:
        return [x]

    assert functions.declare(generating).kind == "table"
    assert functions.declare(listed).kind == "scalar"


def test_hints_that_say_no_rows() -> None:
    @udtf
    def untyped(x: int): ...  # type: ignore[no-untyped-def]
    @udtf
    def one(x: int) -> int:
        raise AssertionError

    @udtf
    def bare(x: int) -> Iterator:  # type: ignore[type-arg]
        raise AssertionError

    @udtf
    def any_number(x: int) -> Iterator[tuple[int, ...]]:
        raise AssertionError

    @udtf(returns="STRUCT(a BIGINT)")
    def too_many(x: int) -> Iterator[tuple[int, str]]:
        raise AssertionError

    @udtf(vectorized=True)
    def unnamed(x: pa.Int64Array) -> tuple[pa.Table, pa.Int64Array]:
        raise AssertionError

    @udtf
    def range(x: int) -> Iterator[int]:
        raise AssertionError

    @udtf
    def read_text(x: int) -> Iterator[int]:
        raise AssertionError

    @udtf
    async def later(x: int) -> Iterator[int]:
        raise AssertionError

    wrong = {
        untyped: 'what function "untyped" gives has no type hint',
        one: 'what function "one" gives has no usable type: int does not say what the rows are',
        bare: "Iterator does not say what the rows are",
        any_number: r"tuple\[int, ...\] does not say how many values there are",
        too_many: r"STRUCT\(a BIGINT\) has not as many fields as tuple\[int, str\]",
        unnamed: 'the columns of vectorized function "unnamed" are not named',
        range: 'function "range" has the name of a scalar function of SQL',
        read_text: 'function "read_text" has the name of a table function of SQL',
    }
    for function, message in wrong.items():
        with pytest.raises(BindError, match=message) as caught:
            functions.declare(function)
        assert caught.value.span is not None
    with pytest.raises(UnsupportedError, match='function "later" is async'):
        functions.declare(later)


def test_created_in_sql_and_found_in_files(tmp_path: Path) -> None:
    text = "from collections.abc import Iterator\n{}def letters(s: str) -> Iterator[str]:\n    yield from s\n"
    (tmp_path / "udfs").mkdir()
    (tmp_path / "texts.py").write_text(text.format(""))
    (tmp_path / "udfs" / "a.py").write_text(text.format("from sqlstream import udtf\n@udtf(name='chars')\n"))
    compiler = Compiler(project=str(tmp_path))
    compiler.scripts([SourceText("s.sql", "CREATE FUNCTION made AS 'texts.letters' LANGUAGE PYTHON")])
    made = compiler.catalog.function("made")
    compiler.close()
    assert made is not None
    assert (made.kind, made.columns, made.location) == ("table", (("made", "VARCHAR"),), "texts.py:2")
    [found] = functions.load(str(tmp_path / "udfs"))
    assert isinstance(found, Function)
    assert (found.name, found.kind, found.location) == ("chars", "table", "udfs/a.py:4")
    script = "CREATE TABLE t (s STRING); SELECT c FROM t CROSS JOIN LATERAL chars(s) AS c"
    with Stream(script, functions=pickle.loads(pickle.dumps([found]))) as stream:
        stream.batch("t", [("ab",), (None,)])
        assert sorted(stream.rows("result")) == [("a",), ("b",)]


# -- row by row


def test_rows_of_every_shape(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def words(s: str) -> Iterator[Word | None]:
        yield from (Word(w, len(w)) for w in s.split())
        yield None
        yield Long("sub", None)

    @udtf
    def points(n: int) -> list[Point]:
        return [Point(i, i / 2) for i in range(n)]

    @udtf
    def tags(n: int) -> Iterator[Tagged]:
        yield {"on": date(2026, 1, n), "tag": "x"}

    @udtf
    def deep() -> Iterator[Nested]:
        yield Nested(Color.RED, [Word("a", 1)])

    @udtf(returns="STRUCT(a BIGINT, b VARCHAR)")
    def either(n: int):  # type: ignore[no-untyped-def]
        yield {"b": "y", "a": n}
        yield n, "x"
        yield {"a": n}

    assert rows(con, words, "'a bb'") == [
        [{"word": "a", "length": 1}, {"word": "bb", "length": 2}, NO_WORD, {"word": "sub", "length": None}]
    ]
    assert rows(con, points, "0", "2") == [[], [{"x": 0, "y": 0.0}, {"x": 1, "y": 0.5}]]
    assert rows(con, tags, "2") == [[{"tag": "x", "on": date(2026, 1, 2)}]]
    assert rows(con, deep) == [[{"color": "r", "words": [{"word": "a", "length": 1}]}]]
    assert rows(con, either, "1") == [[{"a": 1, "b": "y"}, {"a": 1, "b": "x"}, {"a": 1, "b": None}]]


NO_WORD = {"word": None, "length": None}


def test_null_gives_no_rows_unless_the_hint_takes_it(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def strict(n: int) -> Iterator[int]:
        yield n

    @udtf
    def told(n: int | None) -> Iterator[int]:
        yield -1 if n is None else n

    assert rows(con, strict, "NULL", "1", "NULL", "2", "NULL") == [[], [1], [], [2], []]
    assert rows(con, told, "NULL", "1") == [[-1], [1]]


def test_chunks_of_every_size(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def several(n: int) -> Iterator[tuple[int, int]]:
        for i in range(n % 4):
            yield n, i

    functions.register(con, [functions.declare(several)])
    for size in (0, 1, 2047, 2048, 2049, 10_000):
        given = f"SELECT unnest(several(IF(i % 7 = 0, NULL, i))) AS r, i FROM range({size}) t(i)"
        [found] = con.execute(f"SELECT count(*), count(*) FILTER (r.f0 = i), sum(r.f1) FROM ({given})").fetchall()
        expected = [(n, i) for n in range(size) if n % 7 for i in range(n % 4)]
        assert found == (len(expected), len(expected), sum(i for _, i in expected) if expected else None)


def test_a_class_is_opened_once(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    class Numbered:
        def open(self) -> None:
            self.calls = 0
            log.append("open")

        def eval(self, n: int) -> Iterator[int]:
            self.calls += 1
            yield from [self.calls] * n

        def close(self) -> None:
            log.append("close")

    # By name, as that of an installed package: its log is this one.
    log: list[str] = LOG
    log.clear()
    declared = functions.declare(Numbered)
    registered = functions.register(con, [declared])
    assert con.execute("SELECT numbered(n) FROM (VALUES (1), (2)) t(n)").fetchall() == [([1],), ([2, 2],)]
    registered.close()
    assert declared.columns == (("Numbered", "BIGINT"),)


LOG: list[str] = []


def test_what_it_raises_names_line_and_row(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def broken(n: int) -> Iterator[int]:
        yield 1
        if n == 3:
            raise ValueError("three")

    @udtf
    def ends(n: int) -> list[int]:
        return [next(iter([]))] if n == 3 else []

    error = failure(con, broken, "1", "2", "3")
    line = broken.__code__.co_firstlineno + 4
    assert error.message == 'function "broken" raised ValueError: three'
    assert error.detail == f" --> tests/functions/test_table_functions.py:{line}\narguments: n=3"
    error = failure(con, ends, "1", "3", "2")
    assert error.message == 'function "ends" raised StopIteration'
    assert error.detail is not None
    assert error.detail.endswith("arguments: n=3")


def test_rows_of_the_wrong_type(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def fields(n: int) -> Iterator[Word]:
        yield Word("a", 1)
        yield Word("b", "x" if n == 2 else n)  # type: ignore[arg-type]

    @udtf
    def other(n: int) -> Iterator[Word]:
        yield Word("a", 1)
        yield ("b", 1)  # type: ignore[misc]

    @udtf
    def short(n: int) -> Iterator[tuple[int, int]]:
        yield (n,)  # type: ignore[misc]

    @udtf
    def texts(n: int) -> Iterator[int]:
        yield "x"  # type: ignore[misc]

    @udtf
    def more(n: int) -> Iterator[Tagged]:
        yield {"tag": "x", "on": date(2026, 1, 1), "extra": 1}  # type: ignore[typeddict-unknown-key]

    @udtf
    def big(n: int) -> Iterator[tuple[int]]:
        yield (2**70,)

    expected = {
        fields: "yielded Word(word='b', length='x') (Word), whose field \"length\" is 'x' (str), which is no BIGINT",
        other: "yielded ('b', 1) (tuple), which is no Word",
        short: "yielded (2,) (tuple), which has 1 value instead of 2",
        texts: "yielded 'x' (str), which is no BIGINT",
        more: 'which has an unexpected field "extra"',
        big: 'whose field "f0" is 1180591620717411303424 (int), which is no BIGINT',
    }
    for function, message in expected.items():
        error = failure(con, function, "NULL", "2")
        assert message in error.message
        assert error.detail is not None
        assert error.detail.endswith("arguments: n=2")


def test_what_is_returned_instead_of_rows(con: duckdb.DuckDBPyConnection) -> None:
    @udtf
    def nothing(n: int) -> list[int]:
        return None  # type: ignore[return-value]

    @udtf
    def chars(n: int) -> Iterable[str]:
        return "abc"

    @udtf
    def lazily(n: int) -> Iterable[int]:
        return map(int, [n])

    assert failure(con, nothing, "5").message == 'function "nothing" returned None (NoneType), which are no rows'
    assert failure(con, chars, "5").message == "function \"chars\" returned 'abc' (str), which are no rows"
    assert rows(con, lazily, "5") == [[5]]


# -- many rows at a time


@udtf(vectorized=True, returns="STRUCT(n BIGINT, half DOUBLE)")
def halves(x: pa.Int64Array) -> tuple[pa.Table, Any]:
    index = np.repeat(np.arange(len(x)), [v or 0 for v in x.to_pylist()])
    n = x.take(pa.array(index))
    return pa.table({"half": pc.divide(n.cast(pa.float64()), 2.0), "n": n.cast(pa.int32())}), index


def test_a_table_and_the_index_of_its_rows(con: duckdb.DuckDBPyConnection) -> None:
    assert rows(con, halves, "1", "NULL", "2") == [[{"n": 1, "half": 0.5}], [], [{"n": 2, "half": 1.0}] * 2]
    total = "SELECT count(*), sum(r.n) FROM (SELECT unnest(halves(i % 3)) AS r FROM range(10000) t(i))"
    assert con.execute(total).fetchall() == [(9999, 16665)]


def test_rows_in_another_order_keep_theirs(con: duckdb.DuckDBPyConnection) -> None:
    @udtf(vectorized=True, returns="BIGINT", name="swapped")
    def swapped(x: pa.Int64Array) -> tuple[pa.RecordBatch, pa.ChunkedArray]:
        return pa.record_batch({"swapped": pa.array([1, 2, 3, 4])}), pa.chunked_array([[1, 0], [1, 0]])

    assert rows(con, swapped, "7", "8", "9") == [[2, 4], [1, 3], []]


@pytest.mark.parametrize(
    ("table", "index", "message"),
    [
        ({"a": [1]}, [2], "returned the index 2, and there are 2 input rows"),
        ({"a": [1]}, [-1], "returned the index -1, and there are 2 input rows"),
        ({"a": [1]}, [None], "returned an index of null with 1 NULLs, not of numbers"),
        ({"a": [1]}, ["x"], "returned an index of string with 0 NULLs, not of numbers"),
        ({"a": [1, 2]}, [0], "returned an index of 1 rows for a table of 2"),
        ({"b": [1]}, [0], 'returned a table without the column "a"'),
        ({"a": [1], "b": [1]}, [0], 'returned a table with an unexpected column "b"'),
        ({"a": ["x"]}, [0], 'returned a table whose column "a" is an array of string, which is no BIGINT'),
        (None, [0], "returned (NoneType, list), not an Arrow table and the index of the input row of each of its rows"),
    ],
)
def test_tables_that_do_not_fit(con: duckdb.DuckDBPyConnection, table: Any, index: list[Any], message: str) -> None:
    def given(x: pa.Int64Array) -> Any:
        return (None if table is None else pa.table(table)), index

    error = failure(con, udtf(vectorized=True, returns="STRUCT(a BIGINT)")(given), "1", "2")
    assert error.message.startswith(f'function "given" {message}')


def test_nothing_but_a_pair(con: duckdb.DuckDBPyConnection) -> None:
    @udtf(vectorized=True, returns="STRUCT(a BIGINT)")
    def alone(x: pa.Int64Array) -> Any:
        return pa.table({"a": x})

    assert failure(con, alone, "1").message.startswith('function "alone" returned a Table, not an Arrow table and')
