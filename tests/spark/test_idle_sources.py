"""A job over two folders of which one falls silent, on Spark: windows close, and what comes back later is late."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.processes import SECONDS, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]

TABLE = """
CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json', 'source.monitor-interval' = '50 ms'{more});
"""
JOB = """
CREATE TABLE counts (e TIMESTAMP, n BIGINT);
INSERT INTO counts
SELECT window_end, COUNT(*)
FROM TUMBLE(TABLE (SELECT * FROM a UNION ALL SELECT * FROM b), DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;
"""
SCRIPT = TABLE.format(name="a", more=", 'scan.watermark.idle-timeout' = '1 s'") + TABLE.format(name="b", more="") + JOB


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 10, 0, second)


def put(project: Path, table: str, *seconds: int) -> None:
    folder = project / table
    name = f"{len(os.listdir(folder)):03}.json"
    (project / name).write_text("".join(f'{{"k": 1, "ts": "{at(second)}"}}\n' for second in seconds))
    os.replace(project / name, folder / name)


@pytest.mark.one_in(3, of="jobs on Spark")
def test_a_silent_folder_does_not_hold_the_watermark(tmp_path: Path) -> None:
    for table in ("a", "b"):
        (tmp_path / table).mkdir()
    put(tmp_path, "a", 1)
    put(tmp_path, "b", 2, 25)
    with Session(str(tmp_path), output=io.StringIO(), notice=lambda text: None) as session:

        def counts() -> list[tuple[object, ...]]:
            return session.query("FROM counts ORDER BY ALL").fetchall()

        def sources() -> list[tuple[object, ...]]:
            sql = (
                "SELECT source, watermark, holds_minimum, idle_since IS NOT NULL FROM sqlstream.watermarks ORDER BY ALL"
            )
            return session.query(sql).fetchall()

        job = job_of(session.sql(SCRIPT))
        wait_until(lambda: counts() == [(at(10), 2)])
        assert sources() == [("a", at(25), False, True), ("b", at(25), True, False)]

        put(tmp_path, "a", 3, 26)
        # The job knows of a batch a moment before it is committed.
        wait_until(lambda: session.query("SELECT late_rows FROM sqlstream.operators").fetchall() == [(1,)])
        assert job.progress.rows_in == 5
        job.stop()
        job.wait(SECONDS)

        # a begins to wait anew, and holds the watermark where it was.
        put(tmp_path, "b", 45)
        job = job_of(session.sql(JOB.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")))
        wait_until(lambda: counts() == [(at(10), 2), (at(30), 2)])
        assert sources() == [("a", at(45), False, True), ("b", at(45), True, False)]
        # Rows came in four batches; each tick costs one, as does each time that windows close.
        [(batches,)] = session.query("SELECT version + 1 FROM sqlstream.jobs").fetchall()
        assert batches <= 10


@pytest.mark.thorough
def test_a_run_names_the_source_that_holds_the_watermark(tmp_path: Path) -> None:
    for folder in ("a", "b", "udfs"):
        (tmp_path / folder).mkdir()
    put(tmp_path, "a", 1)
    put(tmp_path, "b", 2, 25)
    (tmp_path / "job.sql").write_text(SCRIPT.replace(", 'scan.watermark.idle-timeout' = '1 s'", ""))
    command = [sys.executable, "-m", "sqlstream", "run", "job.sql"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        # A run that never says it would be waited for without an end.
        deadline = threading.Timer(SECONDS, run.kill)
        deadline.start()
        hint = next((line for line in run.stderr if "No result yet" in line), None)
        deadline.cancel()
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read()
    assert hint is not None
    assert hint.startswith(
        "counts: No result yet: 2 windows are open; the next one closes when the watermark reaches 2026-01-01 10:00:10,"
        ' but source "a" holds it back at 2026-01-01 10:00:01, 24 s behind the newest row of "b".'
    )
    assert "No result" not in rest
