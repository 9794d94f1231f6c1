"""Jobs that go on from savepoints: as themselves, as forks, and elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sqlstream import Session, SqlStreamError
from sqlstream.catalog import Table
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints import restored_files
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore, plan_restore
from sqlstream.local.engine import LocalEngine
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import find_savepoint
from tests.jobs.savepoint_jobs import (
    FIRST,
    FORK,
    INPUT,
    JOB,
    SCRIPT,
    SECOND,
    THIRD,
    Rows,
    batch,
    open_session,
    put,
    results,
    rows_of,
    run_over,
    start,
    wait_until_done,
)
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS
from tests.saved_streams import SavedStream


def savepoint_between(folder: Path) -> None:
    """Run a job over the first rows, take the savepoint `first`, and let it go on over the second ones."""
    put(folder, "a", FIRST)
    with open_session(folder) as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, "first")
        put(folder, "b", SECOND)
        run_over(s, [*FIRST, *SECOND])


@pytest.mark.slow
def test_a_job_goes_back_and_on_as_if_nothing_had_been_between(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    notices: list[str] = []
    with open_session(tmp_path, notices) as s:
        # The files come in one batch now, with others: what was between is forgotten, and its rows come again.
        put(tmp_path, "c", THIRD)
        job = start(s, restore="first")
        job.stop()
        assert job.wait(SECONDS)
        assert any('goes on from savepoint "first"' in notice for notice in notices)
        run_over(s, [*FIRST, *SECOND, *THIRD])
        assert results(s) == batch([*FIRST, *SECOND, *THIRD])
        # It goes back once more, before it has gone on.
        (tmp_path / "in" / "b.parquet").unlink()
        (tmp_path / "in" / "c.parquet").unlink()
        job = start(s, restore="first")
        job.stop()
        assert job.wait(SECONDS)
        assert results(s) == batch(FIRST)
        # Nothing stays of what came after it.
        root = Path(s.warehouse.root)
        segments = {
            folder: {p.relative_to(folder / "tables") for p in (folder / "tables").rglob("*.parquet")}
            for folder in (root, root / "savepoints" / "first")
        }
        assert segments[root] == segments[root / "savepoints" / "first"] != set()
        run_over(s, FIRST)
        assert results(s) == batch(FIRST)


def test_a_job_that_was_dropped_is_there_again(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        before = read_record(s.warehouse.fs, s.warehouse.job(JOB))
        s.drop(JOB)
        run_over(s, [*FIRST, *SECOND], restore="FIRST")
        assert results(s) == batch([*FIRST, *SECOND])
        after = read_record(s.warehouse.fs, s.warehouse.job(JOB))
        assert before is not None
        assert after is not None
        # Others may go on that have read of its tables up to the savepoint, and no further.
        version = find_savepoint(s.warehouse, "first").record.version
        assert after.has_written(before.created_at, version)
        assert not after.has_written(before.created_at, version + 1)


def test_versions_after_a_job_came_back_are_not_those_of_the_same_numbers_before() -> None:
    script = """
    CREATE TABLE t (k BIGINT);
    CREATE TABLE n (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
    INSERT INTO n SELECT k, count(*) FROM t GROUP BY k
    """
    with SavedStream(script, options={"sqlstream.unbounded-state": "allow"}) as stream:
        for key, name in ((1, "first"), (2, "second")):
            stream.batch("t", [(key,)])
            stream.savepoint("n", name)
        warehouse = Warehouse(stream.warehouse)
        for dropped in (warehouse.job("n").root, warehouse.table("n").root):
            shutil.rmtree(dropped)
        stream.go_back("n", "first")
        stream.batch("t", [(3,)])
        assert sorted(stream.query("FROM n")) == [(1, 1), (3, 1)]
        stream.go_back("n", "second")
        assert sorted(stream.query("FROM n")) == [(1, 1), (2, 1)]


def test_a_job_that_has_not_gone_on_stays_as_it_is(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, "now")
        record = Path(s.warehouse.job(JOB).record)
        before = record.stat().st_ino
        run_over(s, FIRST, restore="now")
        assert record.stat().st_ino == before


@pytest.mark.slow
def test_a_fork_runs_beside_the_first_job(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        run_over(s, [*FIRST, *SECOND], FORK, restore="first", name="other")
        put(tmp_path, "c", THIRD)
        # Both go on, each by itself; the fork by its name, without the savepoint.
        s.drop(JOB)
        from_name = f"SET 'pipeline.name' = 'other'; {FORK}"
        run_over(s, [*FIRST, *SECOND, *THIRD], from_name)
        rows = batch([*FIRST, *SECOND, *THIRD])
        assert results(s, "windows_b", "totals_b") == rows
        assert rows_of(s, "SELECT k, n, epoch(last)::BIGINT FROM state.other.by_key") == rows[1]
        assert rows_of(s, "SELECT DISTINCT job FROM sqlstream.jobs") == [("other",)]


def test_a_fork_does_not_write_where_the_first_job_does(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match='cannot write where that job does: table "windows"') as same:
            start(s, restore="first", name="other")
        assert same.value.hint == "Rename the table in its CREATE TABLE and in INSERT INTO."
    with open_session(tmp_path) as s:
        other = FORK.replace("PRIMARY KEY (k)", "PRIMARY KEY (k, n)")
        with pytest.raises(SqlStreamError, match='table "totals_b" is not declared like "totals"'):
            start(s, other, restore="first", name="other")
        assert s.warehouse.jobs() == [JOB] or not s.query("SELECT 1 FROM sqlstream.jobs WHERE job = 'other'").fetchall()
    with open_session(tmp_path) as s, pytest.raises(SqlStreamError, match=f'job "{JOB}" is the job of the savepoint'):
        start(s, FORK, restore="first", name=JOB)


OUT = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3)) WITH
('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE {name} (k BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');
INSERT INTO {name} SELECT k FROM t;
"""


def written(folder: Path) -> list[int]:
    return sorted(
        int(line) for file in folder.rglob("part-*") for line in file.read_text().splitlines() if line.isdigit()
    )


def test_files_go_back_with_the_job_and_a_fork_has_its_own(tmp_path: Path) -> None:
    out, fork = OUT.format(name="o", path="out"), OUT.format(name="p", path="out")

    def run(script: str, rows: int, **options: str) -> None:
        with open_session(tmp_path) as s:
            job = start(s, script, restore=options.get("restore"), name=options.get("name"))
            while not (job.progress.rows_in == rows and job.is_waiting):
                assert not job.wait(0.01)
            job.stop()
            assert job.wait(SECONDS)

    put(tmp_path, "a", FIRST)
    run(out, 4)
    with open_session(tmp_path) as s:
        take_savepoint(s.warehouse, "o", "before")
    put(tmp_path, "b", SECOND)
    run(out, 7)
    assert written(tmp_path / "out") == sorted(k for k, _ in [*FIRST, *SECOND])
    with open_session(tmp_path) as s, pytest.raises(SqlStreamError, match="cannot write where that job does") as same:
        start(s, fork, restore="before", name="p")
    assert same.value.hint is not None
    assert "change its options" in same.value.hint
    run(fork.replace("'out'", "'beside'"), 7, restore="before", name="p")
    assert written(tmp_path / "beside") == sorted(k for k, _ in SECOND)
    # Going back takes the files away that came after the savepoint: the rows come again, once.
    put(tmp_path, "c", THIRD)
    run(out, 10, restore="before")
    assert written(tmp_path / "out") == sorted(k for k, _ in [*FIRST, *SECOND, *THIRD])


def test_a_folder_is_restored_in_another_warehouse(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    put(here, "a", FIRST)
    with open_session(here) as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, to=str(tmp_path / "taken"))
    shutil.move(tmp_path / "taken", tmp_path / "moved")
    shutil.move(here / "in", there / "in")
    shutil.rmtree(here)
    put(there, "b", SECOND)
    with open_session(there) as s:
        run_over(s, [*FIRST, *SECOND], restore=str(tmp_path / "moved"))
        shutil.rmtree(tmp_path / "moved")
        assert results(s) == batch([*FIRST, *SECOND])
        put(there, "c", THIRD)
        run_over(s, [*FIRST, *SECOND, *THIRD])
        assert results(s) == batch([*FIRST, *SECOND, *THIRD])


@pytest.mark.slow
def test_what_cannot_be_restored_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match='savepoint "frist" does not exist') as near:
            start(s, restore="frist")
        assert near.value.hint == 'did you mean "first"?'
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match=f'is of job "{JOB}", not of "windows_b_set"') as of_other:
            start(s, FORK, restore="first")
        assert of_other.value.hint is not None
        assert "--as" in of_other.value.hint
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match="of a job with another query") as another:
            start(s, SCRIPT.replace("max(ts)", "min(ts)"), restore="first")
        assert another.value.detail is not None
        assert "min" in another.value.detail
    with open_session(tmp_path) as s, pytest.raises(SqlStreamError, match="there is no savepoint in"):
        start(s, restore=str(tmp_path))
    with open_session(tmp_path) as s:
        segment = next(p for p in Path(s.warehouse.savepoint("first").root).rglob("*.parquet"))
        data = bytearray(segment.read_bytes())
        segment.unlink()
        with pytest.raises(SqlStreamError, match="is missing") as gone:
            start(s, restore="first")
        assert gone.value.detail is not None
        assert 'savepoint "first"' in gone.value.detail
    with open_session(tmp_path) as s:
        data[20] ^= 1
        segment.write_bytes(data)
        with pytest.raises(SqlStreamError, match="is not as it was written"):
            start(s, restore="first")
        # The job itself is whole, and goes on.
        run_over(s, [*FIRST, *SECOND])
        assert results(s) == batch([*FIRST, *SECOND])


