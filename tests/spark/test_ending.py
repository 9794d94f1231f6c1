"""How a live job ends: drained from another process, stopped, or because its JVM is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.processes import SECONDS, children_of, kill_group, wait_until, wait_with
from tests.spark.orders import LIVE, ROWS, SCRIPT, ask, batch_answer, command, has_read, start, write_orders

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RESULT = "SELECT * FROM sales ORDER BY ALL"
FILES = 6


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_orders(tmp_path / "in", FILES)
    (tmp_path / "orders.sql").write_text(SCRIPT)
    return tmp_path


@pytest.mark.one_in(3, of="jobs on Spark")
def test_a_live_job_is_drained_from_another_process(project: Path) -> None:
    run = start(project, *LIVE)
    wait_with(run, lambda: has_read(project, FILES * ROWS))
    # Its last windows wait for later rows, and none will come.
    assert ask(project, RESULT) != batch_answer(project / "in")
    assert ask(project, "SELECT open_windows > 0 FROM sqlstream.operators") == [(True,)]
    drained = command(project, "stop", "--drain", "sales")
    assert (drained.returncode, drained.stderr) == (0, 'job "sales" drained: all its windows are closed\n')
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    assert ask(project, RESULT) == batch_answer(project / "in")
    assert ask(project, "SELECT status, watermark::VARCHAR FROM sqlstream.jobs") == [("DRAINED", "infinity")]
    assert ask(project, "SELECT state_rows, open_windows FROM sqlstream.operators") == [(0, 0)]
    # It cannot go on: what comes now belongs to windows that are closed.
    again = start(project, *LIVE)
    output, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, output
    assert 'job "sales" is drained and was skipped. All its windows were closed, so it cannot continue' in output
    assert command(project, "stop", "--drain", "sales").stderr.startswith('error: job "sales" is not running')


@pytest.mark.thorough
def test_a_drain_that_was_asked_for_survives_a_crash(project: Path) -> None:
    run = start(project, *LIVE)
    wait_with(run, lambda: has_read(project, FILES * ROWS))
    mark = project / "warehouse" / "jobs" / "sales" / "splits" / "drained"
    asking = subprocess.Popen(
        [sys.executable, "-m", "sqlstream", "stop", "--drain", "sales"],
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(mark.exists)
    kill_group(run)
    _, said = asking.communicate(timeout=SECONDS)
    # It was killed before its end, or just behind it.
    assert asking.returncode in (0, 1), said
    finished = start(project, *LIVE)
    output, _ = finished.communicate(timeout=SECONDS)
    assert finished.returncode == 0, output
    assert ask(project, RESULT) == batch_answer(project / "in")
    assert ask(project, "SELECT status FROM sqlstream.jobs") == [("DRAINED",)]


@pytest.mark.thorough
def test_a_session_drains_its_own_job_and_all_jobs_are_stopped(project: Path) -> None:
    options = {"orders": {"source.monitor-interval": "100 ms"}}
    with Session(str(project), table_options=options, notice=lambda text: None) as session:
        job = job_of(session.sql(SCRIPT))
        other = job_of(session.sql("CREATE TABLE ids (id BIGINT); INSERT INTO ids SELECT id FROM orders"))
        wait_until(lambda: (job.progress.rows_in, other.progress.rows_in) == (FILES * ROWS, FILES * ROWS))
        job.stop(drain=True)
        assert job.wait(SECONDS)
        assert job.status == "DRAINED"
        assert session.query(RESULT).fetchall() == batch_answer(project / "in")
        stopped = command(project, "stop", "--all")
        assert (stopped.returncode, stopped.stderr) == (0, 'job "ids" stopped\n')
        assert other.wait(SECONDS)
        assert other.status == "STOPPED"
        assert command(project, "stop", "--all", "--drain").stderr == "no job is running\n"


@pytest.mark.thorough
def test_a_jvm_that_is_killed_is_one_error_and_the_job_goes_on(project: Path) -> None:
    run = start(project, *LIVE, "--set", "restart-strategy.type=none")
    wait_with(run, lambda: has_read(project, FILES * ROWS))
    java, *_ = children_of(run.pid, "org.apache.spark.deploy.SparkSubmit")
    java.send_signal(signal.SIGKILL)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 1
    assert 'job "sales" failed: Spark\'s JVM ended: it was killed by SIGKILL' in output
    assert "hint: Run the job again: it continues after its last committed batch." in output
    assert f"log: {project}" in output
    assert "Errno" not in output
    assert "Traceback" not in output
    # And so it does; bounded this time, to its end.
    done = start(project)
    output, _ = done.communicate(timeout=SECONDS)
    assert done.returncode == 0, output
    assert ask(project, RESULT) == batch_answer(project / "in")


@pytest.mark.thorough
def test_the_locale_c_is_no_reason_to_fail(tmp_path: Path) -> None:
    project = tmp_path / "ö ñ"
    write_orders(project / "in", 2)
    (project / "orders.sql").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k != "LANG"} | {"LC_ALL": "C"}
    words = [sys.executable, "-m", "sqlstream", "run", "orders.sql"]
    done = subprocess.run(
        words,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert ask(project, RESULT) == batch_answer(project / "in")
