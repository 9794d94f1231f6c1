"""The kills of all steps of all kinds, and their table."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import click

from tests.jobs.upgrades.test_upgraded_kinds import CASES
from tests.proof.savepoints.adapted import NEW as SECOND_QUERY
from tests.proof.savepoints.adapted import AdaptedSteps
from tests.proof.savepoints.kills import KilledSteps, Step
from tests.proof.savepoints.kind_steps import KindSteps, step_of
from tests.proof.savepoints.kinds import KINDS
from tests.proof.savepoints.step import STEPS


def prove(kills: int, seed: int, only: Collection[str], steps: Collection[str], engine: str) -> bool:
    """Kill each step of each kind so often, print the table, and return whether all was right."""
    folder = Path(tempfile.mkdtemp(prefix="proof-"))
    begun, total, left = time.monotonic(), 0, Counter[str]()
    lines = ["| kind | step | kills | files changed by then | the job was then | result |", "|---|---|---|---|---|---|"]
    faults: list[str] = []
    for trial, step, action in _trials(folder, seed, only, steps, engine):
        outcome = trial.kill(step, kills)
        total += outcome.kills
        left += outcome.left
        found = ", ".join(f"{name} {number}" for name, number in sorted(outcome.left.items()))
        result = "wrong" if outcome.faults else "DuckDB's"
        changed = f"{', '.join(map(str, outcome.changed))} of {outcome.all_changes}"
        lines.append(f"| {trial.name} | {action} | {outcome.kills} | {changed} | {found} | {result} |")
        click.echo(
            f"{time.monotonic() - begun:6.0f} s  {trial.name}, {action}: {outcome.kills} kills "
            f"after {changed} changed files, {found}; {result}"
        )
        for fault in outcome.faults:
            click.echo(f"    {fault}")
        faults += outcome.faults
    click.echo("\n".join(lines))
    found = ", ".join(f"{name} {number}" for name, number in sorted(left.items()))
    click.echo(
        f"seed {seed}: {total} kills in {time.monotonic() - begun:.0f} s; the job was then {found}; {len(faults)} faults"
    )
    if faults:
        click.echo(f"what is left is in {folder}")
    else:
        shutil.rmtree(folder)
    return not faults


def _trials(
    folder: Path, seed: int, only: Collection[str], steps: Collection[str], engine: str
) -> Iterator[tuple[KilledSteps, Step, str]]:
    """Yield jobs with the steps in which they are killed; `only` some kinds, if there are any."""
    for number, kind in enumerate(KINDS):
        if only and kind.name not in only:
            continue
        place = folder / f"kind-{number}"
        place.mkdir()
        trial = KindSteps(kind, place, seed, engine)
        for action in STEPS:
            if not steps or action in steps:
                yield trial, step_of(action), action
    for number, case in enumerate(CASES):
        if (only and case.name not in only) or (steps and "adapt" not in steps):
            continue
        place = folder / f"case-{number}"
        place.mkdir()
        yield AdaptedSteps(case, place, seed, engine), Step(SECOND_QUERY), "adapt"
