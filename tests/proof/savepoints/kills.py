"""Kills processes in a step of a job at random moments, and judges what they leave and what becomes of the job."""

from __future__ import annotations

import os
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sqlstream import Session, SqlStreamError
from sqlstream.jobs.file_checks import check_savepoints
from sqlstream.warehouse.commits import last_committed
from tests.forked import Forked, start_python
from tests.processes import SECONDS
from tests.proof.savepoints.kill_moments import Files, Moment, changes, files_of, moment_of
from tests.proof.savepoints.step import BEGUN, DONE, FORK_NAME, LOCAL, RUNNING, TASKS, WAIT, open_session

# The rows that a job has written, and those of the views of its state.
Content = tuple[object, ...]
Row = tuple[object, ...]
# What a job is after a kill: as before the step, half laid out, not there, as after the step, or further.
OLD, HALF, NOTHING, NEW, FURTHER = "old", "half", "nothing", "new", "further"
# So many processes are started for each kill: some end before it.
_TRIES = 6


@dataclass(frozen=True)
class Step:
    """What a process does: an action on so many tasks, with a watermark that waits so many seconds; `job` comes of it."""

    action: str
    delay: int = 0
    tasks: int = TASKS
    job: str = "job"
    end: str = WAIT


@dataclass
class Outcome:
    """How many kills of a step there were, what the job was after them, and what is wrong.

    `changed` has how many files had come, gone or changed at each kill; at the end of the step it is `all_changes`.
    """

    kills: int = 0
    left: Counter[str] = field(default_factory=Counter)
    changed: list[int] = field(default_factory=list)
    all_changes: int = 0
    faults: list[str] = field(default_factory=list)


class StepError(Exception):
    """A step failed that nobody killed."""


class KilledSteps(ABC):
    """The steps of one job, in a folder of its own, on an engine; `module` is the program that does them."""

    module: str

    def __init__(self, name: str, folder: Path, seed: int, engine: str = LOCAL):
        self.name, self.folder, self.engine = name, folder, engine
        self.random = random.Random(f"{seed} {name}")
        self._numbers = count()

    @abstractmethod
    def base(self, step: Step) -> Path:
        """Return a project with the job before a step."""

    @abstractmethod
    def put_last(self, folder: Path) -> None:
        """Write the rows that come with a step, or after it."""

    @abstractmethod
    def forget(self, folder: Path, step: Step) -> None:
        """Take away rows that the job had read, and reads again after a step."""

    @abstractmethod
    def go_on(self, folder: Path, step: Step, found: str | None) -> None:
        """Do what a user does after a kill, and let the job read all that there is."""

    @abstractmethod
    def wrong(self, folder: Path, step: Step) -> Iterator[str]:
        """Yield where results are not DuckDB's."""

    def kill(self, step: Step, kills: int) -> Outcome:
        """Kill processes in a step so often, each in a copy of the job, and let it go on each time."""
        outcome = Outcome()
        try:
            self._kill(step, kills, outcome)
        except StepError as error:
            outcome.faults.append(str(error))
        return outcome

    def _kill(self, step: Step, kills: int, outcome: Outcome) -> None:
        base = self.base(step)
        allowed, until_running, until_done = self._measured(base, step, outcome)
        for _ in range(kills * _TRIES):
            if outcome.kills == kills:
                return
            folder = self._copy(base)
            self.put_last(folder)
            before = files_of(folder)
            # Each kill has a part of the step of its own. All that is left of a process is files, and many may change in little
            # time, so half of the kills go by these.
            part = (outcome.kills + self.random.random()) / kills
            seconds = moment_of(part, until_running, until_done)
            moment = Moment(seconds, round(part * outcome.all_changes) if self.random.random() < 0.5 else None)
            faults: list[str] = []
            if self._killed(folder, step, moment, before):
                outcome.kills += 1
                outcome.changed.append(len(changes(before, files_of(folder))))
                faults = [f"{moment}, {folder}: {fault}" for fault in self._judged(folder, step, allowed, outcome)]
                outcome.faults += faults
            if not faults:
                shutil.rmtree(folder)
        if outcome.kills < kills:
            outcome.faults.append(f"only {outcome.kills} of {kills} processes died before they had ended")

    def _copy(self, base: Path) -> Path:
        folder = self.folder / str(next(self._numbers))
        # Files of a warehouse never change in their place.
        shutil.copytree(base, folder, copy_function=os.link)
        return folder

    def since(self, base: Path, step: Step) -> int:
        """Return the first version that a job may have after a step."""
        with open_session(base) as session:
            found = last_committed(session.warehouse.fs, session.warehouse.job("job"))
            assert found is not None
            return found

    def _measured(self, base: Path, step: Step, outcome: Outcome) -> tuple[dict[str, list[Content]], float, float]:
        """Return what a job may hold after a kill, and how long the step takes until the job runs, and until its end."""
        since = self.since(base, step)
        folder = self._copy(base)
        self.forget(folder, step)
        self.done(folder, step)
        whole = self._copy(base)
        self.put_last(whole)
        before = files_of(whole)
        times = self._timed(whole, step)
        outcome.all_changes = len(changes(before, files_of(whole)))
        allowed = {
            OLD: [content(base, "job")],
            NEW: contents(folder, step.job, since),
            FURTHER: contents(whole, step.job, since),
        }
        for one in (folder, whole):
            shutil.rmtree(one)
        return allowed, *times

    def _judged(self, folder: Path, step: Step, allowed: dict[str, list[Content]], outcome: Outcome) -> Iterator[str]:
        """Yield what is wrong with what a killed process left, and with what becomes of the job then."""
        found = left(folder, step.job, allowed)
        outcome.left[found or "something else"] += 1
        if found is None:
            yield f"the job is neither the old nor the new one: {content(folder, step.job)}"
        if step.job != "job" and content(folder, "job") not in allowed[OLD]:
            yield "the job that was forked is another one"
        try:
            self.go_on(folder, step, found)
        except StepError as error:
            yield str(error)
            return
        yield from self.wrong(folder, step)
        yield from damage(folder)

    # -- processes

    def _start(self, folder: Path, step: Step) -> Forked:
        words = (str(folder), self.name, step.action, str(step.delay), str(step.tasks), step.end, self.engine)
        return start_python("-m", self.module, *words)

    def done(self, folder: Path, step: Step) -> None:
        """Do a step to its end. Raises StepError."""
        process = self._start(folder, step)
        said, _ = process.communicate(timeout=SECONDS)
        if process.returncode != 0:
            raise StepError(f"{step.action}: {said[-4000:]}")

    def _timed(self, folder: Path, step: Step) -> tuple[float, float]:
        """Do a step to its end; return after how many seconds the job ran, and after how many it had read all."""
        process = self._start(folder, step)
        assert process.stdout is not None
        moments, said = {}, []
        for line in process.stdout:
            said.append(line)
            moments[line.strip()] = time.monotonic()
        if process.wait(SECONDS) != 0 or DONE not in moments:
            raise StepError(f"{step.action}: {''.join(said)[-4000:]}")
        return moments[RUNNING] - moments[BEGUN], moments[DONE] - moments[BEGUN]

    def _killed(self, folder: Path, step: Step, moment: Moment, before: Files) -> bool:
        """Kill a process at a moment of its step; return whether it died of that."""
        process = self._start(folder, step)
        assert process.stdout is not None
        said = ""
        for line in iter(process.stdout.readline, ""):
            said += line
            if line.strip() == BEGUN:
                moment.wait(process, folder, before)
                process.kill()
                break
        rest, _ = process.communicate(timeout=SECONDS)
        if process.returncode == 0:
            return False
        if process.returncode != -9:
            raise StepError(f"{step.action}: {(said + rest)[-4000:]}")
        return True


