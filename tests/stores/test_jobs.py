"""Jobs whose warehouse, input and output are in a store: killed at any moment, asked meanwhile, and run by one process."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.local.engine import LocalEngine
from sqlstream.session.session import Session
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.stores import open_store
from tests.forked import Forked, start_python
from tests.processes import SECONDS, kill_group, wait_until, wait_with
from tests.stores import store_job
from tests.stores.server import SECRET, S3Server
from tests.stores.store_job import FILES, LOCAL, ROWS, SCRIPT, SPARK, expected, put_input, sink_files

STATE = "state.both.window_aggregate_1"
# Requests of the store that a batch of this job takes, measured 24 with rows and 5 to 8 without: its descriptor, a segment and a
# manifest of the state and of the results of each bucket, two files of the sink with their names and its record, the log and the
# commit, and some lists.
PER_BATCH, PER_EMPTY_BATCH = 25, 8
# What a job renews, asks for and says now and then.
BY_CLOCK = ("/lock", "/stop", "/status.json")


def start(bucket: str, project: Path, engine: str) -> Forked:
    return start_python(store_job.__file__, bucket, str(project), engine, own_group=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "kills"),
    [
        (LOCAL, 1),
        pytest.param(LOCAL, 3, marks=pytest.mark.thorough),
        pytest.param(SPARK, 2, marks=[pytest.mark.spark, pytest.mark.thorough]),
    ],
)
def test_kills_change_nothing(bucket: str, tmp_path: Path, engine: str, kills: int) -> None:
    moments = random.Random(11)
    put_input(bucket, range(FILES - kills - 1))
    answer = set(expected())
    with Session(str(tmp_path), warehouse=f"{bucket}/wh") as other:

        def rows_in() -> int:
            if not other.warehouse.fs.entries(other.warehouse.root):
                return 0
            [(rows,)] = other.query("SELECT coalesce(max(rows_in), 0) FROM sqlstream.jobs").fetchall()
            return int(rows)

        def check() -> None:
            if rows_in():
                found = other.query("FROM counts").fetchall()
                assert len(set(found)) == len(found)
                assert set(found) <= answer
            files = Counter(k for k, _, _ in sink_files(bucket))
            assert not files or max(files.values()) == 1

        for kill in range(kills):
            before = rows_in()
            # However fast the one before was, this one has something to read.
            put_input(bucket, range(FILES - kills - 1 + kill, FILES - kills + kill))
            process = start(bucket, tmp_path, engine)
            wait_with(process, lambda before=before: rows_in() > before)
            deadline = time.monotonic() + moments.uniform(0.0, 0.4)
            while time.monotonic() < deadline:
                check()
            kill_group(process)
            check()
        # The last file is for the last process, which has the job once it has read it.
        put_input(bucket, range(FILES - 1, FILES))
        process = start(bucket, tmp_path, engine)
        wait_with(process, lambda: rows_in() == FILES * ROWS)
        with pytest.raises(SqlStreamError, match=f'job "both" is being run by process {process.pid}'):
            other.sql(SCRIPT.format(bucket=bucket))
        other.stop("both", drain=True)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
        assert sorted(other.query("FROM counts").fetchall()) == sorted(answer)
        assert sorted(sink_files(bucket)) == [(k, f"{k // ROWS:03}.parquet", f"p{k % 2}") for k in range(FILES * ROWS)]
        assert other.query(f"SELECT count(*) FROM {STATE}").fetchall() == [(0,)], "all windows are over"
        # What an old version has counted, in windows that were open and in those that were over.
        counted = f'SELECT (SELECT sum("count(*)") FROM {STATE} AT (VERSION => 4)), (SELECT sum(n) FROM counts AT (VERSION => 4))'
        [(still_open, over)] = other.query(counted).fetchall()
        assert still_open > 0
        assert (still_open + over) in range(2 * ROWS, 6 * ROWS, ROWS)
        assert not [c.damaged for c in other.check() if c.damaged]
        everything = "".join(text_of(path, bucket) for path in open_store(bucket)[0].walk(bucket))
        assert SECRET not in everything
        other.drop("both")
        assert list(Warehouse(f"{bucket}/wh").fs.walk(f"{bucket}/wh")) == []
        assert sink_files(bucket) == []


def test_a_cluster_without_a_place_for_the_checkpoint_is_refused(bucket: str, tmp_path: Path) -> None:
    put_input(bucket, range(1))
    with (
        Session(str(tmp_path), warehouse=f"{bucket}/wh", conf={"spark.master": "spark://host:7077"}) as session,
        pytest.raises(UsageError, match=r'needs a place for Spark\'s checkpoint on "spark://host:7077"'),
    ):
        store_job.start(session, bucket, SPARK)


def text_of(path: str, bucket: str) -> str:
    with open_store(bucket)[0].open_bytes(path) as file:
        return file.read().decode(errors="replace")


@pytest.mark.slow
def test_requests_of_a_batch_are_few(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    put_input(bucket, range(4))
    with Session(str(tmp_path), warehouse=f"{bucket}/wh") as session:
        job = store_job.start(session, bucket, LOCAL)

        def has_read(files: int) -> bool:
            assert job.error is None, job.error
            return job.progress.rows_in == files * ROWS and job.is_waiting

        wait_until(lambda: has_read(4))
        s3.requests.clear()
        before = job.progress.batch or 0
        put_input(bucket, range(4, 10))
        wait_until(lambda: has_read(10))
        batches = (job.progress.batch or 0) - before
        # The tests put files, and who waits for more lists them; what goes by the clock is as much as the machine is slow.
        requests = Counter({k: n for k, n in s3.requests.items() if "given" not in k and not k.endswith(BY_CLOCK)})
        assert 6 <= batches <= 12
        most = 6 * PER_BATCH + (batches - 6) * PER_EMPTY_BATCH
        assert requests.total() <= most, (batches, requests)
        job.stop()
        job.wait()
        s3.requests.clear()
        # Asked by a process that has nothing yet but what the job has left on this disk.
        assert session.query("SELECT count(*) FROM counts").fetchall()
        assert s3.requests.total() <= 12, s3.requests


@pytest.mark.parametrize(
    ("name", "kind", "folder", "message"),
    [
        ("kept", "iceberg", "wh", "'sqlstream.publish' = 'iceberg' needs a warehouse on a local disk"),
        ("kept here", "delta", "wh", "in a store there can be no space"),
        # The table would be in `wh`, and its files in `wh#1`.
        ("kept", "delta", "wh#1", 'no "%" and no "#"'),
    ],
)
def test_what_cannot_be_published_is_refused(
    bucket: str, tmp_path: Path, name: str, kind: str, folder: str, message: str
) -> None:
    put_input(bucket, range(1))
    script = f"""
    CREATE TABLE given (k BIGINT) WITH ('connector' = 'filesystem', 'path' = '{bucket}/given', 'format' = 'parquet');
    CREATE TABLE "{name}" (k BIGINT) WITH ('sqlstream.publish' = '{kind}');
    INSERT INTO "{name}" SELECT k FROM given"""
    with Session(str(tmp_path), warehouse=f"{bucket}/{folder}") as session:
        [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
        with pytest.raises(UsageError) as refused:
            session._jobs.start(planned, {}, engine=LocalEngine())
        assert session.warehouse.jobs() == []
    assert message in refused.value.message
    assert f'Write into a table with the connector "{kind}" instead.' in (refused.value.hint or "")
