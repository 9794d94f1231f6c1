"""Processes killed in the middle of their work, once in each scenario of `make proof` that is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.savepoints.step import LOCAL
from tests.proof.scenarios.runs import ProofError, ScenarioProject
from tests.proof.scenarios.trials import SCENARIOS

# What others show, too: a second kind of file, a function above windows, a job that follows the clock.
MORE = ("function", "duckdb", "clock")


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        "changes",
        "arrival",
        "sqlite",
        "drain",
        "starts",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in MORE),
    ],
)
def test_a_kill_after_a_batch_changes_nothing(name: str, tmp_path: Path) -> None:
    work, trial = SCENARIOS[name]
    project = ScenarioProject(tmp_path / name, work, 1, LOCAL)
    trial(project, 1)
    project.check_files()
    assert project.kills == 1


def test_a_lost_row_is_noticed(tmp_path: Path) -> None:
    work, _ = SCENARIOS["clock"]
    project = ScenarioProject(tmp_path / "project", work, 1, LOCAL)
    project.rows.put(2)
    answers = project.rows.answers(work)
    project.check(read=lambda sql: answers[sql.replace("FROM out", "FROM {out}")])
    with pytest.raises(ProofError, match="rows in the place of"):
        project.check(read=lambda sql: answers[sql.replace("FROM out", "FROM {out}")][1:])
