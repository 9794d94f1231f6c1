"""Kills of upgrades that adapt the state: the jobs of the tests of changed queries, each in processes of its own.

`adapted.py PROJECT CASE PLACE DELAY TASKS END ENGINE` runs the job of a case with its first query (`PLACE` 0) or its second (1)
over the rows that there are. The other arguments are those of `step`; of these it heeds the tasks and the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sqlstream.jobs.upgrades.upgrading import Upgrade
from tests.jobs.upgrades.test_upgraded_kinds import BEFORE, CASES, COLUMNS, LATE, SINCE, Case, answer, planned_job, put
from tests.processes import SECONDS
from tests.proof.savepoints.kills import KilledSteps, Step, differing
from tests.proof.savepoints.step import BEGUN, DONE, LOCAL, RUNNING, engine_of, open_session, say

OLD, NEW = "0", "1"


class AdaptedSteps(KilledSteps):
    """The upgrade of one case."""

    module = "tests.proof.savepoints.adapted"

    def __init__(self, case: Case, folder: Path, seed: int, engine: str = LOCAL):
        super().__init__(case.name, folder, seed, engine)
        self._case = case
        self._since = {**SINCE, "a": [*SINCE["a"], *([LATE] if case.late else [])]}
        self._read = [name for name in COLUMNS if f"CREATE TABLE {name} " in case.tables[0]]

    def base(self, step: Step) -> Path:
        folder = self.folder / "base"
        if not folder.exists():
            folder.mkdir()
            for name in self._read:
                put(folder, name, 0, BEFORE[name])
            self.done(folder, Step(OLD))
        return folder

    def put_last(self, folder: Path) -> None:
        for name in self._read:
            put(folder, name, 1, self._since[name])

    def forget(self, folder: Path, step: Step) -> None:
        """Nothing is read again."""

    def go_on(self, folder: Path, step: Step, found: str | None) -> None:
        # Of a job that has been upgraded it says that nothing has changed.
        self.done(folder, step)

    def wrong(self, folder: Path, step: Step) -> Iterator[str]:
        with open_session(folder) as session:
            rows = sorted(session.query(f"SELECT {self._case.shown} FROM out").fetchall(), key=repr)
        if rows != (expected := answer(self._case, self._since)):
            yield f"out differs: {differing(rows, expected)}"


def main(folder: str, name: str, place: str, _delay: str, tasks: str, _end: str, engine: str) -> None:
    case = next(case for case in CASES if case.name == name)
    with open_session(Path(folder), int(tasks)) as session:
        session.query("SELECT 1").fetchall()
        planned = planned_job(session, case, int(place))
        ready = engine_of(session, engine, int(tasks))
        say(BEGUN)
        job = session._jobs.start(planned, {}, engine=ready, upgrade=Upgrade() if place == NEW else None)
        say(RUNNING)
        assert job.wait(SECONDS)
        say(DONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
