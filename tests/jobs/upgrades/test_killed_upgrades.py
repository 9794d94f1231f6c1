"""Upgrades that are killed: the old job goes on, or the new one, and nothing between."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sqlstream import SqlStreamError
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.upgrades.upgrading import Upgrader
from sqlstream.warehouse.filesystem import Filesystem, LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from tests.jobs.savepoint_jobs import FIRST, SECOND, put
from tests.jobs.upgrades.test_upgrades import counted, counts
from tests.jobs.upgrades.upgrade_jobs import go_on, rows_of

pytestmark = pytest.mark.slow

# What changes files.
WRITES = ("write_text_atomic", "create", "link", "put_file", "delete", "delete_all", "delete_tree", "move_tree")
OLD, NEW = counted(), counted("WHERE k < 3", " * 10")
EVERY = [*FIRST, *SECOND]


class Killed(BaseException):
    """The process is gone: nothing is written any more."""


def killed_at(patch: pytest.MonkeyPatch, step: int, files: type[Filesystem] = LocalFilesystem) -> list[int]:
    """Let the next upgrade die at a step, and all that it does after that fail, too; return the counter of its steps."""

    def die() -> None:
        raise Killed

    return die_at(patch.setattr, step, die, files)


def die_at(
    put: Callable[[Any, str, Any], None],
    step: int,
    die: Callable[[], None],
    files: type[Filesystem] = LocalFilesystem,
) -> list[int]:
    """Let something happen before each change of a file of an upgrade from a step on; return the counter of its steps.

    `put` puts a function in the place of another one.
    """
    steps, armed = [0], [False]

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            if armed[0]:
                steps[0] += 1
                if steps[0] > step:
                    die()
            return write(*given, **named)

        return wrapper

    run = Upgrader.run

    def watched(upgrader: Upgrader, saved: Any) -> None:
        armed[0] = True
        run(upgrader, saved)
        armed[0] = False

    for name in WRITES:
        put(files, name, dying(getattr(files, name)))
    put(Upgrader, "run", watched)
    return steps


def goes_on(folder: Path) -> None:
    """Let whatever job there is go on with its own query, then with the new one, and compare with both in a row."""
    put(folder, "b", SECOND)
    kept = EVERY
    with contextlib.suppress(SqlStreamError):
        go_on(folder, OLD, EVERY)
    if "k < 3" in rows_of(folder, "SELECT sql FROM sqlstream.jobs")[0][0]:  # type: ignore[operator]
        kept = [*FIRST, *((k, s) for k, s in SECOND if k < 3)]
    go_on(folder, NEW, EVERY, upgrade=True)
    assert rows_of(folder, "SELECT k, n FROM state.totals.by_key") == counts(kept)
    assert not list((folder / "warehouse" / "savepoints").glob(".upgrading-*"))
    assert not (folder / "warehouse" / "jobs" / "totals" / "restoring.json").exists()


def test_an_upgrade_that_dies_anywhere_leaves_the_old_job_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    put(before, "a", FIRST)
    go_on(before, OLD, FIRST)
    whole = tmp_path / "whole"
    shutil.copytree(before, whole)
    with monkeypatch.context() as patch:
        steps = killed_at(patch, 10_000)
        go_on(whole, NEW, FIRST, upgrade=True)
    count = steps[0]
    for step in sorted(random.Random(7).sample(range(count), 8)):
        folder = tmp_path / str(step)
        shutil.copytree(before, folder)
        with monkeypatch.context() as patch:
            killed_at(patch, step)
            with pytest.raises(Killed):
                go_on(folder, NEW, FIRST, upgrade=True)
        goes_on(folder)


KILLED = """
import os, sys
from pathlib import Path
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.jobs.savepoint_jobs import FIRST
from tests.jobs.upgrades.test_killed_upgrades import NEW
from tests.jobs.upgrades.upgrade_jobs import go_on
delete = LocalFilesystem.delete_tree
def killed(self, path):
    delete(self, path)
    if path.endswith("commits"):
        os.kill(os.getpid(), 9)
LocalFilesystem.delete_tree = killed
go_on(Path(sys.argv[1]), NEW, FIRST, upgrade=True)
"""


def test_an_upgrade_that_is_killed_is_completed_by_the_next_start(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, OLD, FIRST)
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert died.returncode == -9
    notices: list[str] = []
    put(tmp_path, "b", SECOND)
    go_on(tmp_path, NEW, EVERY, notices=notices)
    assert any("it is upgraded, which had been interrupted" in notice for notice in notices)
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == counts(
        [*FIRST, *((k, s) for k, s in SECOND if k < 3)]
    )


def test_an_upgrade_that_is_run_again_uses_the_savepoint_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    put(tmp_path, "a", FIRST)
    go_on(tmp_path, OLD, FIRST)
    saved = "SELECT savepoint FROM sqlstream.savepoints"
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Upgrader, "rewritten", die)
            patch.setattr(savepoint_folders, "drop", die)
            with pytest.raises(Killed):
                go_on(tmp_path, NEW, FIRST, upgrade=True)
        [first] = rows_of(tmp_path, saved)
    put(tmp_path, "b", SECOND)
    go_on(tmp_path, OLD, EVERY)
    # It is of another version.
    go_on(tmp_path, NEW, EVERY, upgrade=True)
    assert len(rows_of(tmp_path, saved)) == 2
    go_on(tmp_path, OLD, EVERY, savepoint=str(first[0]))
    assert rows_of(tmp_path, "SELECT k, n FROM state.totals.by_key") == counts(EVERY)


@pytest.mark.parametrize("place", ["splits/received/t/1", "output/0/writers.json"])
def test_an_upgrade_takes_what_came_after_a_savepoint_of_the_same_version(tmp_path: Path, place: str) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, OLD, FIRST)
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    taken = take_savepoint(warehouse, "totals")
    assert savepoint_folders.is_as_now(warehouse, taken)
    # As of a source that has received rows since, or of a sink that writes a batch otherwise.
    came = Path(warehouse.job("totals").root) / place
    came.parent.mkdir(parents=True, exist_ok=True)
    came.write_text("{}")
    assert not savepoint_folders.is_as_now(warehouse, taken)
    go_on(tmp_path, NEW, FIRST, upgrade=True)
    assert len(warehouse.savepoints()) == 2
    assert "received" not in place or came.read_text() == "{}"


def test_what_an_upgrade_left_that_was_done_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = LocalFilesystem.delete_tree

    def die(files: LocalFilesystem, path: str) -> None:
        if "/.upgrading-" in path and list(Path(path).glob("**/*.parquet")):
            raise Killed
        delete(files, path)

    put(tmp_path, "a", FIRST)
    go_on(tmp_path, OLD, FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFilesystem, "delete_tree", die)
        with pytest.raises(Killed):
            go_on(tmp_path, NEW, FIRST, upgrade=True)
    goes_on(tmp_path)
