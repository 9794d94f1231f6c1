"""Jobs whose warehouse cannot be written any more: they fail and say why, and later go on where they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import Forked, start_python
from tests.processes import SECONDS, wait_until
from tests.proof.scenarios.runs import COMMAND, ScenarioProject
from tests.proof.scenarios.work import CHANGES, WINDOWS, Work
from tests.users import OTHER, home, own, unwritable

pytestmark = pytest.mark.slow

# Runs a job in a session, and once more in the same one when a file is there.
TWICE = """
import time
from pathlib import Path

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.local.engine import LocalEngine

with Session(notice=print) as session:
    [planned] = [one for one in session.compile(SourceText("job", Path("job.sql").read_text())) if isinstance(one, PlannedJob)]
    try:
        session._jobs.start(planned, {}, engine=LocalEngine()).wait()
    except SqlStreamError as error:
        Path("failed.txt").write_text(error.render())
    while not Path("again").exists():
        time.sleep(0.02)
    session._jobs.start(planned, {}, engine=LocalEngine()).wait()
"""


class OtherProject(ScenarioProject):
    """A project whose commands run as a user who must not write everywhere; the warehouse is that user's."""

    def __init__(self, folder: Path, work: Work):
        super().__init__(folder, work, 1)
        self.root = folder / "warehouse"
        self.root.mkdir()
        own(folder)
        self.environment = home(folder.with_name("other"))

    def start(self, *arguments: str) -> Forked:
        return self.start_program(COMMAND, *arguments)

    def start_program(self, *words: str) -> Forked:
        return start_python(*words, cwd=self.folder, environment=self.environment, own_group=True, user=OTHER)


@pytest.mark.parametrize("work", [WINDOWS, CHANGES], ids=["windows", "changes"])
def test_a_job_fails_when_it_cannot_write_any_more_and_goes_on_later(work: Work, tmp_path: Path) -> None:
    project = OtherProject(tmp_path / "project", work)
    process = project.start_job()
    project.await_batches(process)
    with unwritable(project.root):
        project.rows.put(2)
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 1, said
        assert f'job "job" failed: the folder "{project.root}/' in said
        assert '" cannot be written' in said
        assert "hint: Run the job again when that can be written; it continues after its last committed batch." in said
        assert "Traceback" not in said
        version = project.version()
        again = project.start_job()
        said, _ = again.communicate(timeout=SECONDS)
        assert again.returncode == 2, said
        assert "hint: Run it as a user who may write there" in said
        assert project.version() == version
    project.finish()
    project.check()
    project.check_files()
    assert [*(project.root / "sessions").iterdir()] == []


def test_a_session_runs_a_job_again_whose_lock_it_could_not_release(tmp_path: Path) -> None:
    project = OtherProject(tmp_path / "project", WINDOWS)
    script = WINDOWS.text().replace("'format' = 'json'", "'format' = 'json', 'source.monitor-interval' = '20 ms'")
    project.write("job.sql", script)
    project.write("twice.py", TWICE)
    process = project.start_program("twice.py")
    project.await_batches(process)
    with unwritable(project.root):
        project.rows.put(2)
        wait_until(lambda: (project.folder / "failed.txt").exists() or process.poll() is not None)
        assert 'job "job" failed: the folder' in (project.folder / "failed.txt").read_text()
    before = project.version()
    (project.folder / "again").touch()
    wait_until(lambda: project.version() > before or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    process.kill()
    project.write("job.sql", WINDOWS.text())
    project.finish()
    project.check()
