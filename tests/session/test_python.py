"""Python's side: what is public, what a bare SELECT gives, what errors look like."""

from __future__ import annotations

import pkgutil
import threading
import traceback
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, fields
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlstream
from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import JobError, SourceText, SqlStreamError, UsageError
from sqlstream.jobs.job import Job
from sqlstream.jobs.launch import only_jobs
from sqlstream.jobs.progress import progress_of
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.physical.plan import SinkPlan
from sqlstream.session.changes import HELD, Change, ChangeBuffer, ChangeReceiver, Changes, RowReceiver
from sqlstream.storage.zsets import WEIGHT
from sqlstream.testing import Stream
from tests.kinds import of_type
from tests.processes import SECONDS

TABLE = "CREATE TABLE t (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)"


def sink_of(query: str) -> SinkPlan:
    compiler = Compiler()
    [job] = compiler.jobs([SourceText("sql", f"{TABLE} WITH ('connector' = 'datagen'); {query}")])
    compiler.close()
    return job.physical.sinks[0]


def batch(folder: Path, rows: str) -> list[str]:
    """Write what a sink gets of a batch."""
    path = f"{folder}/{len(list(folder.iterdir()))}.parquet"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    return [path]


# -- what is public


def test_only_the_public_names_are_there() -> None:
    assert sqlstream.__all__ == sorted(sqlstream.__all__) == dir(sqlstream)
    assert all(getattr(sqlstream, name) for name in sqlstream.__all__)
    modules = {module.name for module in pkgutil.iter_modules(sqlstream.__path__)}
    assert not modules & {*sqlstream.__all__}
    assert {name for name in vars(sqlstream) if not name.startswith("_")} <= {*sqlstream.__all__, *modules}


def test_a_query_for_a_receiver_has_no_earlier_state(tmp_path: Path) -> None:
    with sqlstream.Session(str(tmp_path)) as session:
        [planned] = session.compile(SourceText("sql", "SELECT * FROM (VALUES (1)) AS t(x)"))
        assert isinstance(planned, PlannedJob)
        rows = RowReceiver(planned.physical.sinks[0])
        with pytest.raises(UsageError, match="cannot be restored from a savepoint: it begins anew each time"):
            session.start(planned, receiver=rows, restore=Restore("spring"))
        with pytest.raises(UsageError, match="cannot be upgraded: it begins anew each time"):
            session.start(planned, receiver=rows, upgrade=Upgrade())
        assert session.jobs == []


@pytest.mark.parametrize("options", [{"savepoint": "spring"}, {"upgrade": True}, {"migrate": ""}])
def test_a_job_that_begins_anew_does_not_go_on(tmp_path: Path, options: dict[str, Any]) -> None:
    with sqlstream.Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    with sqlstream.Session(str(tmp_path)) as session:
        with pytest.raises(UsageError, match=r"a job begins anew, or .*"):
            session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (2)", fresh=True, **options)
        # Nothing was declared, or it could not be declared now; and nothing is deleted.
        [planned] = (
            one
            for one in session.compile(SourceText("sql", "CREATE TABLE t (a INT); INSERT INTO t VALUES (2)"))
            if isinstance(one, PlannedJob)
        )
        for restore, upgrade in ((Restore("spring"), None), (None, Upgrade())):
            with pytest.raises(UsageError, match=r"a job begins anew, or .*"):
                session.start(planned, fresh=True, restore=restore, upgrade=upgrade)
            restored = {"t_values": restore} if restore is not None else {}
            with pytest.raises(UsageError, match=r"a job begins anew, or .*"):
                session.run([planned], ["t_values"], restored, upgrade)
        assert session.jobs == []
        assert session.query("FROM t").fetchall() == [(1,)]


