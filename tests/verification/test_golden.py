"""`verify` beside the golden scripts: what their jobs have written is what DuckDB answers over the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.errors import UsageError
from sqlstream.physical.batch import CannotVerify
from tests import golden

SCRIPTS = Path(__file__).parents[1] / "slt"
# Scripts of every kind of operator; each has cases with late rows, restarts, or windows that are open.
NAMES = ("tumble", "row_windows", "window_rank", "window_joins", "interval_joins", "temporal_joins", "over")
# Jobs of these scripts that must be compared: others read what has no batch form, or write what cannot be read.
LEAST = 30


def _jobs(name: str) -> list[str]:
    """Return what became of the jobs of the shorter cases of a script: `ok`, or why they cannot be verified."""
    found = []
    for case in golden.parse(SCRIPTS / f"{name}.slt"):
        if any(record.verb == "slow" for record in case.records):
            continue
        runner = golden.InProcess()
        try:
            for _ in golden.run(case, runner):
                pass
            for job in runner.stream.runs:
                found.append(_verdict(runner, case, job))
        finally:
            runner.close()
    return found


def _verdict(runner: golden.InProcess, case: golden.Case, job: str) -> str:
    try:
        report = runner.stream.verify(job)
    except (CannotVerify, UsageError) as error:
        return error.message
    assert report, f"{case.name}:\n{report}"
    return "ok"


@pytest.mark.slow
def test_jobs_of_golden_scripts_write_the_batch_answer() -> None:
    verdicts = [verdict for name in NAMES for verdict in _jobs(name)]
    assert verdicts.count("ok") >= LEAST, verdicts
