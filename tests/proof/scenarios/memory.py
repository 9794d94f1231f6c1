"""A state that outgrows the memory of its job, whose processes are killed meanwhile."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import duckdb
import psutil

from tests.forked import Forked
from tests.proof.scenarios.runs import ProofError, ScenarioProject
from tests.proof.scenarios.work import Work

# With each kill 800,000 rows come: 20 million with 25, most of them of new keys.
_FILES_OF_A_KILL = 4
_KEYS_OF_A_FILE = 200_000
# One row in so many of a file has a key of the file before.
_REPEATED = 4
_WATCHED = "--set-table=t.source.monitor-interval=20 ms"

LARGE_STATE = Work(
    """CREATE TABLE t (k BIGINT, x BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'in/t', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE {out} (k BIGINT, n BIGINT, x BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO {out} SELECT k, COUNT(*) AS n, CAST(SUM(x) AS BIGINT) AS x FROM t GROUP BY k;
""",
    {},
    reads=(),
    options={"sqlstream.memory": "128 MB"},
)


def outgrow_memory(project: ScenarioProject, kills: int) -> str:
    """Kill the job after a batch of many new keys, in the next one, so often; it says what memory a process had at most."""
    folder = project.folder / "in" / "t"
    folder.mkdir(parents=True)
    peaks: list[int] = []

    def look(process: Forked) -> None:
        peaks.append(psutil.Process(process.pid).memory_info().rss >> 20)

    for number in range(kills):
        for file in range(_FILES_OF_A_KILL):
            put_keys(folder, number * _FILES_OF_A_KILL + file)
        process = project.start_job(_WATCHED)
        project.kill(process, meanwhile=partial(look, process))
        project.busy += project.rows_in() < (number + 1) * _FILES_OF_A_KILL * _KEYS_OF_A_FILE
    project.finish()
    sums = "SELECT count(*), sum(n)::BIGINT, sum(x)::BIGINT, min(n), max(n)"
    with duckdb.connect() as con:
        counts = f"SELECT k, count(*) AS n, sum(x) AS x FROM '{folder}/*.parquet' GROUP BY k"
        expected = con.execute(f"{sums} FROM ({counts})").fetchall()
    if (rows := project.query(f"{sums} FROM out")) != expected:
        raise ProofError(f"keys, rows and sum are {rows}, and must be {expected}")
    return f"{expected[0][0]:,} keys, DuckDB's sums; {max(peaks)} MB in a process at most, sqlstream.memory is 128 MB"


def put_keys(folder: Path, number: int) -> None:
    """Write a file of new keys, and some of the file before."""
    hidden = folder / ".next"
    first = number * _KEYS_OF_A_FILE
    repeated = f"CASE WHEN i % {_REPEATED} = 0 AND i >= {_KEYS_OF_A_FILE} THEN i - {_KEYS_OF_A_FILE} ELSE i END"
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT {repeated} AS k, i % 1000 AS x FROM range({first}, {first + _KEYS_OF_A_FILE}) t(i))"
            f" TO '{hidden}' (FORMAT parquet)"
        )
    hidden.rename(folder / f"{number:06}.parquet")
