"""Jobs on Spark that start again in the same process: after an outage, and with a new JVM after the death of theirs."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sqlstream
from sqlstream.connectors import Sink
from sqlstream.errors import SourceText
from sqlstream.spark.jvm import running_jvm
from tests.kinds import job_of, jobs_of
from tests.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
SET 'restart-strategy.exponential-delay.initial-backoff' = '10 ms';
SET 'parallelism.default' = '1';
CREATE TABLE given (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'json',
    'source.monitor-interval' = '10 ms', 'source.max-files-per-batch' = '1');
CREATE TABLE taken (n BIGINT, total BIGINT) WITH ('connector' = 'python', 'class' = 'tests.spark.test_restarts.Mortal',
    'folder' = '{folder}');
CREATE TABLE copied (n BIGINT);
INSERT INTO copied SELECT n FROM given;
INSERT INTO taken SELECT n, SUM(n) OVER (ORDER BY PROCTIME() ROWS UNBOUNDED PRECEDING) FROM given;
"""


class Mortal(Sink):
    """Appends each batch to a file that is named by it; some rows are met by something.

    The row 1 by an outage, the row 2 by the loss of Spark's temporary files, the row 3 by the death of the JVM.
    """

    def __init__(self, folder: str):
        self._folder = Path(folder)

    def write(self, batch: int, table: pa.Table) -> None:
        numbers = table.column("n").to_pylist()
        if 1 in numbers and self._is_first("outage"):
            raise ConnectionError("the server is down")
        if 2 in numbers and self._is_first("loss"):
            shutil.rmtree(running_jvm().temporary)
        if 3 in numbers and self._is_first("death"):
            process = running_jvm().process
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        with open(self._folder / f"{batch}.txt", "a") as file:
            file.write("".join(f"{n} {total}\n" for n, total in zip(*table.columns, strict=True)))

    def _is_first(self, name: str) -> bool:
        mark = self._folder / name
        was_there = mark.exists()
        mark.touch()
        return not was_there


@pytest.fixture
def session(tmp_path: Path) -> Iterator[sqlstream.Session]:
    (tmp_path / "given").mkdir()
    for number in range(5):
        (tmp_path / "given" / f"{number}.json").write_text(f'{{"n": {number}}}\n')
    with sqlstream.Session(str(tmp_path), notice=lambda text: None) as session:
        yield session


@pytest.mark.one_in(3, of="kills on Spark")
def test_an_outage_and_the_death_of_the_jvm_change_nothing(session: sqlstream.Session, tmp_path: Path) -> None:
    planned = jobs_of(session.compile(SourceText("t", SCRIPT.replace("{folder}", str(tmp_path)))))
    jobs = [job_of(session._jobs.start(one, {})) for one in planned]
    wait_until(lambda: [job.progress.rows_in for job in jobs] == [5, 5] or "FAILED" in [job.status for job in jobs])
    assert [job.status for job in jobs] == ["RUNNING"] * 2, [job.error for job in jobs]
    restarts = "SELECT error FROM sqlstream.restarts WHERE job = '{}' ORDER BY failed_at"
    [(outage,), (loss,), (death,)] = session.query(restarts.format("taken")).fetchall()
    assert "ConnectionError: the server is down" in outage
    assert "Spark's folder for temporary files is gone" in loss
    assert "Spark's JVM ended: it was killed by SIGKILL" in death
    # Another job on the same JVM goes on, too.
    others = [error.split("\n")[0] for (error,) in session.query(restarts.format("copied")).fetchall()]
    assert others[-1] == 'job "copied" failed: Spark\'s JVM ended: it was killed by SIGKILL'
    for job in jobs:
        job.stop()
        job.wait()
    assert session.query("SELECT n FROM copied ORDER BY n").fetchall() == [(n,) for n in range(5)]
    batches = {file.name: file.read_text().splitlines() for file in tmp_path.glob("*.txt")}
    # The batch whose end the JVM did not live to see was written and committed: it does not come again.
    assert sorted(line for lines in batches.values() for line in lines) == ["0 0", "1 1", "2 3", "3 6", "4 10"]
