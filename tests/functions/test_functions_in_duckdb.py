"""Functions in a DuckDB connection: NULLs, chunks, errors that name function, place and row, and travel by value."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import duckdb
import pytest

from sqlstream import functions
from sqlstream.errors import BindError, JobError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 2}) as connection:
        yield connection


def loaded(tmp_path: Path, text: str) -> list[Any]:
    (tmp_path / "udfs").mkdir(exist_ok=True)
    (tmp_path / "udfs" / "a.py").write_text("from sqlstream.functions import udf\n" + dedent(text))
    return functions.load(str(tmp_path / "udfs"))


def failure(con: duckdb.DuckDBPyConnection, sql: str) -> JobError:
    with pytest.raises(duckdb.Error) as raised:
        con.execute(sql).fetchall()
    error = functions.recover(raised.value)
    assert error is not None, raised.value
    return error


def test_the_functions_of_this_project(con: duckdb.DuckDBPyConnection) -> None:
    functions.register(con, functions.load(str(ROOT / "udfs")))
    rows = con.execute("SELECT delay_band(m) FROM (VALUES (-1), (0), (15), (60.0), (NULL)) t(m)").fetchall()
    assert rows == [("early",), ("on time",), ("late",), ("very late",), (None,)]
    assert con.execute("SELECT airport_city('ewr '), airport_city('SFO')").fetchone() == ("Newark", None)


def test_null_goes_in_only_where_the_hint_allows_it(con: duckdb.DuckDBPyConnection) -> None:
    def pair(a: int, b: int | None, c: str) -> str:
        return f"{a},{b},{c}"

    functions.register(con, [functions.declare(pair)])
    rows = (
        "(VALUES (1, 2, 'x'), (NULL, 2, 'x'), (1, NULL, 'x'), (1, 2, NULL), (NULL, NULL, NULL), (3, 4, 'y')) t(a, b, c)"
    )
    found = con.execute(f"SELECT pair(a, b, c) FROM {rows}").fetchall()
    assert found == [("1,2,x",), (None,), ("1,None,x",), (None,), (None,), ("3,4,y",)]
    assert con.execute("SELECT pair(1, NULL, 'x'), pair(NULL, 1, 'x')").fetchone() == ("1,None,x", None)


def test_chunks_of_every_size(con: duckdb.DuckDBPyConnection) -> None:
    def doubled(a: int) -> int:
        return 2 * a

    functions.register(con, [functions.declare(doubled)])
    for size in (0, 1, 2047, 2048, 2049, 300_000):
        rows = f"SELECT i, IF(i % 3 = 0, NULL, i) AS n FROM range({size}) t(i)"
        sql = f"SELECT count(*) FILTER (doubled(i) = 2 * i), count(doubled(n)) FROM ({rows})"
        assert con.execute(sql).fetchone() == (size, size - (size + 2) // 3)


def test_many_arguments(con: duckdb.DuckDBPyConnection) -> None:
    names = [f"p{i}" for i in range(60)]
    scope: dict[str, Any] = {}
    exec(f"def wide({', '.join(f'{n}: int' for n in names)}) -> int:\n return {' + '.join(names)}", scope)
    functions.register(con, [functions.declare(scope["wide"])])
    assert con.execute(f"SELECT wide({', '.join('i' for _ in names)}) FROM range(1, 3) t(i)").fetchall() == [
        (60,),
        (120,),
    ]


def test_a_function_that_is_not_deterministic_is_called_for_every_row(con: duckdb.DuckDBPyConnection) -> None:
    def ticket() -> int:
        seen.append(0)
        return len(seen)

    def ticket_for(_name: str) -> int:
        seen.append(0)
        return len(seen)

    seen: list[int] = []
    functions.register(con, [functions.declare(f, deterministic=False) for f in (ticket, ticket_for)])
    assert len(con.execute("SELECT DISTINCT ticket() FROM range(5)").fetchall()) == 5
    assert len(con.execute("SELECT DISTINCT ticket_for('x') FROM range(5)").fetchall()) == 5


def test_registering_again_replaces(con: duckdb.DuckDBPyConnection) -> None:
    def first() -> int:
        return 1

    def second(a: str) -> str:
        return a * 2

    functions.register(con, [functions.declare(first, name="f")])
    functions.register(con, [functions.declare(second, name="F")])
    assert con.cursor().execute("SELECT f('x')").fetchone() == ("xx",)


def test_a_name_that_the_connection_has_already(con: duckdb.DuckDBPyConnection) -> None:
    def f(a: int) -> int:
        return a

    con.execute("CREATE MACRO f(a) AS a")
    with pytest.raises(BindError, match='function "f" cannot be registered: the name is taken in DuckDB'):
        functions.register(con, [functions.declare(f)])


def test_arguments_are_cast_as_duckdb_casts(con: duckdb.DuckDBPyConnection) -> None:
    def half(a: float) -> float:
        return a / 2

    functions.register(con, [functions.declare(half)])
    assert con.execute("SELECT half(1), half(1.5), half(1::HUGEINT)").fetchone() == (0.5, 0.75, 0.5)
    with pytest.raises(duckdb.BinderException, match=r"half\(STRING_LITERAL|half\(VARCHAR|half"):
        con.execute("SELECT half('a'::VARCHAR)")


RAISING = """
    import json

    def check(minutes):
        if minutes < 0:
            raise ValueError("negative délai\\nfor a flight")

    @udf
    def delay_band(minutes: float, carrier: str | None) -> str:
        check(minutes)
        return "late"

    @udf
    def parsed(text: str) -> str:
        return json.loads(text)["x"]

    @udf
    def compiled(a: int) -> int:
        import pyarrow
        return pyarrow.array(["x"], pyarrow.int64())

    @udf
    def leaves(a: int) -> int:
        raise SystemExit

    @udf
    def nothing() -> int:
        return 1 // 0
