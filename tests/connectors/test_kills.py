"""Jobs killed at any moment: the one behind sees every row of the one before once, and readers of files no wrong one."""

from __future__ import annotations

import random
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.two_jobs import SCRIPT
from tests.forked import Forked, start_python
from tests.processes import SECONDS

FILES, ROWS = 40, 50
# The jobs take 20 batches: however fast a machine is, a killed run does so few that there is something left for the last one.
KILLS, ROUNDS = 6, 3


def start(project: Path, *arguments: str) -> Forked:
    return start_python(str(Path(__file__).parent / "two_jobs.py"), str(project), *arguments)


def visible(project: Path) -> list[tuple[int, str | None]]:
    """The rows of all files that a reader sees now."""
    pattern = f"{project}/files/**/*.parquet"
    if not duckdb.execute(f"FROM glob('{pattern}')").fetchall():
        return []
    return duckdb.execute(f"SELECT k, part FROM read_parquet('{pattern}', hive_partitioning = true)").fetchall()


@pytest.mark.slow
def test_kills_of_writer_and_reader_change_nothing(project: Path) -> None:
    moments = random.Random(7)
    for _ in range(KILLS):
        run = start(project, str(ROUNDS))
        assert run.stdout is not None
        assert run.stdout.readline() == "batch\n", run.communicate()[0]
        deadline = time.monotonic() + moments.uniform(0.0, 0.3)
        while time.monotonic() < deadline:
            check(visible(project))
        run.kill()
        run.communicate()
        check(visible(project))
    run = start(project)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    rows = visible(project)
    check(rows)
    assert len(rows) == FILES * ROWS
    assert not list((project / "files").glob(".sqlstream-*"))


def check(rows: list[tuple[int, str | None]]) -> None:
    keys = [k for k, _ in rows]
    assert len(keys) == len(set(keys)), "a row is there twice"
    assert all(part == (f"p/{k % 3}" if k % 3 else None) for k, part in rows)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    for number in range(FILES):
        keys = pa.array(range(number * ROWS, (number + 1) * ROWS))
        table = pa.table({"k": keys, "ts": keys.cast(pa.timestamp("us"))})
        pq.write_table(table, tmp_path / "given" / f"{number:03}.parquet")
    assert "PARTITIONED BY" in SCRIPT
    return tmp_path
