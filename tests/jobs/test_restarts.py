"""Jobs that start again after an outage, in the same process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import sqlstream
from sqlstream import Context, process, udaf, udf, udtf
from sqlstream.connectors import Sink
from sqlstream.errors import JobError, OutageError, SourceText
from sqlstream.functions.kinds import declare_any
from sqlstream.jobs import restarting
from sqlstream.jobs.job import Job
from sqlstream.jobs.restart_strategies import ExponentialDelay, NoRestart, strategy_of
from sqlstream.local.engine import LocalEngine
from sqlstream.options import Options
from sqlstream.runtime import job_thread
from sqlstream.runtime.engine import Resources
from sqlstream.warehouse.status import Status, effective_status, read_status, write_status
from tests.clocks import HOURS, WrongClock, set_clock
from tests.kinds import job_of, jobs_of
from tests.processes import SECONDS, wait_until

SCRIPT = """
SET 'restart-strategy.exponential-delay.initial-backoff' = '10 ms';
CREATE TABLE given (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'json',
    'source.monitor-interval' = '10 ms', 'source.max-files-per-batch' = '1');
CREATE TABLE taken (n BIGINT, total BIGINT) WITH ('connector' = 'python', 'class' = 'tests.jobs.test_restarts.Server',
    'folder' = '{folder}');
