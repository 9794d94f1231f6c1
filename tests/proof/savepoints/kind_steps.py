"""All steps of a job of each kind of operator, killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sqlstream import Session
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.warehouse.savepoint_records import find_savepoint
from tests.proof.savepoints.kills import FURTHER, HALF, NEW, NOTHING, KilledSteps, Step, differing
from tests.proof.savepoints.kinds import STAGES, WAITING, Kind, answer, rows_of_seed
from tests.proof.savepoints.step import (
    FINISH,
    FIRST,
    FORK,
    FORK_NAME,
    LOCAL,
    MIGRATE,
    MORE_TASKS,
    REPAIR,
    RESCALE,
    RESTORE,
    RUN,
    RUN_FORK,
    RUN_NEW,
    SAVEPOINT,
    SECOND,
    TASKS,
    UPGRADE,
    open_session,
)

_DOUBLED = re.compile(r"[xy](_1)?")


def step_of(action: str) -> Step:
    """Return the step of an action: numbers are doubled in the state as long as nothing was emitted of them."""
    return Step(
        action,
        WAITING if action in (MIGRATE, REPAIR) else 0,
        MORE_TASKS if action == RESCALE else TASKS,
        FORK_NAME if action == FORK else "job",
    )


class KindSteps(KilledSteps):
    """The steps of a job of one kind."""

    module = "tests.proof.savepoints.step"

    def __init__(self, kind: Kind, folder: Path, seed: int, engine: str = LOCAL):
        super().__init__(kind.name, folder, seed, engine)
        self._kind = kind
        self._rows = rows_of_seed(self.random.randrange(1 << 30), mixed=kind.mixed)
        self._bases: dict[int, Path] = {}

    def base(self, step: Step) -> Path:
        if step.delay not in self._bases:
            folder = self.folder / f"base-{step.delay}"
            folder.mkdir()
            run = Step(RUN, step.delay)
            for stage in range(STAGES - 1):
                self._rows.put(folder, self._kind.reads, stage)
                self.done(folder, run)
                if stage == 0:
                    with open_session(folder) as session:
                        take_savepoint(session.warehouse, "job", FIRST)
            with open_session(folder) as session:
                (folder / "migrate.sql").write_text(migrations(session, self._kind))
            self._bases[step.delay] = folder
        return self._bases[step.delay]

    def put_last(self, folder: Path) -> None:
        self._rows.put(folder, self._kind.reads, STAGES - 1)

    def forget(self, folder: Path, step: Step) -> None:
        if step.action in (RESTORE, FORK):
            for name in self._kind.reads:
                (folder / name / "1.json").unlink()

    def go_on(self, folder: Path, step: Step, found: str | None) -> None:
        action = step.action
        if action == SAVEPOINT:
            with open_session(folder) as session:
                if SECOND not in session.warehouse.savepoints():
                    take_savepoint(session.warehouse, "job", SECOND)
            action = RUN
        elif action == REPAIR and found in (HALF, NEW, FURTHER):
            # A second time it would count twice.
            action = RUN
        elif action == MIGRATE and found in (HALF, NEW, FURTHER):
            action = RUN_NEW
        elif action == FORK and found not in (HALF, NOTHING):
            # A fork may hold what the first job does.
            action = RUN_FORK
        self.done(folder, replace(step, action=action, end=FINISH))
        if step.action == FORK:
            self.done(folder, replace(step, action=RUN, end=FINISH))

    def since(self, base: Path, step: Step) -> int:
        """Return the first version that a job may have after a step."""
        with open_session(base) as session:
            if step.action in (RESTORE, FORK):
                return find_savepoint(session.warehouse, FIRST).record.version
            return super().since(base, step)

    def wrong(self, folder: Path, step: Step) -> Iterator[str]:
        is_changed, is_doubled = step.action in (UPGRADE, MIGRATE), step.action in (MIGRATE, REPAIR)
        expected = answer(self._kind, self._rows, changed=is_changed, doubled=is_doubled)
        with open_session(folder) as session:
            for table in ("out", "out_b") if step.action == FORK else ("out",):
                rows = sorted(session.query(f"FROM {table}").fetchall(), key=repr)
                if rows != expected:
                    yield f"{table} differs: {differing(rows, expected)}"
            if step.action == SAVEPOINT:
                session.query(f"FROM out AT (SAVEPOINT => '{SECOND}')").fetchall()


def migrations(session: Session, kind: Kind) -> str:
    """Return statements that make the state of a job anew, with its numbers doubled where the kind says so."""
    tables: dict[tuple[str, str], list[str]] = {}
    for operator, table, column, *_ in session.query("DESCRIBE STATE job").fetchall():
        tables.setdefault((operator, table), []).append(column)
    statements = []
    for (operator, table), columns in tables.items():
        if table == "keys" or table.startswith("keys_"):
            continue
        made = ", ".join(f'2 * "{c}" AS "{c}"' for c in columns if kind.doubles and _DOUBLED.fullmatch(c))
        shown = f"* REPLACE ({made})" if made else "*"
        statements.append(f'MIGRATE STATE job."{operator}"."{table}" AS SELECT {shown} FROM "{operator}"."{table}";')
    return "\n".join(statements)
