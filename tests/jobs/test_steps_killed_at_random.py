"""A part of `make proof ARGS="--savepoints"`: processes that are killed at random moments in what they do with a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.savepoints.kill_moments import changes, files_of, moment_of
from tests.proof.savepoints.kind_steps import KindSteps, step_of
from tests.proof.savepoints.kinds import kind_of
from tests.proof.savepoints.step import REPAIR, RESTORE, UPGRADE


@pytest.mark.slow
@pytest.mark.thorough
def test_a_job_is_the_old_or_the_new_one_wherever_its_process_is_killed(tmp_path: Path) -> None:
    steps = KindSteps(kind_of("HOP"), tmp_path, seed=7)
    for action in (RESTORE, UPGRADE, REPAIR):
        outcome = steps.kill(step_of(action), kills=1)
        assert (outcome.kills, outcome.faults) == (1, [])


def test_kills_are_spread_over_the_whole_step() -> None:
    # The job runs after 3 s, and has read all after 5 s.
    assert [moment_of(i / 8, 3.0, 5.0) for i in range(9)] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0]


def test_changed_files_are_counted(tmp_path: Path) -> None:
    job, savepoint = (tmp_path / "warehouse" / name for name in ("jobs", "savepoints"))
    for folder in (job, savepoint):
        folder.mkdir(parents=True)
    for path in (job / "stays", job / "changes", job / "goes", tmp_path / "input"):
        path.write_text("")
    before = files_of(tmp_path)
    (job / "other").write_text("")
    (job / "other").replace(job / "changes")
    (job / "goes").unlink()
    (savepoint / "comes").write_text("")
    (tmp_path / "input").unlink()
    found = changes(before, files_of(tmp_path))
    assert sorted(Path(path).name for path in found) == ["changes", "comes", "goes"]
