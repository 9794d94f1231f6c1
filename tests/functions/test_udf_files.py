"""Loading udfs/**/*.py: what is found, how files see each other, and the error texts for what cannot be loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import duckdb
import pytest

from sqlstream import functions
from sqlstream.catalog import Function
from sqlstream.errors import SqlStreamError
from tests.kinds import of_type

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files below udfs/ and return that folder; a name is a path with / as __ and without .py."""

    def write(**files: str) -> str:
        for name, text in files.items():
            path = tmp_path / "udfs" / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("from sqlstream.functions import udf\n" + dedent(text))
        return str(tmp_path / "udfs")

    return write


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def error_of(directory: str) -> str:
    with pytest.raises(SqlStreamError) as raised:
        functions.load(directory)
    return str(raised.value)


ONE = """
@udf
def {name}(a: int) -> int:
    return a + 1
"""


def test_files_are_loaded_in_path_order_with_their_place(write: Write) -> None:
    folder = write(b=ONE.format(name="two"), a__z=ONE.format(name="one"), c="LIMIT = 3")
    loaded = functions.load(folder)
    assert [(f.name, f.location) for f in loaded] == [("one", "udfs/a/z.py:4"), ("two", "udfs/b.py:4")]
    typed = [of_type(Function, f) for f in loaded]
    assert [(f.parameters, f.returns, f.nullable) for f in typed] == [(("BIGINT",), "BIGINT", (False,))] * 2


def test_a_folder_that_does_not_exist_has_no_functions(tmp_path: Path) -> None:
    assert functions.load(str(tmp_path / "udfs")) == []


def test_a_marked_function_stays_an_ordinary_one() -> None:
    @functions.udf
    def plain(a: int) -> int:
        return a + 1

    @functions.udf(name="other", returns="INTEGER")
    def named(a: int) -> int:
        return a + 2

    assert (plain(1), named(1)) == (2, 3)
    assert functions.declare(named).name == "other"
    assert functions.declare(named, name="third", returns="SMALLINT").returns == "SMALLINT"


def test_files_import_each_other_and_run_once(write: Write, con: duckdb.DuckDBPyConnection) -> None:
    folder = write(
        # Loaded before what it imports, and after.
        a="""
            from geo import city, Place
            import sub.names
            from .sub.names import SHORT

            @udf
            def a_city(code: str) -> str:
                return city(code) + SHORT + sub.names.SHORT

            @udf
            def a_place(code: str) -> Place:
                return Place(city(code))
        """,
        geo="""
            from dataclasses import dataclass
            import sys
            sys.stderr.write("geo runs")

            @dataclass
            class Place:
                name: str

            @udf
            def city(code: str) -> str:
                return {"JFK": "New York"}[code]

            @udf
            def name_of(place: Place) -> str:
                return place.name
        """,
        sub__names="SHORT = '!'",
        z="""
            import geo

            @udf
            def z_city(code: str) -> str:
                assert isinstance(geo.Place("x"), geo.Place)
                return geo.city(code)
        """,
    )
    before = set(sys.modules)
    loaded = functions.load(folder)
    assert [f.name for f in loaded] == ["a_city", "a_place", "city", "name_of", "z_city"]
    functions.register(con, loaded)
    row = con.execute("SELECT a_city('JFK'), city('JFK'), name_of(a_place('JFK')), z_city('JFK')").fetchone()
    assert row == ("New York!!", "New York", "New York", "New York")
    # Nothing is left under a short name, where it would hide or be hidden by other modules.
    assert all(name.startswith("udfs_") for name in set(sys.modules) - before if "geo" in name or "names" in name)


