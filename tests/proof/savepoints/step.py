"""One step of a job in a process of its own, which is killed from outside: it says on its standard output how far it has come.

`step.py PROJECT KIND ACTION DELAY TASKS END ENGINE` does an action, and lets the job read all that there is. Its end is `wait`,
after which it goes on, or `finish`, at which its windows are closed. Its engine is `local`, this process, or `spark`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import plan_restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Engine, Layout, Resources
from sqlstream.session.upgrades import upgrade_with
from tests.processes import SECONDS
from tests.proof.savepoints.kinds import Kind, kind_of

# As it is; with the new query that it has by now; the fork that there is by now.
RUN, RUN_NEW, RUN_FORK = "run", "run-new", "run-fork"
WAIT, FINISH = "wait", "finish"
SAVEPOINT, RESTORE, FORK, RESCALE = "savepoint", "restore", "fork", "rescale"
UPGRADE, MIGRATE, REPAIR = "upgrade", "migrate", "repair"
STEPS = (SAVEPOINT, RESTORE, FORK, RESCALE, UPGRADE, MIGRATE, REPAIR)
# What a process says: it begins, the job runs, it has read all.
BEGUN, RUNNING, DONE = "begun", "running", "done"
FIRST, SECOND, FORK_NAME = "first", "second", "job_b"
# The parallelism before and after the step that changes it.
TASKS, MORE_TASKS = 2, 3


LOCAL, SPARK = "local", "spark"


class InProcess(LocalEngine):
    """Jobs in this process, with the state in so many parts as on so many tasks."""

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, tuple(range(partitions)))


def engine_of(session: Session, name: str, tasks: int) -> Engine:
    """Return an engine that is ready: the start of Spark is no part of a step."""
    if name == LOCAL:
        return InProcess()
    session._jobs.spark.prepare(Resources(tasks, {}))
    return session._jobs.spark


def script_of(kind: Kind, action: str, delay: int, end: str) -> str:
    """Return the SQL of the job for an action."""
    if action in (FORK, RUN_FORK):
        name = "job" if action == FORK else FORK_NAME
        return kind.script("old", delay=delay, out="out_b", name=name, end=end)
    return kind.script("new" if action in (UPGRADE, MIGRATE, RUN_NEW) else "old", delay=delay, end=end)


def open_session(folder: Path, tasks: int = TASKS) -> Session:
    """Open a session for jobs on so many tasks; nobody sees its notices."""
    conf = {
        "execution.checkpointing.interval": "0 s",
        "sqlstream.unbounded-state": "allow",
        "parallelism.default": str(tasks),
    }
    return Session(str(folder), conf=conf, notice=list[str]().append)


def start(session: Session, kind: Kind, action: str, delay: int, end: str, engine: Engine) -> Any:
    """Start the job as an action does it, and say that it begins when the SQL is compiled: until then nothing is written."""
    for function in kind.functions:
        session.register(function)
    source = SourceText("script", script_of(kind, action, delay, end))
    savepoint = FIRST if action in (RESTORE, FORK) else None
    compiled, restored = plan_restore(
        session.compile(source), session.warehouse, savepoint, FORK_NAME if action == FORK else None
    )
    [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
    upgrade = Upgrade() if action == UPGRADE else None
    if action in (MIGRATE, REPAIR):
        migrations = SourceText("migrate.sql", (Path(session.project.root) / "migrate.sql").read_text())
        upgrade = upgrade_with(session.project, session.compiler, compiled, migrations)
    restore = restored.get(planned.name)
    say(BEGUN)
    return session._jobs.start(planned, {}, engine=engine, restore=restore, upgrade=upgrade)


def say(word: str) -> None:
    print(word, flush=True)


def main(folder: str, name: str, action: str, delay: str, tasks: str, end: str, engine: str) -> None:
    kind = kind_of(name)
    with open_session(Path(folder), int(tasks)) as session:
        # The functions of DuckDB and of files are loaded now, not while the clock runs.
        session.query("SELECT 1").fetchall()
        job = start(session, kind, action, int(delay), end, engine_of(session, engine, int(tasks)))
        if action == SAVEPOINT:
            take_savepoint(session.warehouse, "job", SECOND)
        say(RUNNING)
        assert job.wait(SECONDS)
        say(DONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
