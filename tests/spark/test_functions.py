"""Functions in Spark's workers: over arrays, with defaults, made by CREATE FUNCTION, and with a resource that is closed."""

from __future__ import annotations

import io
import os
import select
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.processes import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MODULE = """
import os

import pyarrow as pa
import pyarrow.compute as pc
from sqlstream import udf


@udf(vectorized=True)
def plus(x: pa.Int64Array, by: pa.Int64Array = 1) -> pa.Int64Array:
    return pc.add(x, by)


class Counter:
    def open(self):
        self.pipe = os.open({pipe!r}, os.O_WRONLY)
        os.write(self.pipe, b"open ")

    def eval(self, x: int) -> int:
        return 10 * x

    def close(self):
        os.write(self.pipe, b"close")
        os.close(self.pipe)
"""
SCRIPT = """
CREATE TABLE events (x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'events', 'format' = 'parquet');
CREATE FUNCTION plus AS 'things.plus' LANGUAGE PYTHON;
CREATE FUNCTION tenfold AS 'things.Counter' LANGUAGE PYTHON;
CREATE TABLE out (x BIGINT, total BIGINT);
INSERT INTO out SELECT tenfold(plus(x)), SUM(plus(x, by => 100)) FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY plus(x), window_start, window_end;
"""


@pytest.mark.one_in(4, of="JVMs of their own")
def test_functions_in_workers(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "things.py").write_text(MODULE.format(pipe=str(pipe)))
    (tmp_path / "events").mkdir()
    with duckdb.connect() as con:
        rows = (
            "(VALUES (1, TIMESTAMP '2026-01-01'), (1, TIMESTAMP '2026-01-01'), (2, TIMESTAMP '2026-01-01')) AS t(x, ts)"
        )
        con.execute(f"COPY (SELECT x::BIGINT AS x, ts FROM {rows}) TO '{tmp_path}/events/a.parquet' (FORMAT parquet)")
    conf = {"parallelism.default": "1"}
    with Session(str(tmp_path), conf=conf, output=io.StringIO(), notice=lambda text: None) as session:
        job = job_of(session.sql(SCRIPT))
        assert job.wait(SECONDS)
        assert sorted(session.query("FROM out").fetchall()) == [(20, 202), (30, 102)]
        assert session.query("SELECT plus(1), plus(x => 1, by => 2)").fetchall() == [(2, 3)]
        assert os.read(reader, 100) == b"open "
    # Spark ends its workers with a signal, and does not wait for them.
    assert select.select([reader], [], [], SECONDS)[0]
    assert os.read(reader, 100) == b"close"
    os.close(reader)
