"""Jobs on Spark whose newest files a power cut took: they go on by themselves, and give DuckDB's batch answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from sqlstream.queries.query import open_query
from sqlstream.session.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TABLE = """
CREATE TABLE orders (id BIGINT, shop BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
"""
JOB = """
CREATE TABLE {name} (shop BIGINT, window_start TIMESTAMP(3), n BIGINT, total HUGEINT);
INSERT INTO {name} SELECT shop, window_start, COUNT(*) AS n, SUM(id) AS total
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '4' SECOND)) GROUP BY shop, window_start, window_end;
"""
ANSWER = """
SELECT shop, time_bucket(INTERVAL '4 seconds', ts, TIMESTAMP '1970-01-01') AS window_start, count(*) AS n, sum(id) AS total
FROM read_parquet('{path}/*.parquet') GROUP BY ALL ORDER BY ALL
"""
WAIT = ("--set", "execution.end-of-input=wait", "--set", "parallelism.default=1")


def write(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    duckdb.execute(
        f"""COPY (SELECT i AS id, i % 5 AS shop, TIMESTAMP '2026-01-01' + to_milliseconds(i * 20) AS ts
        FROM range({number * 400}, {(number + 1) * 400}) t(i)) TO '{folder}/{number:03d}.parquet' (FORMAT parquet)"""
    )
    moment = 1_700_000_000 + number
    os.utime(folder / f"{number:03d}.parquet", (moment, moment))


def newest(folder: Path, pattern: str) -> Path:
    """Return the file of the last batch, by the first number in its name, of those that are not hidden."""
    paths = [path for path in folder.glob(pattern) if path.name[0] != "."]
    return max(paths, key=lambda path: int(re.findall(r"\d+", path.name)[0]))


def empty(pattern: str) -> Callable[[Path, str], None]:
    def hurt(warehouse: Path, job: str) -> None:
        os.truncate(newest(warehouse, pattern.format(job=job)), 0)

    return hurt


def missing(pattern: str) -> Callable[[Path, str], None]:
    def hurt(warehouse: Path, job: str) -> None:
        newest(warehouse, pattern.format(job=job)).unlink()

    return hurt


def killed_with_an_empty_offset(warehouse: Path, job: str) -> None:
    """Spark had begun the batch and not committed it; neither its offset nor that offset's checksums reached the disk."""
    checkpoint = warehouse / "jobs" / job / "checkpoint"
    commit = newest(checkpoint, "commits/*")
    for path in (commit, commit.with_name(f".{commit.name}.crc"), warehouse / "jobs" / job / "status.json"):
        path.unlink()
    os.truncate(checkpoint / "offsets" / commit.name, 0)
    os.truncate(checkpoint / "offsets" / f".{commit.name}.crc", 0)


def several(warehouse: Path, job: str) -> None:
    """All that the last batch wrote is empty, and the name of Spark's query."""
    for pattern in (
        "jobs/{job}/checkpoint/commits/*",
        "jobs/{job}/checkpoint/state/0/0/*.changelog",
        "jobs/{job}/log/*",
        "tables/{job}/{job}/manifests/0/*",
        "jobs/{job}/state/*/manifests/*/*",
    ):
        empty(pattern)(warehouse, job)
    os.truncate(warehouse / "jobs" / job / "checkpoint" / "metadata", 0)


def newest_snapshot(warehouse: Path, job: str) -> Path:
    """Return the newest snapshot of what Spark's own state store holds of a job; some batches make one."""
    return newest(warehouse / "jobs" / job / "checkpoint" / "state" / "0" / "0", "*.zip")


def changed_rows_of_sparks_store(warehouse: Path, job: str) -> None:
    """A bit of the file of rows that a snapshot of Spark's store names is another one; its changelogs are whole."""
    for path in newest_snapshot(warehouse, job).parent.glob("SSTs/[!.]*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)


def empty_snapshot_of_sparks_store(warehouse: Path, job: str) -> None:
    os.truncate(newest_snapshot(warehouse, job), 0)


def missing_rows_of_sparks_store(warehouse: Path, job: str) -> None:
    for path in newest_snapshot(warehouse, job).parent.glob("SSTs/[!.]*"):
        path.unlink()


DAMAGE: dict[str, Callable[[Path, str], None]] = {
    "sst": changed_rows_of_sparks_store,
    "no_sst": missing_rows_of_sparks_store,
    "zip": empty_snapshot_of_sparks_store,
    "changelog": empty("jobs/{job}/checkpoint/state/0/0/*.changelog"),
    "begun": killed_with_an_empty_offset,
    "result": missing("tables/{job}/{job}/manifests/0/*"),
    "everything": several,
}


def run(project: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "sqlstream", "run", "jobs.sql", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_jobs_go_on_after_a_power_cut(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "in", number)
    (tmp_path / "udfs").mkdir()
    (tmp_path / "jobs.sql").write_text(TABLE + "".join(JOB.format(name=name) for name in DAMAGE))
    run(tmp_path, *WAIT)
    for name, hurt in DAMAGE.items():
        hurt(tmp_path / "warehouse", name)
    with Session(str(tmp_path)) as session:
        assert {c.job for c in session.check() if c.damaged} == set(DAMAGE)
    for number in range(2, 3):
        write(tmp_path / "in", number)
    said = run(tmp_path)
    for name in DAMAGE:
        # A snapshot is made anew of the changes since an older one.
        if name not in ("begun", "sst", "no_sst", "zip"):
            assert f'job "{name}": batch' in said
    expected = duckdb.execute(ANSWER.format(path=tmp_path / "in")).fetchall()
    with Session(str(tmp_path)) as session:
        for name in DAMAGE:
            rows = open_query(session.warehouse, f"SELECT * FROM {name} ORDER BY ALL").fetchall()
            assert rows == expected, name
            assert session.query(f"SELECT rows_in, status FROM sqlstream.jobs WHERE job = '{name}'").fetchall() == [
                (1200, "FINISHED")
            ]
        assert [c.damaged for c in session.check()] == [()] * len(DAMAGE)
