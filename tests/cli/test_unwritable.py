"""Commands on a warehouse that their user must not write: what reads it works and writes nothing, what would write says so."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import run_command
from tests.forked import Forked, run_python
from tests.processes import kill_group
from tests.proof.scenarios.runs import ScenarioProject
from tests.proof.scenarios.work import WINDOWS
from tests.users import OTHER, home, unwritable

pytestmark = pytest.mark.slow

READS = (
    ("jobs",),
    ("savepoints",),
    ("check",),
    ("verify", "job"),
    ("diff", "job.w", "0", "1"),
    ("why", "job.w", "0"),
    ("query", "SELECT * FROM out"),
    ("query", "SELECT * FROM state.job.w AT (VERSION => 0)"),
    ("query", "SELECT * FROM savepoint.first.w"),
    ("query", "SHOW ALL TABLES"),
    ("query", "FROM sqlstream.operators"),
    ("query", "SELECT count(*) FROM t"),
    ("explain", "job.sql"),
    ("explain", "--batch", "job", "job.sql"),
    ("explain", "--against", "job", "job.sql"),
    ("run", "-e", "SHOW JOBS"),
    ("run", "-e", "DESCRIBE STATE job.w"),
    ("shell", "-c", "SELECT count(*) FROM out", "-c", "SHOW SAVEPOINTS"),
    ("savepoint", "job", "--to", "../elsewhere/saved"),
)
IN_PYTHON = """
from sqlstream import Session

with Session() as session:
    print(session.query("SELECT count(*) > 0 FROM state.job.w").fetchall())
    print(session.sql("SHOW JOBS").fetchall()[0][0])
    print(len(session.why("job.w", 0).fetchall()) > 0, bool(session.verify("job")))
    print([one.damaged for one in session.check()])
"""
WRITES = (
    ("run", "job.sql"),
    ("run", "job.sql", "--fresh"),
    ("run", "other.sql", "--upgrade", "--yes"),
    ("run", "job.sql", "--from", "first"),
    ("run", "job.sql", "--from", "first", "--as", "fork"),
    ("run", "-e", "CREATE TABLE x (a INT); INSERT INTO x VALUES (1)"),
    ("run", "-e", "SELECT k FROM t"),
    ("run", "-e", "CREATE SAVEPOINT second FOR JOB job"),
    ("run", "-e", "DROP SAVEPOINT first"),
    ("run", "-e", "CREATE STATE CHECK few ON job.w AS (SELECT k FROM state.job.w WHERE n < 0)"),
    ("shell", "-c", "CREATE TABLE x (a INT)", "-c", "INSERT INTO x VALUES (1)"),
    ("stop", "job"),
    ("stop", "--all", "--savepoint"),
    ("stop", "job", "--drain"),
    ("savepoint", "job"),
    ("savepoint", "job", "second"),
    ("drop", "job"),
    ("drop", "--savepoint", "first"),
)


class Live:
    """A project with a job that runs, and has a savepoint; commands run as a user who must not write everywhere."""

    def __init__(self, folder: Path):
        self.project = ScenarioProject(folder / "project", WINDOWS, 1)
        self.warehouse = self.project.folder / "warehouse"
        self.project.write("other.sql", WINDOWS.text(form=" + 1"))
        (self.project.folder / "catalog").mkdir()
        table = WINDOWS.script.partition(";")[0]
        (self.project.folder / "catalog" / "t.sql").write_text(f"{table};\n")
        self.environment = home(folder / "other")
        self.process: Forked = self.project.start_job()
        self.project.await_batches(self.process, 3)
        self.project.run("savepoint", "job", "first")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(self.project.folder, *arguments, environment=self.environment, user=OTHER)

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the files of the warehouse, with their sizes and times."""
        seen = ((path, path.stat()) for path in sorted(self.warehouse.rglob("*")))
        return {str(path): (status.st_size, status.st_mtime_ns) for path, status in seen}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    (tmp_path / "elsewhere").mkdir(mode=0o777)
    os.chmod(tmp_path / "elsewhere", 0o777)
    one = Live(tmp_path)
    yield one
    if one.process.poll() is None:
        kill_group(one.process)