def test_a_file_runs_once(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    functions.load(
        write(a="import geo", geo="print('geo runs')", z="import geo\nfrom . import geo as g\nassert g is geo")
    )
    assert capfd.readouterr().out == "geo runs\n"


def test_a_file_does_not_hide_an_installed_module(
    write: Write, con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    text = """
        import colorsys

        @udf
        def hue(r: float, g: float, b: float) -> float:
            return colorsys.rgb_to_hsv(r, g, b)[0]
    """
    functions.register(con, functions.load(write(colorsys=text)))
    assert con.execute("SELECT hue(0, 1, 0) * 3").fetchone() == (1.0,)


def test_loading_again_reads_the_files_again(write: Write, con: duckdb.DuckDBPyConnection) -> None:
    functions.register(con, functions.load(write(a="@udf\ndef f() -> int:\n    return 1")))
    functions.register(con, functions.load(write(a="@udf\ndef f() -> int:\n    return 22")))
    assert con.execute("SELECT f()").fetchone() == (22,)


def test_an_imported_function_belongs_to_its_own_file(write: Write) -> None:
    folder = write(a=ONE.format(name="f"), b="from a import f\ng = f")
    assert [f.location for f in functions.load(folder)] == ["udfs/a.py:4"]


def test_two_functions_of_one_name(write: Write) -> None:
    folder = write(a=ONE.format(name="area"), b__c=ONE.format(name="AREA"))
    assert error_of(folder) == (
        'error: function "AREA" is defined twice\n'
        " --> udfs/a.py:4\n"
        " --> udfs/b/c.py:4\n"
        "hint: Rename one of them, or give it another name in SQL: @udf(name='...')."
    )


IMPORT_ERRORS = {
    "a statement": (
        "\nRATES = {}\n\ndef rate(x):\n    return RATES[x]\n\nrate('é')",
        """
        error: udfs/a.py cannot be imported: KeyError: 'é'
          --> udfs/a.py:6:5
           |
         6 |     return RATES[x]
           |     ^^^^^^^^^^^^^^^
        """,
    ),
    "an import": (
        "import no_such_package",
        """
        error: udfs/a.py cannot be imported: ModuleNotFoundError: No module named 'no_such_package'
          --> udfs/a.py:2:1
           |
         2 | import no_such_package
           | ^^^^^^^^^^^^^^^^^^^^^^
        hint: Install it: pip install no_such_package (its package may have another name).
        """,
    ),
    "a library": (
        "import json\njson.loads('[')",
        """
        error: udfs/a.py cannot be imported: JSONDecodeError: Expecting value: line 1 column 2 (char 1)
          --> udfs/a.py:3:1
           |
         3 | json.loads('[')
           | ^^^^^^^^^^^^^^^
        """,
    ),
    "syntax": (
        "def f(:\n    pass",
        """
        error: udfs/a.py cannot be imported: invalid syntax
          --> udfs/a.py:2:1
           |
         2 | def f(:
           | ^^^^^^^
        """,
    ),
    "exit": (
        "raise SystemExit",
        """
        error: udfs/a.py cannot be imported: SystemExit
          --> udfs/a.py:2:1
           |
         2 | raise SystemExit
           | ^^^^^^^^^^^^^^^^
        """,
    ),
}


@pytest.mark.parametrize("case", IMPORT_ERRORS)
def test_a_file_that_does_not_import(write: Write, case: str) -> None:
    text, expected = IMPORT_ERRORS[case]
    shown = "\n".join(line.rstrip() for line in error_of(write(a=text)).split("\n"))
    assert shown == dedent(expected).strip().replace(" |\n", " |\n")


def test_a_failing_sibling_is_named_by_its_own_line(write: Write) -> None:
    shown = error_of(write(a="import b", b="1 / 0"))
    assert shown.startswith(
        "error: udfs/a.py cannot be imported: ZeroDivisionError: division by zero\n  --> udfs/b.py:2:1"
    )


USABLE = (
    "hint: Usable are int, float, str, bool, bytes, date, datetime, time, timedelta, Decimal, UUID, list[T], tuple[..], "
    "dict[K, V], dataclasses, NamedTuples, TypedDicts, Enums and Literals, each also as T | None. Or name the SQL type: "
)
DECLARATIONS = {
    "no hint": (
        "def f(a: int, b) -> int: ...",
        """
        error: parameter "b" of function "f" has no type hint
          --> udfs/a.py:3:15
           |
         3 | def f(a: int, b) -> int: ...
           |               ^
        hint: Write b: int, say, or name the SQL type: @udf(parameters={'b': 'BIGINT'}).
        """,
    ),
    "no result hint": (
        "def f(a: int): ...",
        """
        error: the result of function "f" has no type hint
          --> udfs/a.py:3:1
           |
         3 | def f(a: int): ...
           | ^^^^^
        hint: Write -> int, say, or name the SQL type: @udf(returns='BIGINT').
        """,
    ),
    "unusable": (
        "def f(é: str, a: list[object]) -> int: ...",
        f"""
        error: parameter "a" of function "f" has no usable type: object has no SQL type
          --> udfs/a.py:3:15
           |
         3 | def f(é: str, a: list[object]) -> int: ...
           |               ^^^^^^^^^^^^^^^
        {USABLE}@udf(parameters={{'a': 'BIGINT'}}).
        """,
    ),
    "no result": (
        "def f(a: int) -> None: ...",
        f"""
        error: the result of function "f" has no usable type: NoneType has no SQL type
          --> udfs/a.py:3:1
           |
         3 | def f(a: int) -> None: ...
           | ^^^^^
        {USABLE}@udf(returns='BIGINT').
        """,
    ),
    "undefined": (
        'def f(a: "Missing") -> int: ...',
        """
        error: the type hints of function "f" cannot be evaluated: name 'Missing' is not defined
          --> udfs/a.py:3:1
           |
         3 | def f(a: "Missing") -> int: ...
           | ^^^^^
        hint: Hints may use what is defined at the top level of the file, not only under TYPE_CHECKING.
        """,
    ),
    "default": (
        "def f(a: int, b: int = 'x') -> int: ...",
        """
        error: the default value of parameter "b" of function "f", 'x', is no BIGINT
          --> udfs/a.py:3:15
           |
         3 | def f(a: int, b: int = 'x') -> int: ...
           |               ^^^^^^
        """,
    ),
    "default of None": (
        "def f(a: int, b: int = None) -> int: ...",
        """
        error: the default value of parameter "b" of function "f" is None
          --> udfs/a.py:3:15
           |
         3 | def f(a: int, b: int = None) -> int: ...
           |               ^^^^^^
        hint: Write | None behind its type; else NULL makes the result NULL.
        """,
    ),
    "varargs": (
        "def f(*rest: int) -> int: ...",
        """
        unsupported: parameter "rest" of function "f" takes any number of arguments
          --> udfs/a.py:3:8
           |
         3 | def f(*rest: int) -> int: ...
           |        ^^^^^^^^^
        hint: Name each parameter, or take a list[T].
        """,
    ),
    "keyword": (
        "def f(*, a: int) -> int: ...",
        """
        unsupported: parameter "a" of function "f" can only be given by name
          --> udfs/a.py:3:10
           |
         3 | def f(*, a: int) -> int: ...
           |          ^^^^^^
        hint: SQL gives arguments by position: remove the * before it.
        """,
    ),
    "async": (
        "async def f(a: int) -> int: ...",
        """
        unsupported: function "f" is async
          --> udfs/a.py:3:1
           |
         3 | async def f(a: int) -> int: ...
           | ^^^^^^^^^^^
        hint: Use def instead of async def.
        """,
    ),
    "generator": (
        "def f(a: int) -> int: yield a",
        """
        unsupported: function "f" is a generator
          --> udfs/a.py:3:1
           |
         3 | def f(a: int) -> int: yield a
           | ^^^^^
        hint: Mark it @udtf, and write CROSS JOIN LATERAL f(..): or return one value per row, such as a list.
        """,
    ),
    "builtin": (
        "def Upper(a: str) -> str: ...",
        """
        error: function "Upper" has the name of a scalar function of SQL
          --> udfs/a.py:3:1
           |
         3 | def Upper(a: str) -> str: ...
           | ^^^^^^^^^
        hint: Give it another name: @udf(name='my_upper').
        """,
    ),
}


@pytest.mark.parametrize("case", DECLARATIONS)
def test_a_function_that_sql_cannot_call(write: Write, case: str) -> None:
    text, expected = DECLARATIONS[case]
    assert error_of(write(a=f"@udf\n{text}")) == dedent(expected).strip()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("returns='STRING OF'", 'the result of function "f" has no usable type: "STRING OF" is not a DuckDB type'),
        ("returns='BIT'", 'the result of function "f" has no usable type: values of type BIT cannot be given to'),
        ("parameters={'b': 'INT'}", 'function "f" has no parameter "b"'),
        ("name='two words'", '"two words" is not a function name'),
        ("name='sum'", 'function "sum" has the name of an aggregate function of SQL'),
        ("name='coalesce'", 'function "coalesce" has the name of a keyword of SQL'),
    ],
)
def test_options_that_do_not_fit(write: Write, options: str, message: str) -> None:
    shown = error_of(write(a=f"@udf({options})\ndef f(a: int) -> int: ..."))
    assert shown.startswith(f"error: {message}")
    assert "--> udfs/a.py:3:1" in shown


