"""Savepoints: what is in them, what they outlive, and what is said of those that cannot be taken or read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from sqlstream import SqlStreamError
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint, take_savepoint
from sqlstream.storage.retention import sweep
from sqlstream.units import Duration, ProcessingTime, now
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import sealed
from tests.jobs.savepoint_jobs import (
    FIRST,
    JOB,
    SECOND,
    batch,
    open_session,
    put,
    results,
    rows_of,
    run_over,
    start,
    wait_until_done,
)
from tests.processes import SECONDS

LISTED = "SELECT savepoint, job, version, error FROM sqlstream.savepoints ORDER BY taken_at"
TOTALS = "SELECT k, n, epoch(last)::BIGINT FROM {} ORDER BY k"


def spelled(error: SqlStreamError) -> str:
    """Return the words that an error points at."""
    assert error.span is not None
    return error.span.text


@pytest.mark.slow
def test_a_savepoint_of_a_running_job_stays_as_it_was_when_the_job_goes_on_and_is_dropped(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        job = start(s)
        wait_until_done(s, job, FIRST)
        assert job.savepoint("before") == "before"
        version = last_committed(s.warehouse.fs, s.warehouse.job(JOB))
        put(tmp_path, "b", SECOND)
        wait_until_done(s, job, [*FIRST, *SECOND])
        job.stop()
        assert job.wait(SECONDS)
        windows, totals = batch(FIRST)
        assert s.query("show savepoints;").project("savepoint, job").fetchall() == [("before", JOB)]
        assert s.query(LISTED).fetchall() == [("before", JOB, version, None)]
        # State and tables at the savepoint are what DuckDB makes of the input up to it; the job itself is further.
        assert results(s) == batch([*FIRST, *SECOND])
        at = "AT (SAVEPOINT => 'before')"
        assert rows_of(s, f"SELECT * FROM windows {at}") == windows
        assert rows_of(s, TOTALS.format(f"totals {at}")) == totals
        assert rows_of(s, TOTALS.format(f"state.{JOB}.by_key {at}")) == totals
        columns = "k, n, epoch(window_start)::BIGINT"
        assert rows_of(s, f"SELECT {columns} FROM state.{JOB}.by_window {at}") == [(1, 1, 10)]
        assert rows_of(s, f"SELECT {columns} FROM state.{JOB}.by_window") == [(1, 1, 20)]
        outside = str(tmp_path / "outside")
        take_savepoint(s.warehouse, JOB, "after", outside)
        s.drop(JOB)
        # Of a job that is gone a savepoint in the warehouse and one in a folder can be compared, though not in any query.
        found = s.diff(f"{JOB}.by_key", "before", outside).project("change, before.k, before.n, after.k, after.n")
        assert found.fetchall() == [
            ("changed", 1, 3, 1, 4),
            ("changed", 2, 1, 2, 2),
            ("added", None, None, 3, 1),
        ]
        with pytest.raises(SqlStreamError, match="a state query cannot read the savepoint in"):
            s.query(f"FROM sqlstream.diff('{JOB}.by_key', 'before', '{outside}')")
        with pytest.raises(SqlStreamError, match="there is no savepoint in"):
            s.diff(f"{JOB}.by_key", "before", "./nowhere")
        counts = [
            s.why(f"{JOB}.by_key", {"k": 2}, at=at).filter("part = 'state'").project("content->>'n'").fetchall()
            for at in ("before", outside)
        ]
        assert counts == [[("1",)], [("2",)]]
        assert rows_of(s, TOTALS.format("savepoint.before.by_key")) == totals
        assert rows_of(s, "SELECT k, n FROM savepoint.Before.by_window") == [(1, 1)]
        assert rows_of(s, TOTALS.format("savepoint.before.totals")) == totals
        assert rows_of(s, "SELECT * FROM savepoint.before.windows") == windows
        for gone, kept in (("totals", "totals"), (f"state.{JOB}.by_key", "by_key")):
            with pytest.raises(SqlStreamError, match=f'table "{gone}"') as hinted:
                s.query(f"FROM {gone} {at}")
            assert hinted.value.hint == f"The savepoint has it, as savepoint.before.{kept}."
        listed = [name for name, *_ in s.query("SHOW ALL TABLES").fetchall() if name.startswith("savepoint.")]
        assert listed == [f"savepoint.before.{name}" for name in ("by_key", "by_window", "totals", "windows")]


def test_files_of_a_savepoint_are_links_that_retention_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        durable: list[str] = []
        make_durable = LocalFilesystem.make_durable

        def noted(fs: LocalFilesystem, paths: Iterable[str]) -> None:
            paths = list(paths)
            durable.extend(paths)
            make_durable(fs, paths)

        monkeypatch.setattr(LocalFilesystem, "make_durable", noted)
        taken = take_savepoint(s.warehouse, JOB, "kept")
        folder = taken.warehouse.root
        # No power cut takes what no batch has written, nor its name.
        synced = {path.partition("/.taking-")[2].partition("/")[2] for path in durable[:-1]}
        own = {name for name in taken.record.files if (Path(folder) / name).stat().st_nlink == 1}
        assert len(own) > 5
        assert synced == own
        assert durable[-1] == folder
        segments = list(Path(folder).rglob("*.parquet"))
        assert segments
        assert all(p.stat().st_nlink == 2 for p in segments)
        put(tmp_path, "b", SECOND)
        run_over(s, [*FIRST, *SECOND])
        paths = s.warehouse.job(JOB)
        newest = last_committed(s.warehouse.fs, paths)
        assert newest is not None
        later = ProcessingTime(now() + 10**12)
        assert sweep(s.warehouse.fs, paths, newest, newest + 9, later)
        shutil.rmtree(paths.state)
        assert rows_of(s, TOTALS.format("savepoint.kept.by_key")) == batch(FIRST)[1]


def test_sql_takes_lists_and_drops(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        taken = s.sql(f"CREATE SAVEPOINT one FOR JOB {JOB}")
        assert taken is not None
        assert taken.fetchall()[0][:2] == ("one", JOB)  # type: ignore[union-attr]
        listed = s.sql("SHOW SAVEPOINTS")
        assert [row[:2] for row in listed.fetchall()] == [("one", JOB)]  # type: ignore[union-attr]
        with pytest.raises(SqlStreamError, match='savepoint "one" exists already') as taken_error:
            s.sql(f"CREATE SAVEPOINT one FOR JOB {JOB}")
        assert spelled(taken_error.value) == "one"
        with pytest.raises(SqlStreamError, match=r'job "window_set" does not exist') as unknown:
            s.sql("CREATE SAVEPOINT two FOR JOB window_set")
        assert spelled(unknown.value) == "window_set"
        assert unknown.value.hint == f'did you mean "{JOB}"?'
        with pytest.raises(SqlStreamError, match='savepoint "won" does not exist') as near:
            s.query("SELECT * FROM state.windows_set.by_key AT (SAVEPOINT => 'won')")
        assert near.value.hint == 'did you mean "one"?'
        s.sql("DROP SAVEPOINT one; DROP SAVEPOINT IF EXISTS one")
        assert s.query(LISTED).fetchall() == []
        with pytest.raises(SqlStreamError, match='savepoint "one" does not exist'):
            s.sql("DROP SAVEPOINT one")
        with pytest.raises(SqlStreamError, match="does not exist in the warehouse"):
            drop_savepoint(s.warehouse, str(tmp_path / "outside"))


def test_without_a_name_it_has_that_of_the_version(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match="does not exist"):
            take_savepoint(s.warehouse, JOB)
        run_over(s, FIRST)
        version = last_committed(s.warehouse.fs, s.warehouse.job(JOB))
        names = [take_savepoint(s.warehouse, JOB).record.name for _ in range(2)]
        assert names == [f"{JOB}-{version}", f"{JOB}-{version}-2"]
        drop_savepoint(s.warehouse, names[0])
        assert s.warehouse.savepoints() == [names[1]]


def test_a_folder_is_whole_in_itself(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    target = tmp_path / "elsewhere" / "copy"
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        # What is being written meanwhile has another size, or is gone, when it is looked at.
        splits = Path(s.warehouse.job(JOB).splits)
        half = [
            splits / ".tmp-1-seen-0000000127.json",
            splits / "received/t/.tmp-1-7.parquet",
            splits / "received/t/7.txt.tmp",
        ]
        for file in half:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("half")
        taken = take_savepoint(s.warehouse, JOB, "out", str(target))
        assert not {name for name in taken.record.files for file in half if name.endswith(file.name)}
        assert all(p.stat().st_nlink == 1 for p in target.rglob("*") if p.is_file())
        assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == {
            *taken.record.files,
            "savepoint.json",
        }
        assert s.warehouse.savepoints() == []
        with pytest.raises(SqlStreamError, match="is not empty"):
            take_savepoint(s.warehouse, JOB, "out", str(target))


def test_a_version_that_is_deleted_while_it_is_linked_makes_room_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        versions = []
        put_manifest = savepoint_folders._SavepointWriter._put_manifest

        def overtaken(taking: savepoint_folders._SavepointWriter, *args: object) -> str:
            """Let the job go on to another version, and retention take a file of the first, before it is linked."""
            versions.append(taking._version)
            if len(versions) == 1:
                put(tmp_path, "b", SECOND)
                run_over(s, [*FIRST, *SECOND])
                raise FileNotFoundError("a segment")
            return put_manifest(taking, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(savepoint_folders._SavepointWriter, "_put_manifest", overtaken)
        taken = take_savepoint(s.warehouse, JOB, "late").record
        assert versions[0] < taken.version == last_committed(s.warehouse.fs, s.warehouse.job(JOB))
        assert rows_of(s, TOTALS.format("savepoint.late.by_key")) == batch([*FIRST, *SECOND])[1]
        assert os.listdir(f"{s.warehouse.root}/savepoints") == ["late"]


def test_of_two_who_take_one_of_the_same_name_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        put_output = savepoint_folders._SavepointWriter._put_output
        others = [lambda: take_savepoint(s.warehouse, JOB, "same")]

        def overtaken(taking: savepoint_folders._SavepointWriter) -> None:
            """Let another process come in the middle."""
            if others:
                others.pop()()
            put_output(taking)

        monkeypatch.setattr(savepoint_folders._SavepointWriter, "_put_output", overtaken)
        with pytest.raises(SqlStreamError, match='savepoint "same" exists already'):
            take_savepoint(s.warehouse, JOB, "same")
        assert rows_of(s, TOTALS.format("savepoint.same.by_key")) == batch(FIRST)[1]
        assert os.listdir(f"{s.warehouse.root}/savepoints") == ["same"]
        # A folder belongs to the first one; the other one must not have seen it empty.
        folder = str(tmp_path / "out")
        entries = LocalFilesystem.entries
        monkeypatch.setattr(LocalFilesystem, "entries", lambda fs, at: [] if at == folder else entries(fs, at))
        others = [lambda: take_savepoint(s.warehouse, JOB, "same", folder)]
        with pytest.raises(SqlStreamError, match=f'the folder "{folder}" is not empty'):
            take_savepoint(s.warehouse, JOB, "same", folder)
        assert not others


def test_what_is_left_of_one_that_was_half_dropped_has_no_name(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        # Earlier versions deleted the record first, and then the rest in its place.
        folder = Path(take_savepoint(s.warehouse, JOB, "again").warehouse.root)
        (folder / "savepoint.json").unlink()
        take_savepoint(s.warehouse, JOB, "again")
        assert rows_of(s, TOTALS.format("savepoint.again.by_key")) == batch(FIRST)[1]
        assert os.listdir(f"{s.warehouse.root}/savepoints") == ["again"]


KILLED = """
import os, sys
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import sealed
steps = int(sys.argv[3])
put = savepoint_folders._SavepointWriter._write
def write(self, target, text):
    global steps
    steps -= 1
    if steps < 0:
        os.kill(os.getpid(), 9)
    put(self, target, text)