def test_a_text_names_one_job_that_begins_anew(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (a INT); INSERT INTO t VALUES ({})"
    for number in (1, 2):
        with sqlstream.Session(str(tmp_path)) as session:
            session.sql(sql.format(number), fresh="T_values")
            assert session.query("FROM t").fetchall() == [(number,)]
            with pytest.raises(UsageError, match='there is no job "totals" in the SQL to start anew'):
                session.sql("INSERT INTO t VALUES (3)", fresh="totals")


def test_a_job_that_begins_from_a_savepoint_runs(tmp_path: Path) -> None:
    with sqlstream.Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE t (a INT); CREATE TABLE u (a INT)")
        compiled = session.compile(SourceText("sql", "INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)"))
        assert only_jobs(compiled, ["T_values"], ["t_values"]) == compiled[:1]
        with pytest.raises(UsageError, match='job "u_values" is to begin from a savepoint, and is not among the jobs'):
            only_jobs(compiled, ["t_values"], ["u_values"])


def test_dir_shows_what_is_for_users(tmp_path: Path) -> None:
    with sqlstream.Session(str(tmp_path)) as session:
        names = ["close", "diff", "drop", "jobs", "query", "register", "sql", "stop", "ttl", "verify", "wait", "why"]
        assert dir(session) == names
        assert all(getattr(session, name) is not None for name in dir(session))
        assert repr(session).startswith("Session(")
        job = session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)")
        assert isinstance(job, sqlstream.Job)
        assert dir(job) == ["error", "name", "progress", "savepoint", "status", "stop", "verify", "wait", "warnings"]
        assert all(hasattr(job, name) for name in dir(job))


def test_progress_is_a_frozen_value_in_public_units() -> None:
    script = (
        f"{TABLE}; CREATE TABLE counts (n BIGINT); INSERT INTO counts SELECT COUNT(*) FROM"
        " TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
    )
    with Stream(script) as stream:
        stream.batch("t", [(1, "2026-01-01 10:00:50"), (1, None)])
        stream.batch("t", [(1, "2026-01-01 10:01:10")])
        progress = progress_of(stream.runs["counts"].commits.totals)
    assert (progress.rows_in, progress.rows_out, progress.null_rows, progress.late_rows) == (3, 1, 1, 0)
    assert progress.watermark == datetime(2026, 1, 1, 10, 1, 6)
    assert progress.newest_event_time == datetime(2026, 1, 1, 10, 1, 10)
    assert progress.lag == timedelta(seconds=4)
    source, [operator] = progress.sources["t"], progress.operators.values()
    assert (source.rows, source.holds_watermark, source.idle_timeout) == (3, True, None)
    assert operator.next_close == datetime(2026, 1, 1, 10, 2)
    assert operator.state_bytes > 0
    for value in (progress, source, operator):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, 0)


def test_progress_before_anything_and_after_the_end() -> None:
    assert sqlstream.Progress() == Job("skipped").progress
    assert sqlstream.Progress().lag is None
    with Stream(f"{TABLE}; CREATE TABLE out (k INT); INSERT INTO out SELECT COUNT(*) FROM t") as stream:
        stream.batch("t", [(1, "2026-01-01 10:00:50")])
        stream.finish()
        assert progress_of(stream.runs["out"].commits.totals).watermark == datetime.max


# -- what a bare SELECT gives


def test_a_select_over_rows_that_end_is_a_relation(tmp_path: Path) -> None:
    with sqlstream.Session(str(tmp_path), notice=lambda text: None) as session:
        found = session.sql("SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(k, s)")
        assert isinstance(found, duckdb.DuckDBPyRelation)
        assert (found.columns, sorted(found.fetchall())) == (["k", "s"], [(1, "a"), (2, None)])
        assert of_type(duckdb.DuckDBPyRelation, session.sql("VALUES (7), (8)")).filter("col0 > 7").fetchall() == [(8,)]
        assert session.query("SELECT job FROM sqlstream.jobs").fetchall() == [], "nothing stays of a SELECT"


def test_what_changes_amount_to_is_the_relation(tmp_path: Path) -> None:
    rows = RowReceiver(sink_of("SELECT k, COUNT(*) AS n FROM t GROUP BY k"))
    rows.receive(batch(tmp_path, f"SELECT 1 AS k, 1 AS n, 1 AS {WEIGHT} UNION ALL SELECT 2, 1, 1"))
    rows.receive(batch(tmp_path, f"SELECT 1 AS k, 1 AS n, -1 AS {WEIGHT} UNION ALL SELECT 1, 2, 1"))
    assert sorted(rows.relation().fetchall()) == [(1, 2), (2, 1)]
    limited = RowReceiver(sink_of("SELECT k FROM t LIMIT 2"))
    limited.receive(batch(tmp_path, "SELECT range AS k FROM range(5)"))
    assert limited.is_full
    assert len(limited.relation().fetchall()) == 2


