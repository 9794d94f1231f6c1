"""A project that was moved or copied, stopped or killed, goes on: no file is read twice, and the original stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.forked import Forked, start_python
from tests.processes import SECONDS, kill_family, wait_with
from tests.spark.orders import version

pytestmark = [pytest.mark.spark, pytest.mark.slow]
# More than twice as many batches as descriptors are kept (moving_jobs.KEPT).
FILES = 8
SCRIPT = """
SET 'execution.end-of-input' = 'wait';
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE readings (id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.max-files-per-batch' = '1');
CREATE TABLE minutes (window_start TIMESTAMP(3), n BIGINT);
CREATE TABLE even (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
SET 'pipeline.name' = 'first';
EXECUTE STATEMENT SET BEGIN
INSERT INTO minutes WITH by_minute AS (
    SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end
) SELECT window_start, n FROM by_minute;
INSERT INTO even SELECT id FROM readings WHERE id % 2 = 0;
END;
RESET 'pipeline.name';
CREATE TABLE total (n BIGINT, PRIMARY KEY (n) NOT ENFORCED);
INSERT INTO total SELECT SUM(n) FROM minutes;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    (folder / "in").mkdir(parents=True)
    (folder / "udfs").mkdir()
    (folder / "jobs.sql").write_text(SCRIPT)
    for number in range(FILES):
        put(folder, number)
    return folder


def put(project: Path, number: int) -> None:
    """Write a file of two rows: one for each of two minutes, which the next file's close."""
    rows = [{"id": 2 * number + i, "ts": f"2026-01-01 00:{number + i:02}:00"} for i in range(2)]
    path = project / "in" / f"{number:03}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_700_000_000 + number,) * 2)


def start(project: Path, *mode: str) -> Forked:
    return start_python(str(Path(__file__).parent / "moving_jobs.py"), str(project), *mode, cwd=project)


def run(project: Path) -> str:
    process = start(project)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return output


def copy(project: Path, name: str) -> Path:
    target = project.parent / name
    subprocess.run(["cp", "-a", str(project), str(target)], check=True)
    return target


def check(project: Path, files: int) -> None:
    """Every row of so many files counts once: in closed windows, in those that are open, and in the files written."""
    warehouse = Warehouse(str(project / "warehouse"))

    def ask(sql: str) -> list[tuple[Any, ...]]:
        return open_query(warehouse, sql).fetchall()

    assert ask("SELECT rows_in FROM sqlstream.jobs WHERE job = 'first'") == [(2 * files,)]
    [(closed, open_rows)] = ask("SELECT (SELECT sum(n) FROM minutes), (SELECT sum(n) FROM state.first.by_minute)")
    assert closed + open_rows == 2 * files
    assert ask("SELECT n FROM total") == [(closed,)]
    written = [json.loads(line)["id"] for path in (project / "out").glob("*.json") for line in path.open()]
    assert sorted(written) == list(range(0, 2 * files, 2))


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder, with its size and when it was last written, but for logs, in which Spark may have the last word."""
    found = {}
    for path in (path for path in folder.rglob("*") if "logs" not in path.parts):
        status = path.stat()
        found[str(path.relative_to(folder))] = (status.st_mtime_ns, status.st_size)
    return found


@pytest.mark.thorough
def test_a_copy_goes_on_beside_the_original_and_so_does_what_was_moved(project: Path) -> None:
    run(project)
    check(project, FILES)
    before = tree(project)
    copied = copy(project, "copy")
    assert "not read again" not in run(copied)
    check(copied, FILES)
    put(copied, FILES)
    run(copied)
    check(copied, FILES + 1)
    assert tree(project) == before
    for path in (copied / "warehouse" / "jobs").rglob("*"):
        assert path.is_dir() or str(project).encode() not in path.read_bytes(), path
    moved = project.rename(project.parent / "moved to [a] place")
    put(moved, FILES)
    put(moved, FILES + 1)
    run(moved)
    check(moved, FILES + 2)
    check(copied, FILES + 1)


@pytest.mark.thorough
def test_a_copy_of_a_killed_run_goes_on_and_so_does_the_original(project: Path) -> None:
    process = start(project, "live")
    wait_with(process, lambda: version(project, "first") >= 5)
    kill_family(process)
    copied = copy(project, "copy")
    before = tree(project)
    put(copied, FILES)
    run(copied)
    check(copied, FILES + 1)
    assert tree(project) == before
    run(project)
    check(project, FILES)
