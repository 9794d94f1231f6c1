"""Classes as functions: one instance per process and job, opened when it is first called, closed when the job is let go."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sqlstream import Session, functions
from sqlstream.catalog import Function
from sqlstream.errors import BindError, JobError
from sqlstream.functions import pickling, udf
from sqlstream.functions.invocation import Call
from sqlstream.testing import Stream
from tests.kinds import of_type

FILES = """
from pathlib import Path
from sqlstream import udf

LOG = Path({log!r})

def log(text):
    with LOG.open("a") as file:
        file.write(text + "\\n")

@udf
class Lookup:
    def open(self):
        log("open")
        self.places = {{"FRA": "Frankfurt"}}

    def __call__(self, code: str, otherwise: str = "nowhere") -> str:
        return self.places.get(code, otherwise)

    def close(self):
        log("close")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "places.py").write_text(FILES.format(log=str(tmp_path / "log")))
    return tmp_path / "log"


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_one_instance_for_all_rows_of_a_connection(log: Path) -> None:
    made = functions.load(str(log.parent / "udfs"))
    assert [(f.name, f.parameters, f.returns) for f in (of_type(Function, f) for f in made)] == [
        ("Lookup", ("VARCHAR", "VARCHAR"), "VARCHAR")
    ]
    with duckdb.connect(config={"threads": 1}) as con:
        registered = functions.register(con, made)
        assert lines(log) == []
        rows = "(VALUES ('FRA'), ('X'), (NULL)) AS t(v)"
        assert con.execute(f"SELECT lookup(v, '?') FROM {rows}").fetchall() == [("Frankfurt",), ("?",), (None,)]
        con.execute("SELECT lookup(v, '?') FROM range(10000) AS r(i), (VALUES ('FRA')) AS t(v)").fetchall()
        assert lines(log) == ["open"]
        registered.close()
        assert lines(log) == ["open", "close"]
        registered.close()
    assert lines(log) == ["open", "close"]


def test_nobody_closes_what_was_not_opened(log: Path) -> None:
    with duckdb.connect() as con:
        functions.register(con, functions.load(str(log.parent / "udfs"))).close()
    assert lines(log) == []


def test_in_a_job(log: Path) -> None:
    class Next:
        def eval(self, x: int) -> int:
            return x + 1

    script = "CREATE TABLE t (v STRING, x BIGINT)"
    with Stream(script, functions=[Next]) as stream:
        stream.compiler.add_functions(functions.load(str(log.parent / "udfs")))
        stream.script("SELECT Next(x), Lookup(v), Lookup(v, otherwise => '?') FROM t")
        stream.batch("t", [("FRA", 1)])
        stream.batch("t", [("X", 2), ("Y", 3)])
        expected = [(2, "Frankfurt", "Frankfurt"), (3, "nowhere", "?"), (4, "nowhere", "?")]
        assert sorted(stream.rows("result")) == expected
        assert lines(log) == ["open"]
        stream.restart()
        assert lines(log) == ["open", "close"]
        stream.batch("t", [("FRA", 1)])
        assert lines(log)[2:] == ["open"]
    assert lines(log)[3:] == ["close"]


def test_registered_in_a_session(tmp_path: Path) -> None:
    class Greeting:
        def open(self) -> None:
            self.word = "hello"

        def __call__(self, name: str, end: str = "!") -> str:
            return f"{self.word} {name}{end}"

    def plus(x: pa.Int64Array) -> pa.Int64Array:
        return pc.add(x, 1)

    (tmp_path / "warehouse").mkdir()
    with Session(str(tmp_path)) as session:
        session.register(Greeting)
        session.register(plus, vectorized=True)
        assert session.query("SELECT greeting('you'), plus(1)").fetchall() == [("hello you!", 2)]


QUERY = """
import sys
from sqlstream.project import Project
from sqlstream.session.project_query import open_project_query

project = Project(sys.argv[1], sys.argv[1] + "/warehouse")
print(open_project_query(project, "SELECT lookup('FRA')").fetchall())
"""


@pytest.mark.slow
def test_a_state_query_closes_what_it_opened(log: Path) -> None:
    (log.parent / "warehouse").mkdir()
    done = subprocess.run([sys.executable, "-c", QUERY, str(log.parent)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[('Frankfurt',)]\n", "")
    assert lines(log) == ["open", "close"]


def test_over_arrays() -> None:
    @udf(vectorized=True)
    class Shifted:
        def open(self) -> None:
            self.by = 5

        def __call__(self, x: pa.Int64Array) -> pa.Int64Array:
            return pc.add(x, self.by)

    with duckdb.connect() as con:
        functions.register(con, [functions.declare(Shifted)])
        assert con.execute("SELECT Shifted(x) FROM (VALUES (1), (NULL)) AS t(x)").fetchall() == [(6,), (None,)]


def test_errors_of_open_and_close() -> None:
    class Closed:
        def open(self) -> None:
            raise OSError("no such host")

        def __call__(self, x: int) -> int:
            return x

    class Stuck:
        def __call__(self, x: int) -> int:
            return x

        def close(self) -> None:
            raise OSError("still in use")

    with duckdb.connect() as con:
        registered = functions.register(con, [functions.declare(Closed), functions.declare(Stuck)])
        with pytest.raises(duckdb.Error) as caught:
            con.execute("SELECT Closed(1)").fetchall()
        error = functions.recover(caught.value)
        assert error is not None
        assert error.message == 'function "Closed" could not be opened, it raised OSError: no such host'
        assert error.detail is not None
        assert "test_resources.py:" in error.detail
        con.execute("SELECT Stuck(1)").fetchall()
        with pytest.raises(JobError, match='"Stuck" could not be closed, it raised OSError: still in use'):
            registered.close()


def test_a_class_without_a_method_to_call() -> None:
    class Nothing:
        pass

    with pytest.raises(BindError, match='class "Nothing" has no method __call__ or eval'):
        functions.declare(Nothing)


def test_a_class_stays_as_it_is_where_a_copy_of_it_runs() -> None:
    declared = functions.declare(Renamed)
    method = Renamed.__call__
    assert isinstance(pickling.unpack("renamed", declared.pickled), Call)
    assert Renamed.__call__ is method
    # Its hints name what its code does not.
    assert functions.declare(Renamed).pickled == declared.pickled


@dataclass
class Named:
    name: str


class Renamed:
    def __call__(self, x: int) -> list[Named]:
        return []
