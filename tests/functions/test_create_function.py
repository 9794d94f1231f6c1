"""CREATE FUNCTION and DROP FUNCTION: where modules are found, what may be named, and what is said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.loading import load_project
from sqlstream.errors import BindError, SourceText, SqlStreamError
from sqlstream.project import Project
from sqlstream.session.project_query import open_project_query
from tests.kinds import jobs_of

FILES = {
    "geo.py": """
        from tools import half

        def distance(a: int, b: int = 0) -> int:
            return half(abs(a - b))

        class Shift:
            def __call__(self, x: int) -> int:
                return x + 1

        WRONG = 5

        def untyped(x):
            return x
    """,
    "tools.py": "def half(x):\n    return x // 2",
    "pack/__init__.py": "def top(x: int) -> int:\n    return x",
    "pack/inner.py": "from . import top\n\ndef twice(x: int) -> int:\n    return 2 * top(x)",
    "udfs/own.py": """
        from sqlstream import udf

        @udf(name='other', deterministic=False)
        def marked(x: int) -> int:
            return x
    """,
    "broken.py": "import nothing_of_that_name",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    import textwrap

    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


@pytest.fixture
def compiler(project: Path) -> Iterator[Compiler]:
    found = Compiler(project=str(project))
    yield found
    found.close()


def create(compiler: Compiler, sql: str) -> None:
    compiler.scripts([SourceText("s.sql", sql)])


@pytest.mark.parametrize(
    ("reference", "parameters", "deterministic"),
    [
        ("geo.distance", ("BIGINT", "BIGINT"), True),
        ("geo.Shift", ("BIGINT",), True),
        ("pack.top", ("BIGINT",), True),
        ("pack.inner.twice", ("BIGINT",), True),
        ("own.marked", ("BIGINT",), False),
        ("udfs.own.marked", ("BIGINT",), False),
    ],
)
def test_where_functions_are_found(
    compiler: Compiler, reference: str, parameters: tuple[str, ...], deterministic: bool
) -> None:
    create(compiler, f"CREATE FUNCTION made AS '{reference}' LANGUAGE PYTHON")
    function = compiler.catalog.function("MADE")
    assert function is not None
    assert (function.name, function.parameters, function.deterministic) == ("made", parameters, deterministic)


def test_an_installed_package(compiler: Compiler) -> None:
    create(compiler, "CREATE FUNCTION made AS 'sqlstream.duck.sql.quote_name' LANGUAGE PYTHON")
    assert compiler.catalog.functions["made"].returns == "VARCHAR"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing.f", 'module "nothing" does not exist'),
        ("pack.nothing.f", 'module "pack.nothing" does not exist'),
        ("geo.distanse", 'module "geo" has no "distanse"'),
        ("geo", '"geo" is not the name of a module and of what is in it'),
        ("geo.WRONG", "5 is not a Python function"),
        ("os.getpid", "'getpid' is not a Python function"),
        ("broken.f", "broken.py cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("geo.untyped", 'parameter "x" of function "untyped" has no type hint'),
    ],
)
def test_references_that_do_not_work(compiler: Compiler, reference: str, message: str) -> None:
    with pytest.raises(SqlStreamError) as caught:
        create(compiler, f"CREATE FUNCTION f AS '{reference}' LANGUAGE PYTHON")
    assert caught.value.message == message
    assert caught.value.span is not None


def test_a_near_miss_is_suggested_at_its_place(compiler: Compiler) -> None:
    with pytest.raises(SqlStreamError) as caught:
        create(compiler, "CREATE FUNCTION f AS 'geo.distanse' LANGUAGE PYTHON")
    assert caught.value.render().splitlines()[1:] == [
        "  --> s.sql:1:22",
        "   |",
        " 1 | CREATE FUNCTION f AS 'geo.distanse' LANGUAGE PYTHON",
        "   |                      ^^^^^^^^^^^^^^",
        'hint: did you mean "distance"?',
    ]


def test_names(compiler: Compiler) -> None:
    create(compiler, "CREATE FUNCTION f AS 'geo.distance' LANGUAGE PYTHON")
    create(compiler, "CREATE FUNCTION f AS 'geo.distance' LANGUAGE PYTHON")
    create(compiler, "CREATE FUNCTION IF NOT EXISTS f AS 'geo.Shift' LANGUAGE PYTHON")
    with pytest.raises(BindError, match=r'function "f" exists already, from geo\.py:4'):
        create(compiler, "CREATE FUNCTION f AS 'geo.Shift' LANGUAGE PYTHON")
    with pytest.raises(BindError, match='"upper" is the name of a scalar function of SQL'):
        create(compiler, "CREATE FUNCTION upper AS 'geo.distance' LANGUAGE PYTHON")
    create(compiler, "DROP FUNCTION f; DROP FUNCTION IF EXISTS f; CREATE FUNCTION f AS 'geo.Shift' LANGUAGE PYTHON")
    with pytest.raises(BindError, match='function "g" does not exist'):
        create(compiler, "DROP FUNCTION g")


def test_a_dropped_function_is_gone_and_jobs_keep_theirs(compiler: Compiler) -> None:
    table = "CREATE TABLE t (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');"
    script = f"{table} CREATE FUNCTION f AS 'geo.Shift' LANGUAGE PYTHON; SELECT f(x) FROM t; DROP FUNCTION f"
    [job] = jobs_of(compiler.scripts([SourceText("s.sql", script)]))
    assert [function.name for function in job.functions] == ["f"]
    with pytest.raises(BindError, match='function "f" does not exist'):
        create(compiler, "SELECT f(x) FROM t")


def test_in_a_catalog_file_and_in_queries(project: Path) -> None:
    (project / "catalog").mkdir()
    (project / "catalog" / "f.sql").write_text("CREATE FUNCTION apart AS 'geo.distance' LANGUAGE PYTHON;")
    (project / "warehouse").mkdir()
    place = Project(str(project), str(project / "warehouse"))
    compiler = Compiler(project=str(project))
    load_project(place, compiler)
    assert sorted(compiler.catalog.functions) == ["apart", "other"]
    compiler.close()
    assert open_project_query(place, "SELECT apart(10), apart(b => 4, a => 10)").fetchall() == [(5, 3)]