"""


def test_an_exception_names_function_place_and_row(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    functions.register(con, loaded(tmp_path, RAISING))
    rows = (
        "(SELECT CASE WHEN i = 5000 THEN -3.0 WHEN i % 7 = 0 THEN NULL ELSE i END::DOUBLE AS m FROM range(9999) t(i))"
    )
    error = failure(con, f"SELECT max(delay_band(m, NULL)) FROM {rows}")
    assert str(error) == (
        'job failed: function "delay_band" raised ValueError: negative délai for a flight\n'
        " --> udfs/a.py:7\n"
        "arguments: minutes=-3.0, carrier=None"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_exception_inside_a_library_is_placed_in_the_users_file(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    functions.register(con, loaded(tmp_path, RAISING))
    error = failure(con, "SELECT parsed('{' || repeat('x', 1000))")
    assert error.detail is not None
    place, arguments = error.detail.split("\n")
    assert error.message.startswith('function "parsed" raised JSONDecodeError: Expecting property name')
    assert place == " --> udfs/a.py:16"
    assert (failure(con, "SELECT compiled(1)").detail or "").startswith(" --> udfs/a.py:21")
    assert arguments.startswith("arguments: text='{xxx")
    assert arguments.endswith("xxx…")
    assert len(arguments) < 220


def test_other_ways_to_fail(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    functions.register(con, loaded(tmp_path, RAISING))
    exits = 'job failed: function "leaves" raised SystemExit\n --> udfs/a.py:25\narguments: a=1'
    assert str(failure(con, "SELECT leaves(1)")) == exits
    zero = (
        'job failed: function "nothing" raised ZeroDivisionError: integer division or modulo by zero\n --> udfs/a.py:29'
    )
    assert str(failure(con, "SELECT nothing()")) == zero
    # DuckDB's TRY turns the error of a row into NULL.
    assert con.execute("SELECT TRY(leaves(1))").fetchone() == (None,)


def test_a_bare_next_does_not_end_the_rows(con: duckdb.DuckDBPyConnection) -> None:
    def first_above(a: int) -> int:
        return next(x for x in [1, 2, 3] if x > a)

    functions.register(con, [functions.declare(first_above)])
    error = failure(con, "SELECT first_above(CASE i WHEN 3 THEN NULL ELSE i END) FROM range(10) t(i)")
    assert error.message == 'function "first_above" raised StopIteration'
    assert (error.detail or "").endswith("arguments: a=4")


def test_other_errors_are_not_recovered(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error) as raised:
        con.execute("SELECT 'a'::INTEGER")
    assert functions.recover(raised.value) is None


def test_arguments_whose_repr_fails_are_shown_by_class(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    text = """
        from dataclasses import dataclass

        @dataclass(repr=False)
        class Odd:
            a: int
            def __repr__(self):
                raise RuntimeError

        @udf
        def f(odd: Odd, b: str) -> int:
            raise KeyError(odd.a)
    """
    functions.register(con, loaded(tmp_path, text))
    assert failure(con, "SELECT f({'a': 7}, 'x')").detail == " --> udfs/a.py:13\narguments: odd=<Odd>, b='x'"


def test_a_class_that_refuses_its_fields(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    text = """
        from dataclasses import dataclass

        @dataclass
        class Age:
            years: int
            def __post_init__(self):
                if self.years < 0:
                    raise ValueError("too young")

        @udf
        def f(age: Age) -> int:
            return age.years
    """
    functions.register(con, loaded(tmp_path, text))
    error = failure(con, "SELECT f({'years': y}) FROM (VALUES (1), (-1)) t(y)")
    assert error.message == """function "f" cannot take {'years': -1} as parameter "age": ValueError: too young"""
    assert error.detail == " --> udfs/a.py:10"


CARRIED = {
    "udfs/geo.py": """
        import enum
        from dataclasses import dataclass

        class Side(enum.Enum):
            EAST = "east"
            WEST = "west"

        @dataclass
        class Place:
            name: str
            side: Side

        PLACES = {"JFK": Place("New York", Side.EAST)}
    """,
    "udfs/rates/fees.py": "PER_PLACE = 1",
    "udfs/a.py": """
        from __future__ import annotations
        import functools, re
        from decimal import Decimal
        from sqlstream.functions import udf
        import geo
        import rates.fees
        from geo import Place, Side

        CODE = re.compile("[A-Z]{3}")
        calls = []

        @functools.cache
        def factorial(n):
            calls.append(n)
            return n * factorial(n - 1) if n else 1

        @udf
        @functools.lru_cache(maxsize=10)
        def fact(n: int) -> int:
            return factorial(n)

        @udf
        def calls_so_far(n: int) -> int:
            return factorial(n) and len(calls)

        @udf
        def place(code: str) -> Place | None:
            return geo.PLACES.get(code) if CODE.fullmatch(code) else None

        @udf
        def is_east(place: Place) -> bool:
            assert isinstance(place, Place) and isinstance(place, geo.Place)
            return place.side is Side.EAST

        @udf(returns="DECIMAL(10,2)")
        def fee(amount: Decimal, places: list[Place] | None) -> Decimal:
            return amount / 3 + len(places or []) * rates.fees.PER_PLACE

        @udf
        def fails(n: int) -> int:
            return helper_that_is_missing(n)
    """,
}
STRANGER = """
import pickle, sys, duckdb
from sqlstream import functions
assert not any("udfs" in p for p in sys.path)
with duckdb.connect() as con:
    functions.register(con, pickle.load(sys.stdin.buffer))
    print(con.execute("SELECT fact(5), calls_so_far(2), calls_so_far(3), place('JFK').side, is_east(place('JFK')),"
                      " place('jfk'), fee(1, [place('JFK')])").fetchone())
    try:
        con.execute("SELECT fails(i) FROM range(1, 3) t(i)")
    except duckdb.Error as error:
        print(functions.recover(error))
    print([name for name in sys.modules if name.startswith("udfs_") or name == "geo"])
