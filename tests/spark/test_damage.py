"""Jobs on Spark whose newest files a power cut took: they go on by themselves, and give DuckDB's batch answer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from sqlstream.queries.query import open_query
from sqlstream.session.session import Session
from tests.forked import run_python

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


def killed(warehouse: Path, job: str) -> Path:
    """The last batch had begun, and was not committed; return what says that it had begun."""
    folder = warehouse / "jobs" / job
    for path in (newest(folder, "checkpoint/commits/*"), folder / "status.json"):
        path.unlink()
    return folder / "begun.json"


def killed_with_an_empty_record(warehouse: Path, job: str) -> None:
    os.truncate(killed(warehouse, job), 0)


def of_an_older_version(warehouse: Path, job: str) -> None:
    """It was killed by a power cut, and has Spark's checkpoint in its folder, of whose newest files nothing reached the disk."""
    path = killed(warehouse, job)
    begun = json.loads(path.read_text().splitlines()[0])
    path.unlink()
    checkpoint = path.parent / "checkpoint"
    for folder in ("offsets", "state/0/0"):
        (checkpoint / folder).mkdir(parents=True)
    clocks = {"batchWatermarkMs": 0, "batchTimestampMs": begun["time"] // 1000, "conf": {}}
    (checkpoint / "offsets" / str(begun["version"])).write_text(f"v1\n{json.dumps(clocks)}\n{begun['sequence']}")
    for empty_file in ("metadata", "state/0/0/1.changelog"):
        (checkpoint / empty_file).touch()
    empty("jobs/{job}/log/*")(warehouse, job)


def several(warehouse: Path, job: str) -> None:
    """All that the last batch wrote is empty."""
    for pattern in (
        "jobs/{job}/checkpoint/commits/*",
        "jobs/{job}/log/*",
        "tables/{job}/{job}/manifests/0/*",
        "jobs/{job}/state/*/manifests/*/*",
    ):
        empty(pattern)(warehouse, job)
    os.truncate(warehouse / "jobs" / job / "begun.json", 0)


DAMAGE: dict[str, Callable[[Path, str], None]] = {
    "committed": empty("jobs/{job}/checkpoint/commits/*"),
    "begun": killed_with_an_empty_record,
    "older": of_an_older_version,
    "result": missing("tables/{job}/{job}/manifests/0/*"),
    "everything": several,
}
# Those that go on after their newest version.
AS_THEY_ARE = ("begun", "older")


def run(project: Path, *arguments: str) -> str:
    done = run_python("-m", "sqlstream", "run", "jobs.sql", *arguments, cwd=project, job=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.thorough
def test_jobs_go_on_after_a_power_cut(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "in", number)
    (tmp_path / "udfs").mkdir()
    (tmp_path / "jobs.sql").write_text(TABLE + "".join(JOB.format(name=name) for name in DAMAGE))
    run(tmp_path, *WAIT)
    for name, hurt in DAMAGE.items():
        hurt(tmp_path / "warehouse", name)
    with Session(str(tmp_path)) as session:
        assert {c.job for c in session.check() if c.damaged} == set(DAMAGE) - {"older"}
    for number in range(2, 3):
        write(tmp_path / "in", number)
    said = run(tmp_path)
    for name in DAMAGE:
        assert (f'job "{name}": batch' in said) == (name not in AS_THEY_ARE)
    expected = duckdb.execute(ANSWER.format(path=tmp_path / "in")).fetchall()
    with Session(str(tmp_path)) as session:
        for name in DAMAGE:
            rows = open_query(session.warehouse, f"SELECT * FROM {name} ORDER BY ALL").fetchall()
            assert rows == expected, name
            assert session.query(f"SELECT rows_in, status FROM sqlstream.jobs WHERE job = '{name}'").fetchall() == [
                (1200, "FINISHED")
            ]
        assert [c.damaged for c in session.check()] == [()] * len(DAMAGE)
