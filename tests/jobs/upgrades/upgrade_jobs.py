"""How a job is run, upgraded and looked at in this process, for the tests of changed queries."""

from __future__ import annotations

from pathlib import Path

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.restore_plans import plan_restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from tests.jobs.savepoint_jobs import Rows, open_session, wait_until_done
from tests.processes import SECONDS


def go_on(
    folder: Path,
    script: str,
    rows: Rows,
    *,
    upgrade: bool = False,
    savepoint: str | None = None,
    name: str | None = None,
    notices: list[str] | None = None,
) -> None:
    """Run the job of a script until it has read some rows in all, and stop it."""
    with open_session(folder, notices) as session:
        run_in(session, script, rows, upgrade=upgrade, savepoint=savepoint, name=name)


def run_in(
    session: Session,
    script: str,
    rows: Rows,
    *,
    upgrade: bool = False,
    savepoint: str | None = None,
    name: str | None = None,
    mark: int | None = None,
) -> None:
    """Run the job of a script in a session; `mark` is the second of its last watermark, if not that of the rows."""
    compiled, restored = plan_restore(session.compile(SourceText("script", script)), session.warehouse, savepoint, name)
    [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
    job = session._jobs.start(
        planned,
        {},
        engine=LocalEngine(),
        restore=restored.get(planned.name),
        upgrade=Upgrade() if upgrade else None,
    )
    wait_until_done(session, job, rows, mark=mark)
    job.stop()
    assert job.wait(SECONDS)


def rows_of(folder: Path, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of a query over state and tables, sorted."""
    with open_session(folder) as session:
        return sorted(session.query(sql).fetchall(), key=repr)