"""


@pytest.mark.slow
def test_functions_work_where_none_of_the_users_files_are(tmp_path: Path) -> None:
    for name, text in CARRIED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(dedent(text))
    carried = pickle.dumps(functions.load(str(tmp_path / "udfs")))
    for name in CARRIED:
        (tmp_path / name).unlink()
    away = tmp_path / "away"
    away.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", STRANGER],
        input=carried,
        capture_output=True,
        cwd=away,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert ran.stderr.decode() == ""
    assert ran.stdout.decode().split("\n") == [
        str((120, 3, 4, "east", True, None, Decimal("1.33"))),
        "job failed: function \"fails\" raised NameError: name 'helper_that_is_missing' is not defined",
        " --> udfs/a.py:42",
        "arguments: n=1",
        "[]",
        "",
    ]


@pytest.mark.slow
def test_a_function_that_needs_what_is_not_installed_here(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "only_there.py").write_text("def f(a): return a")
    text = f"""
        import sys
        sys.path.insert(0, {str(library)!r})
        import only_there
        sys.path.pop(0)

        @udf
        def f(a: int) -> int:
            return only_there.f(a)
    """
    # A file of the user's own travels, wherever it is.
    functions.register(con, loaded(tmp_path, text))
    sys.modules.pop("only_there")
    assert con.execute("SELECT f(1)").fetchone() == (1,)
    # An installed package goes by name.
    installed = functions.declare(uses_pytest)
    code = (
        "import pickle, sys, duckdb\nfrom sqlstream import functions\nsys.modules['_pytest.outcomes'] = None\n"
        + dedent("""
        with duckdb.connect() as con:
            functions.register(con, [pickle.load(sys.stdin.buffer)])
            try:
                con.execute("SELECT uses_pytest(1)")
            except duckdb.Error as error:
                print(functions.recover(error))
    """)
    )
    ran = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(installed), capture_output=True, cwd=tmp_path)
    shown = ran.stdout.decode()
    assert shown.startswith(
        'job failed: function "uses_pytest" cannot be loaded in this process: ModuleNotFoundError: '
    ), ran


def uses_pytest(a: int) -> int:
    pytest.skip("not called")
    return a


@pytest.mark.slow
def test_the_main_module_travels_too(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        dedent("""
            import pickle, sys
            from sqlstream import functions
            OFFSET = 40
            def plus(a: int) -> int:
                return a + OFFSET
            sys.stdout.buffer.write(pickle.dumps(functions.declare(plus)))
        """)
    )
    ran = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, cwd=tmp_path, check=True)
    function = pickle.loads(ran.stdout)
    assert function.location == "main.py:5"
    with duckdb.connect() as con:
        functions.register(con, [function])
        assert con.execute("SELECT plus(2)").fetchone() == (42,)


def test_a_function_is_decoded_once_per_process(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    text = """
        class Counted:
            def __reduce__(self):
                return print, ("decoded",)

        MARK = Counted()

        @udf
        def f(a: int) -> int:
            return a if MARK is None else 0
    """
    import contextlib
    import io

    out = io.StringIO()
    # Loaded again, from bytecode that the first time left behind, it may be other bytes.
    function = loaded(tmp_path, text)
    with contextlib.redirect_stdout(out), duckdb.connect() as other:
        for connection in (con, other):
            functions.register(connection, function)
            assert connection.execute("SELECT sum(f(i)) FROM range(5000) t(i)").fetchone() == (12497500,)
    assert out.getvalue() == "decoded\n"