def test_a_source_begins_where_its_options_say_if_they_are_given_at_the_restore(tmp_path: Path) -> None:
    script = """
    CREATE TABLE d (k BIGINT) WITH ('connector' = 'delta', 'path' = 'd', 'source.monitor-interval' = '10 ms');
    CREATE TABLE n (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
    INSERT INTO n SELECT k, count(*) FROM d GROUP BY k
    """

    def add(*keys: int) -> None:
        write_deltalake(str(tmp_path / "d"), pa.table({"k": pa.array(keys, pa.int64())}), mode="append")

    add(1, 1, 2)
    with open_session(tmp_path) as s:
        first = start(s, script)
        while not (first.progress.rows_in == 3 and first.is_waiting):
            assert not first.wait(0.01)
        first.stop()
        assert first.wait(SECONDS)
        take_savepoint(s.warehouse, "n", "three")
    add(3)
    notices: list[str] = []
    options = {"d": {"scan.startup.mode": "latest"}}
    with Session(str(tmp_path), table_options=options, notice=notices.append) as s:
        compiled, restored = plan_restore(
            s.compile(SourceText("script", script)), s.warehouse, "three", None, s.compiler.table_options.starting
        )
        [job] = [one for one in compiled if isinstance(one, PlannedJob)]
        started = s._jobs.start(job, {}, engine=LocalEngine(), restore=restored["n"])
        while not started.is_waiting:
            assert not started.wait(0.01)
        add(2, 4)
        while started.progress.rows_in != 5:
            assert not started.wait(0.01)
        started.stop()
        assert started.wait(SECONDS)
        # The row with 3 came after the savepoint, and before the restore.
        assert rows_of(s, "SELECT * FROM n") == [(1, 2), (2, 2), (4, 1)]
        report = s.verify("n", compiled=[job])
        assert report
        assert report.read == (("d", 5),)
        assert any(notice.startswith('warning: table "d" is read from where its options say') for notice in notices)