def test_what_reads_works_and_writes_nothing(live: Live) -> None:
    live.project.run("stop", "job")
    before = live.files()
    with unwritable(live.warehouse):
        for arguments in READS:
            done = live.command(*arguments)
            assert done.returncode == 0, (arguments, done.stderr)
            assert done.stdout or done.stderr
        (live.project.folder / "program.py").write_text(IN_PYTHON)
        done = run_python("program.py", cwd=live.project.folder, environment=live.environment, user=OTHER)
        assert (done.stdout, done.stderr) == ("[(True,)]\njob\nTrue True\n[()]\n", "")
    assert live.files() == before


@pytest.mark.thorough
def test_what_reads_works_while_another_user_s_job_writes(live: Live) -> None:
    version = live.project.version()
    for arguments in READS[:9]:
        live.project.rows.put()
        done = live.command(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    live.project.await_batches(live.process)
    assert live.project.version() > version
    assert "RUNNING" in live.command("jobs").stdout
    assert OTHER not in {path.stat().st_uid for path in live.warehouse.rglob("*")} or OTHER is None


def test_what_would_write_says_that_it_cannot_and_does_nothing(live: Live) -> None:
    warehouse, paths = live.project.warehouse, live.project.warehouse.job("job")
    with unwritable(live.warehouse):
        for arguments in WRITES:
            done = live.command(*arguments)
            assert done.returncode == 2, (arguments, done.stdout, done.stderr)
            assert f'the folder "{live.warehouse}' in done.stderr, (arguments, done.stderr)
            assert '" cannot be written' in done.stderr
            assert "hint: Run it as a user who may write there" in done.stderr
            assert "Traceback" not in done.stderr
        assert (warehouse.jobs(), warehouse.tables(), warehouse.savepoints()) == (["job"], ["out"], ["first"])
        assert not warehouse.fs.exists(paths.stop)
        assert [one.suffix for one in (live.warehouse / "sessions").iterdir()] == [".lock"]
    live.project.rows.put()
    live.project.await_batches(live.process)
    kill_group(live.process)
    live.project.finish()
    live.project.check()


def test_damage_is_shown_and_not_repaired(live: Live) -> None:
    live.project.run("stop", "job")
    live.project.run("savepoint", "job", "last")
    [cut, *_] = (live.warehouse / "savepoints" / "last" / "jobs" / "job" / "state").rglob("*.parquet")
    # The job has the same file.
    cut.write_bytes(cut.read_bytes()[:-1])
    before = live.files()
    with unwritable(live.warehouse):
        done = live.command("check", "--repair")
        assert done.returncode == 1
        assert done.stdout.count('" cannot be written') >= 2, done.stdout
        assert "Traceback" not in done.stderr
    assert live.files() == before


def test_a_project_without_a_warehouse_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "project" / "catalog").mkdir(parents=True)
    with unwritable(tmp_path / "project"):
        done = run_command(
            tmp_path / "project", "run", "-e", "SHOW JOBS", environment=home(tmp_path / "other"), user=OTHER
        )
    assert done.returncode == 2
    assert "error: there is no warehouse at" in done.stderr


UNREADABLE = """
import sys

from sqlstream.project import find_project
from sqlstream.errors import SqlStreamError
from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.users import OTHER, become

if OTHER is not None:
    become(OTHER, reads=False)
for ask in (
    lambda: find_project(sys.argv[1], None),
    lambda: open_query(Warehouse(sys.argv[1] + "/warehouse"), "FROM sqlstream.jobs"),
    lambda: find_project(None, None),
):
    try:
        ask()
    except SqlStreamError as error:
        print(error.message)
"""


def test_a_project_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    project = tmp_path / "alice" / "project"
    (project / "catalog").mkdir(parents=True)
    (tmp_path / "program.py").write_text(UNREADABLE)
    (tmp_path / "alice").chmod(0)
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o777)
        environment = {**os.environ, "TMPDIR": temporary}
        done = run_python("program.py", str(project), cwd=tmp_path, environment=environment)
    (tmp_path / "alice").chmod(0o700)
    named = f'no permission to use "{project}"\nno permission to use "{project}/warehouse"\n'
    assert (done.stdout, done.stderr) == (named, "")