def content(folder: Path, job: str) -> Content:
    """Return what a job has written, and what the views of its state show without the columns of the engine."""
    with open_session(folder) as session:
        return _content(session, job, "")


def contents(folder: Path, job: str, since: int) -> list[Content]:
    """Return what a job had at each version from one on."""
    with open_session(folder) as session:
        last = last_committed(session.warehouse.fs, session.warehouse.job(job))
        assert last is not None
        return [_content(session, job, f" AT (VERSION => {version})") for version in range(since, last + 1)]


def _content(session: Session, job: str, at: str) -> Content:
    table = "out_b" if job == FORK_NAME else "out"
    found: list[object] = [in_order(session.query(f"FROM {table}{at}").fetchall())]
    named = f"SELECT operator FROM sqlstream.operators WHERE job = '{job}' ORDER BY ALL"
    for (operator,) in session.query(named).fetchall():
        rows = session.query(f'FROM state.{job}."{operator}"{at}')
        shown = [i for i, name in enumerate(rows.columns) if not name.startswith("_")]
        found.append(in_order([tuple(row[i] for i in shown) for row in rows.fetchall()]))
    return tuple(found)


def in_order(rows: list[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=repr))


def left(folder: Path, job: str, allowed: dict[str, list[Content]]) -> str | None:
    """Return what a job is after a kill, None where it is something else."""
    with open_session(folder) as session:
        fs, paths = session.warehouse.fs, session.warehouse.job(job)
        if last_committed(fs, paths) is None:
            return HALF if fs.exists(paths.restoring) else NOTHING if job == FORK_NAME else None
        try:
            found = _content(session, job, "")
        except SqlStreamError:
            return None
    return next((name for name, held in allowed.items() if found in held), None)


def damage(folder: Path) -> Iterator[str]:
    """Yield what is damaged in a warehouse, and what should have gone."""
    with open_session(folder) as session:
        for checkup in session.check():
            yield from (str(error) for error in checkup.damaged)
        for saved in check_savepoints(session.warehouse, None):
            yield from (str(error) for error in saved.damaged)
    for pattern in ("savepoints/.upgrading-*", "jobs/*/restoring.json"):
        yield from (f"{path} is left" for path in (folder / "warehouse").glob(pattern))


def differing(rows: list[Row], expected: list[Row]) -> str:
    found, wanted = Counter(rows), Counter(expected)
    more, less = (sorted(one.elements(), key=repr)[:5] for one in (found - wanted, wanted - found))
    return f"{more} in the place of {less}"