INSERT INTO taken SELECT n, SUM(n) OVER (ORDER BY PROCTIME() ROWS UNBOUNDED PRECEDING) FROM given;
"""


class Server(Sink):
    """Writes each batch into a file; while the file `down` says a number, that many writes fail, with what else it says."""

    def __init__(self, folder: str):
        self._folder = Path(folder)

    def write(self, batch: int, table: pa.Table) -> None:
        down = self._folder / "down"
        if down.exists():
            times, error = down.read_text().split(" ", 1)
            if int(times) > 0:
                down.write_text(f"{int(times) - 1} {error}")
                raise {"ConnectionError": ConnectionError, "ValueError": ValueError}[error]("the server is down")
        (self._folder / f"{batch}.txt").write_text(
            "".join(f"{n} {total}\n" for n, total in zip(*table.columns, strict=True))
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    for number in range(5):
        (tmp_path / "given" / f"{number}.json").write_text(f'{{"n": {number}}}\n')
    return tmp_path


@pytest.fixture
def start(project: Path) -> Iterator[Callable[..., tuple[sqlstream.Session, Job]]]:
    sessions: list[sqlstream.Session] = []

    def started(settings: str = "") -> tuple[sqlstream.Session, Job]:
        session = sqlstream.Session(str(project), notice=lambda text: None)
        sessions.append(session)
        [planned] = jobs_of(session.compile(SourceText("t", settings + SCRIPT.replace("{folder}", str(project)))))
        return session, job_of(session._jobs.start(planned, {}, engine=LocalEngine()))

    yield started
    for session in sessions:
        session.close()


def rows(project: Path) -> list[tuple[str, ...]]:
    found = [line.split() for file in project.glob("*.txt") for line in file.read_text().splitlines()]
    return sorted(tuple(row) for row in found)


def restarts(session: sqlstream.Session) -> list[tuple[Any, ...]]:
    columns = "count(*), count(*) FILTER (error LIKE '%ConnectionError: the server is down%'), min(delay_ms) > 0"
    return session.query(f"SELECT {columns} FROM sqlstream.restarts").fetchall()


EVERY = [(str(n), str(n * (n + 1) // 2)) for n in range(5)]


def test_an_outage_is_waited_for(project: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "down").write_text("3 ConnectionError")
    seen = []

    def write_and_see(fs: Any, paths: Any, status: Status) -> None:
        seen.append(status.state)
        write_status(fs, paths, status)

    for module in (job_thread, restarting):
        monkeypatch.setattr(module, "write_status", write_and_see)
    session, job = start()
    wait_until(lambda: rows(project) == EVERY or job.status == "FAILED")
    assert rows(project) == EVERY
    assert job.status == "RUNNING"
    assert restarts(session) == [(3, 3, True)]
    assert session.query("SELECT status, restarts FROM sqlstream.jobs").fetchall() == [("RUNNING", 3)]
    assert any("restart 1 in" in warning for warning in job.warnings())
    job.stop()
    job.wait()
    assert job.status == "STOPPED"
    # Not even for a moment has it failed.
    assert (seen.count("RESTARTING"), seen.count("FAILED"), seen[-1]) == (3, 0, "STOPPED")


def test_what_is_wrong_fails_at_once(project: Path, start: Callable[..., Any]) -> None:
    (project / "down").write_text("1 ValueError")
    session, job = start()
    with pytest.raises(JobError, match="ValueError: the server is down"):
        job.wait()
    assert restarts(session) == [(0, 0, None)]
    assert session.query("SELECT status, restarts FROM sqlstream.jobs").fetchall() == [("FAILED", 0)]


@pytest.mark.parametrize(
    ("settings", "restarted", "limits"),
    [
        ("SET 'restart-strategy.type' = 'none';", 0, None),
        ("SET 'restart-strategy.type' = 'fixed-delay'; SET 'restart-strategy.fixed-delay.attempts' = '2';"
         "SET 'restart-strategy.fixed-delay.delay' = '1 ms';", 2, "fixed-delay: at most 2 restarts"),
        ("SET 'restart-strategy.type' = 'failure-rate'; SET 'restart-strategy.failure-rate.delay' = '1 ms';", 1,
         "failure-rate: at most 1 failure in 1 min"),
        ("SET 'restart-strategy.exponential-delay.attempts-before-reset-backoff' = '3';", 3,
         "exponential-delay: at most 3 restarts until the job has run for 1 h"),
    ],
)  # fmt: skip
def test_an_outage_that_lasts_ends_the_job(
    project: Path, start: Callable[..., Any], settings: str, restarted: int, limits: str | None
) -> None:
    (project / "down").write_text("1000 ConnectionError")
    session, job = start(settings)
    with pytest.raises(OutageError, match="ConnectionError: the server is down"):
        job.wait()
    assert session.query("SELECT status, restarts FROM sqlstream.jobs").fetchall() == [("FAILED", restarted)]
    [(error,)] = session.query("SELECT error FROM sqlstream.jobs").fetchall()
    assert ("by its restart strategy" in error) == (limits is not None)
    assert limits is None or f"({limits})" in error
    strategies = session.query("SELECT DISTINCT strategy FROM sqlstream.restarts").fetchall()
    assert strategies == ([] if limits is None else [(limits,)])
    # It goes on when it is started again.
    (project / "down").unlink()
    _, job = start(settings)
    wait_until(lambda: rows(project) == EVERY)


def test_failures_are_near_each_other_although_the_clock_jumps(
    project: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "down").write_text("1000 ConnectionError")
    set_clock(monkeypatch, WrongClock(step=HOURS))
    _, job = start("SET 'restart-strategy.type' = 'failure-rate'; SET 'restart-strategy.failure-rate.delay' = '1 ms';")
    with pytest.raises(OutageError, match="ConnectionError: the server is down"):
        job.wait(SECONDS)


def ask(folder: str) -> None:
    """Call a server that may be down."""
    down = Path(folder) / "down"
    if not down.exists():
        return
    times, error = down.read_text().split(" ", 1)
    if int(times) > 0:
        down.write_text(f"{int(times) - 1} {error}")
        kinds = {"ConnectionError": ConnectionResetError, "TimeoutError": TimeoutError, "ValueError": ValueError}
        raise kinds[error]("the server is down")


@udf(deterministic=False)
def asked(n: int, folder: str) -> int:
    ask(folder)
    return n


@udf(vectorized=True, deterministic=False)
def asked_at_once(n: pa.Int64Array, folder: pa.StringArray) -> pa.Int64Array:
    ask(folder[0].as_py())
    return n


@dataclass
class Answer:
    m: int = 0


@udtf
def answers(n: int, folder: str) -> Iterator[Answer]:
    ask(folder)
    yield Answer(n)


@udaf
class AskedSum:
    def accumulate(self, acc: Answer, n: int, folder: str) -> None:
        ask(folder)
        acc.m += n

    def finish(self, acc: Answer) -> int:
        return acc.m


@dataclass
class Given:
    n: int


@process
class Asking:
    def __init__(self, folder: str):
        self.folder = folder

    def process(self, ctx: Context, row: Given) -> Iterator[Answer]:
        ask(self.folder)
        yield Answer(row.n)


QUERIES = {
    "asked": "SELECT asked(n, '{}') FROM given",
    "asked_at_once": "SELECT asked_at_once(n, '{}') FROM given",
    "answers": "SELECT m FROM given CROSS JOIN LATERAL TABLE(answers(n, '{}'))",
    "asked_sum": "SELECT asked_sum(n, '{}') FROM given GROUP BY n",
    "asking": "SELECT m FROM asking(TABLE given PARTITION BY n, folder => '{}')",
}
KINDS: dict[str, Any] = {
    "asked": asked,
    "asked_at_once": asked_at_once,
    "answers": answers,
    "asked_sum": AskedSum,
    "asking": Asking,
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    ("error", "settings", "restarted"),
    [
        ("ConnectionError", "", 2),
        ("TimeoutError", "", 2),
        ("ValueError", "", 0),
        ("ValueError", "SET 'restart-strategy.user-code' = 'any';", 2),
    ],
)
def test_an_outage_that_a_function_meets_is_waited_for(
    project: Path, name: str, error: str, settings: str, restarted: int
) -> None:
    (project / "down").write_text(f"2 {error}")
    tables = SCRIPT.partition("CREATE TABLE taken")[0]
    script = f"{settings}{tables} CREATE TABLE found (n BIGINT); INSERT INTO found {QUERIES[name].format(project)}"
    with sqlstream.Session(str(project), notice=lambda text: None) as session:
        session.compiler.add_functions([declare_any(KINDS[name])])
        [planned] = jobs_of(session.compile(SourceText("t", script)))
        job = job_of(session._jobs.start(planned, {}, engine=LocalEngine()))
        count = "SELECT count(*), sum(n) FROM found"
        wait_until(
            lambda: job.status == "FAILED" or (job.status == "RUNNING" and session.query(count).fetchall() == [(5, 10)])
        )
        assert session.query("SELECT restarts FROM sqlstream.jobs").fetchall() == [(restarted,)]
        kind = "ConnectionResetError" if error == "ConnectionError" else error
        if restarted:
            assert job.status == "RUNNING"
            told = session.query("SELECT error FROM sqlstream.restarts").fetchall()
            assert all(f'function "{name}"' in text and f"{kind}: the server is down" in text for (text,) in told)
            job.stop()
            job.wait()
        else:
            with pytest.raises(JobError, match=f"{kind}: the server is down") as raised:
                job.wait()
            assert not isinstance(raised.value, OutageError)


def test_a_sink_that_fails_otherwise_is_run_again_if_that_is_asked_for(
    project: Path, start: Callable[..., Any]
) -> None:
    (project / "down").write_text("3 ValueError")
    session, job = start("SET 'restart-strategy.user-code' = 'any';")
    wait_until(lambda: rows(project) == EVERY or job.status == "FAILED")
    assert rows(project) == EVERY
    assert session.query("SELECT status, restarts FROM sqlstream.jobs").fetchall() == [("RUNNING", 3)]


def test_a_job_whose_process_died_is_said_to_restart_until_it_runs(project: Path, start: Callable[..., Any]) -> None:
    session, job = start()
    wait_until(lambda: rows(project) == EVERY)
    job.stop()
    job.wait()
    fs, paths = session.warehouse.fs, session.warehouse.job("taken")
    found = read_status(fs, paths)
    assert found is not None
    # As a process leaves it that is killed.
    write_status(fs, paths, replace(found, state="RUNNING", pid=found.pid + 1))
    seen: list[Status | None] = []

    class Seen(LocalEngine):
        def prepare(self, resources: Resources) -> None:
            seen.append(effective_status(fs, paths))

    [planned] = jobs_of(session.compile(SourceText("t", SCRIPT.replace("{folder}", str(project)))))
    job_of(session._jobs.start(planned, {}, engine=Seen())).stop()
    assert [(one.state, one.pid) for one in seen if one is not None] == [("RESTARTING", os.getpid())]


def test_a_job_that_waits_can_be_stopped_by_others(project: Path, start: Callable[..., Any]) -> None:
    (project / "down").write_text("1000 ConnectionError")
    session, job = start(
        "SET 'restart-strategy.type' = 'fixed-delay'; SET 'restart-strategy.fixed-delay.delay' = '1 h';"
    )
    wait_until(lambda: job.status == "RESTARTING")
    [(status, error)] = session.query("SELECT status, error FROM sqlstream.jobs").fetchall()
    assert status == "RESTARTING"
    assert "the server is down" in error
    session.stop("taken")
    job.wait()
    assert job.status == "STOPPED"
    assert session.query("SELECT status, error FROM sqlstream.jobs").fetchall() == [("STOPPED", None)]


def test_a_strategy_has_its_options(project: Path) -> None:
    session = sqlstream.Session(str(project))
    for name, value, said in (
        ("type", "sometimes", "needs one of none, fixed-delay"),
        ("exponential-delay.backoff-multiplier", "0.5", "needs a number from 1 on"),
        ("exponential-delay.jitter-factor", "x", "needs a number from 0 to 1"),
        ("exponential-delay.attempts-before-reset-backoff", "-1", "needs a whole number"),
    ):
        with pytest.raises(sqlstream.SqlStreamError, match=said):
            session.sql(f"SET 'restart-strategy.{name}' = '{value}'")
    session.close()


def test_a_job_whose_input_ends_is_not_restarted_by_default_and_another_one_is() -> None:
    assert isinstance(strategy_of(Options(), bounded=True), NoRestart)
    assert isinstance(strategy_of(Options(), bounded=False), ExponentialDelay)
