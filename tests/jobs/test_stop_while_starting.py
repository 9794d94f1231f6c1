"""A job that is asked to stop while it starts, after its process died."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sqlstream.errors import SourceText
from sqlstream.jobs import ending
from sqlstream.runtime.engine import Resources
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import DRAINED, RUNNING, STOPPED, read_status, request_stop, write_status
from tests.kinds import jobs_of
from tests.processes import SECONDS
from tests.proof.savepoints.step import InProcess, open_session

SCRIPT = """
CREATE TABLE t (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE out (k BIGINT);
SET 'pipeline.name' = 'job';
SET 'execution.end-of-input' = 'wait';
INSERT INTO out SELECT k FROM t;
"""


class SlowEngine(InProcess):
    """An engine that takes so long to start that somebody asks the job to stop meanwhile."""

    def __init__(self, warehouse: Warehouse, drain: bool):
        self._warehouse, self._drain = warehouse, drain

    def prepare(self, resources: Resources) -> None:
        ending.ask(self._warehouse, "job", drain=self._drain)


def run(project: Path, engine: InProcess) -> str:
    with open_session(project) as session:
        [planned] = jobs_of(session.compile(SourceText("script", SCRIPT)))
        assert session._jobs.start(planned, {}, engine=engine).wait(SECONDS)
    status = read_status(Warehouse(str(project / "warehouse")).fs, Warehouse(str(project / "warehouse")).job("job"))
    assert status is not None
    return status.state


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """The warehouse of a job whose process died while it ran."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1}')
    assert run(tmp_path, InProcess()) == STOPPED
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    status = read_status(warehouse.fs, warehouse.job("job"))
    assert status is not None
    write_status(warehouse.fs, warehouse.job("job"), replace(status, state=RUNNING))
    return warehouse


def test_a_job_drains_that_was_asked_to_while_it_started(warehouse: Warehouse, tmp_path: Path) -> None:
    assert run(tmp_path, SlowEngine(warehouse, drain=True)) == DRAINED


def test_a_job_stops_that_was_asked_to_while_it_started(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "in" / "1.json").write_text('{"k": 2}')
    assert run(tmp_path, SlowEngine(warehouse, drain=False)) == STOPPED
    with open_session(tmp_path) as session:
        assert session.query("SELECT count(*) FROM out").fetchall() == [(1,)]


def test_what_was_asked_of_a_dead_process_is_forgotten(warehouse: Warehouse, tmp_path: Path) -> None:
    request_stop(warehouse.fs, warehouse.job("job"), drain=True)
    assert run(tmp_path, InProcess()) == STOPPED
