"""`sqlstream verify` of a job that ran outside of a test's stream: what it says, and its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sqlstream.cli.main import cli
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import QueryError, SourceText, UsageError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.local.engine import LocalEngine
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.runtime import feed, job_thread
from sqlstream.session.session import Session
from sqlstream.warehouse.jobs import read_record, write_record
from sqlstream.warehouse.paths import Warehouse
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS

SCRIPT = """
CREATE TABLE clicks (page STRING, ts TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
CREATE TABLE counts (page STRING, n BIGINT);
INSERT INTO counts SELECT page, COUNT(*) FROM clicks GROUP BY page;
"""


def test_a_job_of_many_batches_is_verified_by_what_folded_descriptors_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEPT", 2)
    monkeypatch.setattr(job_thread, "SWEEP_SECONDS", 0)
    (tmp_path / "in").mkdir()
    for number in range(9):
        (tmp_path / "in" / f"{number}.csv").write_text(f"/{number % 4},2026-03-01 10:00:0{number}\n")
    options = "'path' = 'in', 'source.max-files-per-batch' = '1', 'source.monitor-interval' = '10 ms'"
    with Session(str(tmp_path), str(tmp_path / "warehouse")) as session:
        [planned] = session.compile(SourceText("clicks.sql", SCRIPT.replace("'path' = 'in'", options)))
        assert isinstance(planned, PlannedJob)

        def run(rows: int, restore: Restore | None = None) -> None:
            job = session._jobs.start(planned, {}, engine=LocalEngine(), restore=restore)
            wait_for_rows(job, rows)
            job.stop()
            assert job.wait(SECONDS)

        run(9)
        assert (tmp_path / "warehouse" / "jobs" / "counts" / "splits" / "read").exists()
        report = session.verify("counts", compiled=[planned])
        assert report
        assert report.read == (("clicks", 9),)
        assert [table.differences for table in report.tables] == [()]
        # In a savepoint, too, and after it was restored.
        take_savepoint(session.warehouse, "counts", "nine")
        session.drop("counts")
        (tmp_path / "in" / "9.csv").write_text("/9,2026-03-01 10:00:09\n")
        run(10, Restore("nine"))
        assert session.verify("counts", compiled=[planned]).read == (("clicks", 10),)


def verify(project: Path, *arguments: str) -> Any:
    given = ["verify", "counts", *arguments, "--project", str(project), "--warehouse", str(project / "warehouse")]
    return cli.main(given, prog_name="sqlstream", standalone_mode=False)


def explain_batch(project: Path, *files: str) -> None:
    given = [
        "explain",
        "--batch",
        "counts",
        *files,
        "--project",
        str(project),
        "--warehouse",
        str(project / "warehouse"),
    ]
    cli.main(given, prog_name="sqlstream", standalone_mode=False)


SETUP = """
SET 'table.exec.state.ttl' = '1 d';
CREATE TABLE base (page STRING, ts TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = '${CLICKS_FOLDER}', 'format' = 'csv');
CREATE TABLE unused (x INT);
CREATE TABLE clicks LIKE base;
CREATE FUNCTION shout AS 'words.shout' LANGUAGE PYTHON;
CREATE VIEW pages AS SELECT shout(page) AS page, ts FROM clicks;
CREATE TABLE counts (page STRING, n BIGINT);
"""


def test_a_job_is_verified_by_what_its_script_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLICKS_FOLDER", "in")
    (tmp_path / "catalog").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("/a,2026-03-01 10:00:01\n/b,2026-03-01 10:00:02\n")
    (tmp_path / "words.py").write_text("def shout(x: str) -> str:\n    return x.upper()\n")
    warehouse = str(tmp_path / "warehouse")
    given = {"base": {"source.max-files-per-batch": "1"}}
    with Session(str(tmp_path), warehouse, table_options=given) as session:
        session.compile(SourceText("setup", SETUP))
        [planned] = session.compile(
            SourceText("job", "INSERT INTO counts SELECT page, COUNT(*) FROM pages GROUP BY page")
        )
        assert isinstance(planned, PlannedJob)
        session._jobs.start(planned, {}, engine=LocalEngine()).wait()
    record = read_record(Warehouse(warehouse).fs, Warehouse(warehouse).job("counts"))
    assert record is not None
    assert record.script is not None
    assert "unused" not in "".join(record.script.declarations)
    assert verify(tmp_path) == 0
    assert 'table "counts": 2 rows, equal to the batch answer' in capsys.readouterr().out
    explain_batch(tmp_path)
    assert "shout" in capsys.readouterr().out.lower()
    with Session(str(tmp_path), warehouse) as session:
        # What is declared here stays so, and is none of the job's.
        session.sql("CREATE TABLE clicks (other INT)")
        assert session.verify("counts")
        assert session.query("FROM sqlstream.verify('counts')").fetchall() == []
        assert [c.name for c in session.compiler.catalog.tables["clicks"].columns] == ["other"]


def test_a_secret_of_a_script_is_not_kept_and_a_variable_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PASSWORD", "hunter2hunter2")
    table = "CREATE TABLE o{} (a INT) WITH ('connector' = 'print'); CREATE TABLE s{} (a INT) WITH "
    table += "('connector' = 'postgresql', 'url' = 'postgresql://ann:{}@h/d', 'table' = 't');"
    with Session(str(tmp_path), str(tmp_path / "warehouse")) as session:
        for number, password in enumerate(("hunter2hunter2", "${THE_PASSWORD}")):
            session.compile(SourceText("script", table.format(number, number, password)))
            [planned] = session.compile(SourceText("job", f"INSERT INTO o{number} SELECT a FROM (VALUES (1)) v(a)"))
            assert isinstance(planned, PlannedJob)
            assert planned.script is not None
            assert len(planned.script.declarations) == 1
            sql = f"INSERT INTO s{number} SELECT a FROM (VALUES (1)) v(a)"
            [planned] = session.compile(SourceText("job", sql))
            assert isinstance(planned, PlannedJob)
            kept = planned.script.declarations if planned.script is not None else ()
            assert "hunter2" not in "".join(kept)
            assert len(kept) == number


@pytest.mark.slow
def test_the_command_says_whether_all_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "1.csv"
    file.write_text("/a,2026-03-01 10:00:01\n/b,2026-03-01 10:00:02\n")
    script = tmp_path / "clicks.sql"
    script.write_text(SCRIPT)
    with Session(str(tmp_path), str(tmp_path / "warehouse")) as session:
        [planned] = session.compile(SourceText("clicks.sql", SCRIPT))
        assert isinstance(planned, PlannedJob)
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        job.wait()
        assert session.query("FROM sqlstream.verify('counts')").fetchall() == []
        # An argument may be a query, and the result stands in a larger one.
        inner = "sqlstream.verify('Counts', version := (SELECT max(version) FROM sqlstream.snapshots))"
        assert session.query(f"SELECT count(*) FROM {inner} v JOIN counts ON true").fetchall() == [(0,)]
        with pytest.raises(QueryError, match='job "count" does not exist') as unknown:
            session.query("FROM sqlstream.verify('count')")
        assert unknown.value.span is not None
        with pytest.raises(QueryError, match='job "counts" keeps no version 99'):
            session.verify("counts", at=99)

    assert verify(tmp_path, str(script)) == 0
    assert 'table "counts": 2 rows, equal to the batch answer' in capsys.readouterr().out
    explain_batch(tmp_path, str(script))
    assert 'CAST("count(*)" AS BIGINT) AS "n"' in capsys.readouterr().out
    assert verify(tmp_path) == 0
    # As earlier versions left it: the job is not known to the catalog of the project.
    fs, paths = Warehouse(str(tmp_path / "warehouse")).fs, Warehouse(str(tmp_path / "warehouse")).job("counts")
    record = read_record(fs, paths)
    assert record is not None
    write_record(fs, paths, replace(record, script=None))
    capsys.readouterr()
    with pytest.raises(UsageError, match="not all in the catalog") as told:
        verify(tmp_path)
    assert told.value.hint == "Name the script that declares them: sqlstream verify counts FILE.sql."
    with Session(str(tmp_path), str(tmp_path / "warehouse")) as session:
        with pytest.raises(UsageError, match="not all in the catalog") as told:
            session.verify("counts")
        assert told.value.hint is not None
        assert 'session.sql("CREATE TABLE ..")' in told.value.hint
        with pytest.raises(UsageError, match="not all in the catalog") as told:
            session.query("FROM sqlstream.verify('counts')")
        assert told.value.hint is not None
        assert "catalog" in told.value.hint
        # As the hint says.
        session.sql(SCRIPT.partition("INSERT")[0])
        assert session.verify("counts")
    with pytest.raises(UsageError, match="not all in the catalog"):
        explain_batch(tmp_path)
    # What the job has read is another file now: nothing explains that.
    file.write_text("/a,2026-03-01 10:00:01\n/c,2026-03-01 10:00:02\n")
    assert verify(tmp_path, str(script)) == 1
    shown = capsys.readouterr().out
    assert "NOT EXPLAINED" in shown
    assert "- page=/c, n=1" in shown
    assert "+ page=/b, n=1" in shown
    file.unlink()
    with pytest.raises(CannotVerify, match='table "clicks" cannot be read again'):
        verify(tmp_path, str(script))
