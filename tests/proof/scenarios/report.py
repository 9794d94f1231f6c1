"""Runs scenarios, one after the other, and prints their table."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import click

from tests.forked import kill_left
from tests.proof.scenarios.runs import ScenarioProject
from tests.proof.scenarios.trials import SCENARIOS


def prove_scenarios(kills: int, seed: int, names: Collection[str], engine: str) -> bool:
    """Run some scenarios with so many kills each; return whether all was right."""
    lines = ["| scenario | kills | of these with rows left | seconds | result |", "|---|---|---|---|---|"]
    wrong = False
    for name in names:
        work, trial = SCENARIOS[name]
        folder = Path(tempfile.mkdtemp(prefix="proof-"))
        project = ScenarioProject(folder / name, work, seed, engine)
        begun = time.monotonic()
        try:
            result = trial(project, kills)
            project.check_files()
        except (Exception, AssertionError) as error:
            wrong = True
            result = f"WRONG: {error}, in {folder}"
        else:
            shutil.rmtree(folder)
        finally:
            kill_left()
        lines.append(f"| {name} | {project.kills} | {project.busy} | {time.monotonic() - begun:.0f} | {result} |")
        click.echo(lines[-1])
    click.echo("\n".join(lines))
    return not wrong
