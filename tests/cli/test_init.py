"""`sqlstream init` makes a project whose job runs and whose test passes; completion works in bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sqlstream.cli.init import FILES, make_project
from sqlstream.errors import UsageError
from sqlstream.session.session import Session
from tests.command_line import run_command
from tests.shell.in_process import run_in_process


@pytest.mark.slow
def test_a_new_project_runs_and_its_test_passes(tmp_path: Path) -> None:
    made = run_command(tmp_path, "init", "sales")
    assert made.returncode == 0
    assert "cd sales" in made.stdout
    assert "pip install pytest" in made.stdout
    project = tmp_path / "sales"
    assert {str(f.relative_to(project)) for f in project.rglob("*") if f.is_file()} == set(FILES)
    with Session(str(project)) as session:
        run_in_process(session)
        session.sql((project / "revenue.sql").read_text())
        session.wait()
        rows = session.query("SELECT region, orders, total::DOUBLE FROM revenue ORDER BY region").fetchall()
        assert rows == [("east", 2, 32.25), ("west", 1, 35.5)]
        assert session.query("SELECT total::DOUBLE FROM state.revenue.hourly").fetchall() == [(80.0,)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    tested = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


def test_a_folder_with_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_project(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="exists already"):
        make_project(str(tmp_path / "empty"))
    for empty in ("", " "):
        with pytest.raises(UsageError, match="name of the project is empty"):
            make_project(empty)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="exists already"):
        make_project(str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot be written"):
        make_project(str(tmp_path / "file" / "below"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_jobs(tmp_path: Path) -> None:
    (tmp_path / "warehouse" / "jobs" / "departures").mkdir(parents=True)
    script = run_command(tmp_path, "completion", "bash").stdout
    # As Tab does: bash calls the function with the word before, which runs the program.
    asked = (
        "COMPREPLY=(); COMP_WORDS=(sqlstream {}) COMP_CWORD={}; _sqlstream_completion sqlstream; echo ${{COMPREPLY[@]}}"
    )
    lines = [script, asked.format("st", 1), asked.format("stop dep", 2), asked.format("completion f", 2)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["stop", "departures", "fish"]
    for shell in ("zsh", "fish"):
        assert "_SQLSTREAM_COMPLETE" in run_command(tmp_path, "completion", shell).stdout
