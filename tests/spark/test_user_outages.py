"""Functions that call a server which is away, in Spark's workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sqlstream
from tests.kinds import job_of
from tests.processes import wait_until

pytestmark = pytest.mark.spark

FUNCTIONS = """
from pathlib import Path

from sqlstream import udf


@udf(deterministic=False)
def asked(n: int, folder: str) -> int:
    if (Path(folder) / "down").exists():
        raise ConnectionRefusedError("the server is down")
    return n
"""
SCRIPT = """
SET 'restart-strategy.exponential-delay.initial-backoff' = '10 ms';
CREATE TABLE given (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'json',
    'source.monitor-interval' = '50 ms');
CREATE TABLE found (n BIGINT);
INSERT INTO found SELECT asked(n, '{}') FROM given;
"""


@pytest.mark.thorough
def test_an_outage_that_a_function_meets_is_waited_for(shared_jvm: Callable[[], Any], tmp_path: Path) -> None:
    for name in ("given", "udfs"):
        (tmp_path / name).mkdir()
    (tmp_path / "given" / "1.json").write_text('{"n": 1}\n')
    (tmp_path / "udfs" / "asking.py").write_text(FUNCTIONS)
    (tmp_path / "down").touch()
    with sqlstream.Session(str(tmp_path), conf={"parallelism.default": "1"}, notice=lambda text: None) as session:
        job = job_of(session.sql(SCRIPT.format(tmp_path)))
        wait_until(lambda: job.status in ("RESTARTING", "FAILED"))
        (tmp_path / "down").unlink()
        wait_until(
            lambda: (
                job.status == "FAILED"
                or (job.status == "RUNNING" and session.query("SELECT n FROM found").fetchall() == [(1,)])
            )
        )
        assert job.status == "RUNNING"
        [(error,), *_] = session.query("SELECT error FROM sqlstream.restarts").fetchall()
        assert 'function "asked" raised ConnectionRefusedError: the server is down' in error
        assert "udfs/asking.py:" in error
        job.stop()
        job.wait()
