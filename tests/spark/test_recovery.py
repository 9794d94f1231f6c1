"""Whatever is killed, and whenever: results, state and versions are those of an unbroken run, and DuckDB's batch answer."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.processes import SECONDS, kill_group, wait_until, wait_with
from tests.spark.orders import (
    FILES,
    LIVE,
    ROWS,
    SCRIPT,
    ask,
    batch_answer,
    drain,
    has_read,
    start,
    version,
    write_orders,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RESULT = "SELECT * FROM sales ORDER BY ALL"
# Other engines read what has come out, too.
PUBLISHED = SCRIPT.replace("first_id BIGINT);", "first_id BIGINT) WITH ('sqlstream.publish' = 'delta');")
# As many batches as are needed to kill something in the middle.
FEW = 6


def prepared(folder: Path, files: int, script: str = SCRIPT) -> Path:
    write_orders(folder / "in", files)
    (folder / "orders.sql").write_text(script)
    (folder / "udfs").mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return prepared(tmp_path, FEW)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """What makes a project whose job has read all files to its end, undisturbed, in the warehouse `warehouse`."""

    @cache
    def run() -> Path:
        project = prepared(tmp_path_factory.mktemp("unbroken"), FILES)
        finish(project)
        return project

    return run


def finish(project: Path, *arguments: str) -> str:
    run = start(project, *arguments)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    return output


@pytest.mark.one_in(3, of="kills on Spark")
@pytest.mark.parametrize(("files", "most"), [(FEW, 1), pytest.param(FILES, 10, marks=pytest.mark.thorough)])
def test_kills_change_nothing(unbroken: Callable[[], Path], tmp_path: Path, files: int, most: int) -> None:
    project = prepared(tmp_path, files, PUBLISHED)
    expected = batch_answer(project / "in")
    snapshots = "SELECT version, watermark FROM sqlstream.snapshots"
    moments = random.Random(4)
    kills = 0
    for _ in range(most):
        before = version(project)
        run = start(project)
        # From the first moment of a batch to the middle of the next one: also between its commit and Spark's. A fast machine must
        # not get to the end before all kills.
        wait_until(lambda before=before, run=run: version(project) > before or run.poll() is not None)
        moment = time.monotonic() + moments.uniform(0.0, 1.2)
        wait_until(lambda before=before, moment=moment: time.monotonic() > moment or version(project) > before + 1)
        if run.poll() is not None:
            output, _ = run.communicate()
            assert run.returncode == 0, output
            break
        kill_group(run)
        kills += 1
    finish(project)
    assert kills >= 0.8 * most
    assert ask(project, RESULT) == expected
    found = ask(project, snapshots)
    assert sorted(number for number, _ in found) == list(range(version(project) + 1))
    # A run without a kill has the same versions; a single kill is not worth a second run.
    assert most == 1 or found == ask(unbroken(), snapshots)
    published = DeltaTable(str(project / "warehouse" / "published" / "sales"))
    assert sorted(published.to_pyarrow_table().to_pylist(), key=str) == sorted(
        (dict(zip(published.schema().to_arrow().names, row, strict=True)) for row in expected), key=str
    )
    batches = [entry["sqlstream.batch"] for entry in published.history() if "sqlstream.batch" in entry]
    assert len(batches) == len(set(batches)) > 1
    assert ask(project, "SELECT status, rows_in, rows_out FROM sqlstream.jobs") == [
        ("FINISHED", files * ROWS, len(expected))
    ]
    assert ask(project, "SELECT count(*) FROM state.sales.by_shop") == [(0,)]


@pytest.mark.thorough
def test_an_old_version_of_a_finished_job_shows_its_open_windows(unbroken: Callable[[], Path]) -> None:
    found = ask(
        unbroken(),
        "SELECT s.version, s.watermark, (SELECT min(window_end) FROM state.sales.by_shop AT (VERSION => 10)) AS low,"
        " (SELECT sum(n) FROM state.sales.by_shop AT (VERSION => 10)) AS open,"
        " (SELECT sum(n) FROM sales AT (VERSION => 10)) AS closed FROM sqlstream.snapshots s WHERE s.version = 10",
    )
    [(_, watermark, low, open_rows, closed)] = found
    assert low > watermark
    assert open_rows + closed == 11 * ROWS


@pytest.mark.one_in(3, of="kills on Spark")
def test_a_killed_python_worker_is_replaced(project: Path) -> None:
    run = start(project, *LIVE)
    wait_with(run, lambda: version(project) >= 2)

    def kill_some() -> int:
        killed = 0
        for child in psutil.Process(run.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # It may end while it is looked at.
                # The JVM also starts programs for a moment: who kills those breaks the JVM itself.
                if "python" in child.name() and killed < 3:
                    child.kill()
                    killed += 1
        return killed

    wait_with(run, kill_some)
    wait_with(run, lambda: has_read(project, FEW * ROWS))
    drain(project, run)
    assert ask(project, RESULT) == batch_answer(project / "in")


@pytest.mark.one_in(4, of="JVMs of their own")
def test_a_job_runs_once_at_a_time_and_goes_on_after_ctrl_c(project: Path) -> None:
    run = start(project, *LIVE)
    wait_with(run, lambda: version(project) >= 2)
    second = start(project)
    output, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 2, output
    assert str(run.pid) in output
    assert run.poll() is None
    os.kill(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    assert "Traceback" not in output
    assert ask(project, "SELECT status FROM sqlstream.jobs") == [("STOPPED",)]
    assert "skipped" not in finish(project)
    assert "is finished and was skipped" in finish(project)
    assert ask(project, RESULT) == batch_answer(project / "in")