def test_a_dataclass_must_fit_the_struct_that_is_named_for_it(write: Write) -> None:
    text = """
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
        @udf(returns='STRUCT(y BIGINT)')
        def f(a: int) -> P: ...
    """
    assert "STRUCT(y BIGINT) does not have the fields of P: x" in error_of(write(a=text))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda a: a, "error: a lambda has neither a name nor type hints"),
        (len, "error: 'len' is not a Python function"),
        (3, "error: 3 is not a Python function"),
    ],
)
def test_values_that_are_no_functions(value: object, message: str) -> None:
    with pytest.raises(SqlStreamError) as raised:
        functions.declare(value)  # type: ignore[arg-type]
    assert str(raised.value) == f"{message}\nhint: Write a function with type hints: def name(x: int) -> str: ..."


def test_a_global_that_cannot_travel(write: Write) -> None:
    text = """
        import threading
        LOCK = threading.Lock()

        def guarded(a):
            with LOCK:
                return a

        @udf
        def f(a: int) -> int:
            return [guarded(x) for x in [a]][0]
    """
    assert (
        error_of(write(a=text))
        == dedent("""
        error: function "f" uses "LOCK", which cannot be sent to worker processes: cannot pickle '_thread.lock' object
           --> udfs/a.py:11:1
            |
         11 | def f(a: int) -> int:
            | ^^^^^
        hint: Create such an object where it is used, in a function under functools.cache.
        """).strip()
    )


def test_an_open_file_in_an_enclosing_function(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as log:

        def f(a: int) -> int:
            log.write("x")
            return a

        with pytest.raises(SqlStreamError, match='function "f" uses "log", which cannot be sent to worker processes'):
            functions.declare(f)