def test_a_use_of_a_table_goes_on_if_its_hint_says_where_to_start() -> None:
    restore = Restore("three", overruled={"d": {"scan.startup.mode": "latest"}, "e": {"scan.startup.mode": ""}})
    table = Table("D", (), options={"connector": "delta", "scan.startup.mode": "latest"})
    assert restore.overrules(table)
    assert not restore.overrules(replace(table, options={"connector": "delta", "scan.startup.mode": "earliest"}))
    assert not restore.overrules(replace(table, name="other"))
    # An option that was taken away.
    assert restore.overrules(Table("e", (), options={"connector": "delta"}))


MIDDLE = f"""{INPUT}
CREATE TABLE middle (k BIGINT) WITH ('source.monitor-interval' = '10 ms');
INSERT INTO middle SELECT k FROM t
"""
READER = """
CREATE TABLE middle (k BIGINT) WITH ('source.monitor-interval' = '10 ms');
CREATE TABLE n (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO n SELECT k, count(*) FROM middle GROUP BY k
"""


def test_a_job_goes_on_that_reads_the_table_of_one_that_goes_back(tmp_path: Path) -> None:
    def read(session: Session, rows: Rows, restore: str | None = None) -> None:
        """Run the job that reads until it has read so many rows."""
        job = start(session, READER, restore=restore)
        wait_for_rows(job, len(rows))
        job.stop()
        assert job.wait(SECONDS)

    def write(session: Session, rows: Rows, restore: str | None = None) -> None:
        job = start(session, MIDDLE, restore=restore)
        wait_for_rows(job, len(rows))
        job.stop()
        assert job.wait(SECONDS)

    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        write(s, FIRST)
        read(s, FIRST)
        for job in ("middle", "n"):
            take_savepoint(s.warehouse, job, f"{job}_first")
        put(tmp_path, "b", SECOND)
        both = [*FIRST, *SECOND]
        write(s, both)
        # It has not read further than to where the other one goes back, once and again.
        write(s, both, "middle_first")
        take_savepoint(s.warehouse, "middle", "middle_both")
        put(tmp_path, "c", THIRD)
        every = [*both, *THIRD]
        write(s, every)
        write(s, every, "middle_both")
        read(s, every)
        counted = sorted((k, [key for key, _ in every].count(k)) for k in {key for key, _ in every})
        assert rows_of(s, "SELECT k, n FROM n") == counted
        # Now it has: it goes back, too.
        write(s, every, "middle_first")
        with pytest.raises(SqlStreamError, match='"middle", went back to a savepoint behind rows that') as behind:
            start(s, READER).wait(SECONDS)
        assert behind.value.hint is not None
        assert "Let this job go back, too" in behind.value.hint
        read(s, every, "n_first")
        assert rows_of(s, "SELECT k, n FROM n") == counted