savepoint_folders._SavepointWriter._write = write
savepoint_folders.take(Warehouse(sys.argv[1]), sys.argv[2], "half")
"""


@pytest.mark.slow
def test_nothing_half_is_listed_when_the_process_that_takes_it_is_killed(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        for steps in (0, 4):
            died = subprocess.run([sys.executable, "-c", KILLED, s.warehouse.root, JOB, str(steps)], check=False)
            assert died.returncode == -9
            assert s.query(LISTED).fetchall() == []
        assert len(os.listdir(f"{s.warehouse.root}/savepoints")) == 2
        # Another one may have the name; what was left goes when nobody can be writing it any more.
        savepoint_folders._remove_leftovers(s.warehouse)
        assert len(os.listdir(f"{s.warehouse.root}/savepoints")) == 2
        savepoints_since = savepoint_folders._LEFTOVER
        try:
            savepoint_folders._LEFTOVER = Duration(-1)
            take_savepoint(s.warehouse, JOB, "half")
        finally:
            savepoint_folders._LEFTOVER = savepoints_since
        assert os.listdir(f"{s.warehouse.root}/savepoints") == ["half"]


def test_one_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        record = Path(take_savepoint(s.warehouse, JOB, "later").warehouse.root) / "savepoint.json"
        record.write_text(record.read_text().replace('"rows"', '"raws"'))
        [(name, job, _, error)] = s.query(LISTED).fetchall()
        assert (name, job) == ("later", None)
        assert "is not as it was written" in error
        assert "savepoint later" in error
        record.write_text(sealed('{"format":99}'))
        [(_, _, _, error)] = s.query(LISTED).fetchall()
        assert 'savepoint "later" was written by a later version of sqlstream' in error
        # What is beside it can be read.
        take_savepoint(s.warehouse, JOB, "whole")
        assert rows_of(s, TOTALS.format("savepoint.whole.by_key")) == batch(FIRST)[1]
        with pytest.raises(SqlStreamError, match="later version"):
            s.query("SELECT * FROM savepoint.later.by_key")


def test_a_warehouse_without_savepoints_has_none(tmp_path: Path) -> None:
    assert Warehouse(str(tmp_path)).savepoints() == []
