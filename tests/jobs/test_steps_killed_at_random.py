"""A part of `make proof ARGS="--savepoints"`: processes that are killed at random moments in what they do with a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.savepoints.kind_steps import KindSteps, step_of
from tests.proof.savepoints.kinds import kind_of
from tests.proof.savepoints.step import REPAIR, RESTORE, UPGRADE


@pytest.mark.slow
def test_a_job_is_the_old_or_the_new_one_wherever_its_process_is_killed(tmp_path: Path) -> None:
    steps = KindSteps(kind_of("HOP"), tmp_path, seed=7)
    for action in (RESTORE, UPGRADE, REPAIR):
        outcome = steps.kill(step_of(action), kills=1)
        assert (outcome.kills, outcome.faults) == (1, [])
