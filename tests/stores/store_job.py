"""Jobs over files in a store, into a warehouse and files there, also in a process that tests kill.

`store_job.py BUCKET PROJECT ENGINE`
"""

from __future__ import annotations

import io
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from sqlstream.session.session import Session
from sqlstream.warehouse.stores import open_store

SCRIPT = """
SET 'parallelism.default' = '2';
CREATE TABLE given (k BIGINT, ts TIMESTAMP(3), name STRING METADATA FROM 'file.name', WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '{bucket}/given/*.parquet', 'format' = 'parquet',
    'source.max-files-per-batch' = '1', 'source.monitor-interval' = '100 ms');
CREATE TABLE counts (minute TIMESTAMP(3), part BIGINT, n BIGINT, total BIGINT);
CREATE TABLE files (k BIGINT, name STRING, part STRING) PARTITIONED BY (part)
WITH ('connector' = 'filesystem', 'path' = '{bucket}/files', 'format' = 'json');
SET 'pipeline.name' = 'both';
EXECUTE STATEMENT SET BEGIN
    INSERT INTO counts SELECT window_start, k % 3, count(*), sum(k)
    FROM TABLE(TUMBLE(TABLE given, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k % 3;
    INSERT INTO files SELECT k, name, 'p' || k % 2 FROM given;
END;
"""
LOCAL, SPARK = "local", "spark"
FILES, ROWS = 12, 40


def start(session: Session, bucket: str, engine: str) -> Job:
    """Start the job on Spark, or in this process."""
    [planned] = [
        one
        for one in session.compile(SourceText("script", SCRIPT.format(bucket=bucket)))
        if isinstance(one, PlannedJob)
    ]
    return session._jobs.start(planned, {}, engine=LocalEngine() if engine == LOCAL else None)


def put_input(bucket: str, files: range) -> None:
    fs, root = open_store(bucket)
    for number in files:
        keys = pa.array(range(number * ROWS, (number + 1) * ROWS))
        times = pa.array([k * 4_000_000 for k in keys.to_pylist()], pa.timestamp("us"))
        buffer = io.BytesIO()
        pq.write_table(pa.table({"k": keys, "ts": times}), buffer)
        with fs.create(f"{root}/given/{number:03}.parquet") as file:
            file.write(buffer.getvalue())


def expected() -> list[tuple[object, ...]]:
    """The answer over all rows at once."""
    rows = f"SELECT range AS k, make_timestamp(range * 4000000) AS ts FROM range({FILES * ROWS})"
    return duckdb.execute(
        f"SELECT date_trunc('minute', ts) AS minute, k % 3 AS part, count(*), sum(k)::BIGINT FROM ({rows}) GROUP BY ALL"
    ).fetchall()


def sink_files(bucket: str) -> list[tuple[int, str, str]]:
    """The rows of the files that a reader sees now, which leaves out hidden ones."""
    fs, root = open_store(bucket)
    found = []
    for path in fs.walk(f"{root}/files"):
        if "/.sqlstream-" not in path:
            text = fs.read_text(path)
            part = path.split("part=")[1].split("/")[0]
            found += [(row["k"], row["name"], part) for row in map(eval, text.splitlines())]
    return found


def main(bucket: str, project: str, engine: str) -> None:
    with Session(project, warehouse=f"{bucket}/wh") as session:
        start(session, bucket, engine).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
