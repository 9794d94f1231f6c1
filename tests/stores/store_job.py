"""Jobs over files in a store, into a warehouse and files there, in a process that tests kill.

`store_job.py BUCKET PROJECT ENGINE`
"""

from __future__ import annotations

import sys

from sqlstream.compiler.compiler import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from sqlstream.session.session import Session

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


def start(session: Session, bucket: str, engine: str) -> Job:
    """Start the job on Spark, or in this process."""
    [planned] = [
        one
        for one in session.compile(SourceText("script", SCRIPT.format(bucket=bucket)))
        if isinstance(one, PlannedJob)
    ]
    return session._jobs.start(planned, {}, engine=LocalEngine() if engine == LOCAL else None)


def main(bucket: str, project: str, engine: str) -> None:
    with Session(project, warehouse=f"{bucket}/wh") as session:
        start(session, bucket, engine).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