def test_a_drained_job_is_not_restored_but_can_be_queried(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        job = start(s)
        wait_until_done(s, job, FIRST)
        job.stop(drain=True)
        assert job.wait(SECONDS)
        assert job.savepoint("end") == "end"
        assert rows_of(s, "SELECT * FROM windows AT (SAVEPOINT => 'end')") == batch(FIRST, drained=True)[0]
        with pytest.raises(SqlStreamError, match=f'was taken at the end of the input of job "{JOB}"'):
            start(s, restore="end")


KILLED = """
import os, sys
from pathlib import Path
from sqlstream.jobs.savepoints import restored_files
from tests.jobs.savepoint_jobs import open_session, start
steps = int(sys.argv[2])
put = restored_files.put_file
def put_file(*arguments, **options):
    global steps
    steps -= 1
    if steps < 0:
        os.kill(os.getpid(), 9)
    put(*arguments, **options)
restored_files.put_file = put_file
start(open_session(Path(sys.argv[1])), restore="first")
"""


@pytest.mark.slow
def test_a_restore_that_is_killed_is_completed_by_the_next_start(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "7"], check=False)
    assert died.returncode == -9
    with open_session(tmp_path) as s:
        # Neither the old job nor the new one, but nothing between.
        assert last_committed(s.warehouse.fs, s.warehouse.job(JOB)) is None
        with pytest.raises(SqlStreamError, match=f'job "{JOB}" is half restored from savepoint "First"'):
            s.sql("DROP SAVEPOINT First")
        folder = Path(s.warehouse.savepoint("first").root)
        folder.rename(tmp_path / "away")
        with pytest.raises(SqlStreamError, match='is half restored from savepoint "first", which is gone'):
            start(s)
        (tmp_path / "away").rename(folder)
        put(tmp_path, "c", THIRD)
        run_over(s, [*FIRST, *SECOND, *THIRD])
        assert results(s) == batch([*FIRST, *SECOND, *THIRD])
        assert not Path(s.warehouse.job(JOB).restoring).exists()


class Killed(BaseException):
    """The process is gone."""


def test_a_restore_that_is_killed_and_begun_again_knows_what_the_job_wrote_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        paths = s.warehouse.job(JOB)
        before = read_record(s.warehouse.fs, paths)
        version = find_savepoint(s.warehouse, "first").record.version

        def dying(*arguments: object, **options: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(restored_files, "put_file", dying)
            with pytest.raises(Killed):
                start(s, restore="first")
        run_over(s, [*FIRST, *SECOND], restore="first")
        after = read_record(s.warehouse.fs, paths)
        assert before is not None
        assert after is not None
        # So whoever had read its tables up to the savepoint goes on.
        assert after.has_written(before.created_at, version)
        assert not after.has_written(before.created_at, version + 1)


KILLED_AT_THE_END = """
import os, sys
from pathlib import Path
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.jobs.savepoint_jobs import open_session, start
delete = LocalFilesystem.delete
def killed(self, path):
    if path.endswith("restoring.json"):
        os.kill(os.getpid(), 9)
    delete(self, path)
LocalFilesystem.delete = killed
start(open_session(Path(sys.argv[1])), restore="first")
"""


@pytest.mark.slow
def test_a_restore_that_is_complete_is_not_done_again(tmp_path: Path) -> None:
    savepoint_between(tmp_path)
    with open_session(tmp_path) as s:
        s.drop(JOB)
    died = subprocess.run([sys.executable, "-c", KILLED_AT_THE_END, str(tmp_path)], check=False)
    assert died.returncode == -9
    notices: list[str] = []
    with open_session(tmp_path, notices) as s:
        left = Path(s.warehouse.job(JOB).restoring)
        plan = left.read_bytes()
        run_over(s, [*FIRST, *SECOND], restore="first")
        assert not left.exists()
        # A power cut can bring the file back after the job has gone on for long.
        left.write_bytes(plan)
        put(tmp_path, "c", THIRD)
        run_over(s, [*FIRST, *SECOND, *THIRD])
        assert results(s) == batch([*FIRST, *SECOND, *THIRD])
        assert not left.exists()
        assert not any("interrupted" in notice for notice in notices)