def test_changes_have_their_kind(tmp_path: Path) -> None:
    receiver = ChangeReceiver(sink_of("SELECT k, COUNT(*) AS n FROM t GROUP BY k"))
    run = FakeRun()
    changes = Changes(receiver.columns, Job("select_1", run), receiver.held)
    receiver.receive(batch(tmp_path, f"SELECT 1 AS k, 1 AS n, 1 AS {WEIGHT}"))
    assert next(changes) == Change("+I", {"k": 1, "n": 1})
    receiver.receive(batch(tmp_path, f"SELECT 1 AS k, 1 AS n, -1 AS {WEIGHT} UNION ALL SELECT 1, 2, 1"))
    receiver.receive(batch(tmp_path, f"SELECT 1 AS k, 2 AS n, -1 AS {WEIGHT}"))
    run.ended.set()
    assert [(kind, row["n"]) for kind, row in changes] == [("-U", 1), ("+U", 2), ("-D", 2)]
    assert changes.columns == ["k", "n"]
    assert dir(changes) == ["close", "columns", "job"]


def test_changes_end_with_the_limit(tmp_path: Path) -> None:
    receiver = ChangeReceiver(sink_of("SELECT k FROM t LIMIT 3"))
    run = FakeRun()
    receiver.receive(batch(tmp_path, "SELECT range AS k FROM range(5)"))
    assert receiver.is_full
    run.ended.set()
    assert [row["k"] for _, row in Changes(["k"], Job("j", run), receiver.held)] == [0, 1, 2]


def test_changes_end_with_the_error_of_their_job(tmp_path: Path) -> None:
    receiver = ChangeReceiver(sink_of("SELECT k FROM t"))
    receiver.receive(batch(tmp_path, "SELECT 1 AS k"))
    run = FakeRun()
    changes = Changes(["k"], Job("j", run), receiver.held)
    assert next(changes).row == {"k": 1}
    run.error = JobError("it broke")
    run.ended.set()
    with pytest.raises(JobError, match="it broke"):
        next(changes)


def test_a_job_waits_while_nobody_takes_its_changes() -> None:
    held = ChangeBuffer()
    put = threading.Event()

    def give() -> None:
        for _ in range(HELD // 1000 + 1):
            held.put([Change("+I", {"k": 1})] * 1000)
        put.set()

    threading.Thread(target=give, daemon=True).start()
    assert not put.wait(0.3)
    for _ in range(1000):
        assert held.take(SECONDS) is not None
    assert put.wait(SECONDS)
    # Nor is it held up once nobody will take any.
    again = threading.Thread(target=held.put, args=([Change("+I", {})] * 10,), daemon=True)
    again.start()
    held.close()
    again.join(SECONDS)
    assert not again.is_alive()
    assert held.take(0) is None


def test_closed_changes_stop_their_job() -> None:
    run = FakeRun()
    with Changes(["k"], Job("j", run), ChangeBuffer()) as changes:
        assert not run.ended.is_set()
    assert run.ended.is_set()
    assert list(changes) == []


class FakeRun(SimpleNamespace):
    """What a Job needs of a run that ends when it is told."""

    def __init__(self) -> None:
        super().__init__(state="RUNNING", error=None, ended=threading.Event())

    def request_stop(self, *, drain: bool = False) -> None:
        self.ended.set()

    def join(self, timeout: float | None = None) -> None:
        self.ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self.ended.is_set()


# -- errors


@pytest.mark.parametrize(
    "statement",
    ["SELEC 1", "SELECT nothing FROM u", "CREATE TABLE x (a IMT)", "FROM nothing"],
)
def test_errors_do_not_show_what_is_inside(tmp_path: Path, statement: str) -> None:
    with sqlstream.Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE u (a STRING) WITH ('connector' = 'datagen')")
        for ask in (session.sql, session.query):
            with pytest.raises(SqlStreamError) as caught:
                ask(statement)
            error = caught.value
            assert error.__cause__ is None
            assert error.__suppress_context__
            frames = traceback.extract_tb(error.__traceback__)
            assert len(frames) <= 3, [f.name for f in frames]
            assert "\n".join(shown(error)) == error.render()


def shown(error: SqlStreamError) -> Sequence[str]:
    """Return what IPython shows: it asks an error for `_render_traceback_`."""
    return error._render_traceback_()
