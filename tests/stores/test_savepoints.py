"""Savepoints in an object store: files are copied there, and one goes back, forks, moves and is upgraded as on a disk."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint, take_savepoint
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.leases import _held
from sqlstream.warehouse.stores import StoreFilesystem
from tests.jobs.savepoint_jobs import FIRST, FORK, JOB, SECOND, batch, put, results, rows_of, run_over
from tests.jobs.test_savepoints import KILLED
from tests.jobs.upgrades.test_killed_upgrades import Killed, killed_at
from tests.jobs.upgrades.test_migrated_jobs import go_on as migrate
from tests.jobs.upgrades.test_upgrades import counted, counts
from tests.jobs.upgrades.upgrade_jobs import run_in

pytestmark = pytest.mark.slow


def test_a_savepoint_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    both = [*FIRST, *SECOND]

    def session() -> Session:
        conf = {"execution.checkpointing.interval": "0 s"}
        return Session(str(tmp_path), f"{bucket}/warehouse", conf, notice=lambda text: None)

    put(tmp_path, "a", FIRST)
    with session() as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, "first")
        take_savepoint(s.warehouse, JOB, "copy", f"{bucket}/elsewhere")
        put(tmp_path, "b", SECOND)
        run_over(s, both)
        assert rows_of(s, "SELECT k, n, epoch(last)::BIGINT FROM savepoint.first.by_key") == batch(FIRST)[1]
        run_over(s, both, FORK, restore="first", name="other")
        run_over(s, both, restore=f"{bucket}/elsewhere")
        assert results(s) == results(s, "windows_b", "totals_b") == batch(both)
        assert rows_of(s, "SELECT savepoint FROM sqlstream.savepoints") == [("first",)]
        drop_savepoint(s.warehouse, "first")
        assert not list(s.warehouse.fs.walk(f"{s.warehouse.root}/savepoints"))


REPAIR = "MIGRATE STATE totals.by_key AS SELECT k, n + 100 AS n FROM by_key.partials"


@pytest.mark.thorough
def test_an_upgrade_that_dies_and_a_migration_in_a_bucket(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(warehouse: str | None = f"{bucket}/warehouse") -> Session:
        conf = {"execution.checkpointing.interval": "0 s"}
        return Session(str(tmp_path), warehouse, conf, notice=lambda text: None)

    old, new, state = counted(), counted("WHERE k < 3", " * 10"), "SELECT k, n FROM state.totals.by_key"
    put(tmp_path, "a", FIRST)
    with session() as s:
        run_in(s, old, FIRST)
    put(tmp_path, "b", SECOND)
    both, deaths = [*FIRST, *SECOND], 0
    for step in count(1, 16):
        with session() as s, monkeypatch.context() as patch:
            killed_at(patch, step, StoreFilesystem)
            try:
                run_in(s, new, both, upgrade=True)
                break
            except Killed:
                deaths += 1
        with session() as s:
            # Half of it cannot be queried.
            if last_committed(s.warehouse.fs, s.warehouse.job("totals")) is not None:
                assert rows_of(s, state) == counts(FIRST)
    assert deaths > 2
    upgraded = Counter(k for k, second in both if k < 3 or (k, second) in FIRST)
    with session() as s:
        assert rows_of(s, state) == sorted(upgraded.items())
        [first, *_] = [str(name) for (name,) in rows_of(s, "SELECT savepoint FROM sqlstream.savepoints")]
        assert not any("/.upgrading-" in path for path in s.warehouse.fs.walk(f"{s.warehouse.root}/savepoints"))
        put(tmp_path, "c", [(1, 46)])
        migrate(s, new, [*both, (1, 46)], REPAIR)
        expected = sorted((k, n + 100 + (k == 1)) for k, n in upgraded.items())
        assert rows_of(s, state) == expected
        take_savepoint(s.warehouse, "totals", "moved", f"{tmp_path}/moved")
    with session() as s:
        # Back to the query that it had, and away from the store.
        run_in(s, old, [*both, (1, 46)], savepoint=first)
        assert rows_of(s, state) == counts([*both, (1, 46)])
    with session(None) as s:
        run_in(s, new, [*both, (1, 46)], savepoint=f"{tmp_path}/moved")
        assert rows_of(s, state) == expected


def test_of_two_who_take_one_of_the_same_name_one_gets_it(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", FIRST)
    with Session(str(tmp_path), f"{bucket}/warehouse", notice=lambda text: None) as s:
        run_over(s, FIRST)
        # What a process has left that was killed, with its lease.
        killed = [sys.executable, "-c", KILLED, s.warehouse.root, JOB, "4"]
        assert subprocess.run(killed, check=False).returncode == -9
        left = [*s.warehouse.fs.walk(f"{s.warehouse.root}/savepoints/half")]
        assert len(left) > 4
        put_output = savepoint_folders._SavepointWriter._put_output
        refused: list[str] = []

        def overtaken(taking: savepoint_folders._SavepointWriter) -> None:
            """Let others come in the middle, who want to take and to drop it."""
            for act in (
                lambda: take_savepoint(s.warehouse, JOB, "half"),
                lambda: savepoint_folders.drop(s.warehouse, "half"),
            ):
                with pytest.raises(SqlStreamError) as error:
                    act()
                refused.append(error.value.message)
            put_output(taking)

        monkeypatch.setattr(savepoint_folders._SavepointWriter, "_put_output", overtaken)
        taken = take_savepoint(s.warehouse, JOB, "half")
        assert refused == 2 * ['another process is taking or dropping savepoint "half"']
        assert rows_of(s, "SELECT k, n, epoch(last)::BIGINT FROM savepoint.half.by_key") == batch(FIRST)[1]
        # Nothing is there that is not in its record, but for the record itself, and the lease that is given back.
        names = {path.removeprefix(f"{taken.warehouse.root}/") for path in s.warehouse.fs.walk(taken.warehouse.root)}
        assert names == {*taken.record.files, "savepoint.json", "lock"}


def test_one_whose_lease_is_lost_is_not_completed(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a", FIRST)
    with Session(str(tmp_path), f"{bucket}/warehouse", notice=lambda text: None) as s:
        run_over(s, FIRST)
        put_output = savepoint_folders._SavepointWriter._put_output

        def suspended(taking: savepoint_folders._SavepointWriter) -> None:
            """Let another process take over, as after a suspension for long."""
            put_output(taking)
            _held[taking._folder.root]._lost = True

        monkeypatch.setattr(savepoint_folders._SavepointWriter, "_put_output", suspended)
        with pytest.raises(SqlStreamError, match='savepoint "late" was not completed in time'):
            take_savepoint(s.warehouse, JOB, "late")
        # What is there is the other one's.
        assert [*s.warehouse.fs.walk(f"{s.warehouse.root}/savepoints/late")]
        assert s.warehouse.savepoints() == []
