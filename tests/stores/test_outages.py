"""The store of a warehouse does not answer while a job runs, waits to start again, or ends: no job hangs, and none is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sqlstream.errors import JobError, OutageError
from sqlstream.jobs.job import Job
from sqlstream.session.session import Session
from sqlstream.warehouse import leases, stores
from sqlstream.warehouse.leases import Lease, check_held
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import sealed
from sqlstream.warehouse.status import read_status, write_status
from sqlstream.warehouse.stores import StoreFilesystem, open_store
from tests.processes import wait_until
from tests.stores import store_job
from tests.stores.server import S3Server
from tests.stores.store_job import LOCAL, ROWS, put_input

pytestmark = pytest.mark.slow

SOON = {"restart-strategy.exponential-delay.initial-backoff": "10 ms"}
LATE = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 h"}


@contextlib.contextmanager
def started(bucket: str, folder: Path, conf: dict[str, str]) -> Iterator[tuple[Session, Job]]:
    """A job that has read the first file and waits for more."""
    put_input(bucket, range(1))
    with Session(str(folder), warehouse=f"{bucket}/wh", conf=conf) as session:
        job = store_job.start(session, bucket, LOCAL)
        wait_until(lambda: has_read(job, 1))
        yield session, job


def has_read(job: Job, files: int) -> bool:
    return job.progress.rows_in == files * ROWS and job.is_waiting


@pytest.mark.parametrize("conf", [{"restart-strategy.type": "none"}, SOON])
def test_a_job_ends_though_its_store_is_away(bucket: str, s3: S3Server, tmp_path: Path, conf: dict[str, str]) -> None:
    with started(bucket, tmp_path, conf) as (session, job):
        with s3.away():
            job.stop()
            wait_until(lambda: job.status in ("FAILED", "STOPPED"))
            with contextlib.suppress(OutageError):
                job.wait()
            assert job.error is not None or job.status == "STOPPED"
        # This process has the job again at once, though it could not give its lease back.
        put_input(bucket, range(1, 2))
        again = store_job.start(session, bucket, LOCAL)
        wait_until(lambda: has_read(again, 2))


def test_a_job_goes_on_when_its_store_does(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    with started(bucket, tmp_path, SOON) as (session, job):
        paths, restarts = session.warehouse.job("both"), list[str]()

        def has_tried(times: int) -> bool:
            restarts.extend(warning for warning in job.warnings() if "; restart" in warning)
            assert job.status in ("RUNNING", "RESTARTING")
            return len(restarts) >= times

        with s3.away():
            wait_until(lambda: has_tried(3))
            # So long is it away that another process could have taken the job.
            leases._held[paths.root]._valid_until = 0.0
            before = len(restarts)
            wait_until(lambda: has_tried(before + 2))
        put_input(bucket, range(1, 2))
        wait_until(lambda: has_read(job, 2))
        # Also those that could not be written when they were due.
        query = "SELECT error LIKE '%cannot be read or written%' FROM sqlstream.restarts"
        wait_until(lambda: len(session.query(query).fetchall()) >= len(restarts))
        assert all(is_outage for (is_outage,) in session.query(query).fetchall())
        job.stop()
        job.wait()
        assert job.status == "STOPPED"


def test_a_job_that_waits_for_its_store_can_be_stopped(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    with started(bucket, tmp_path, LATE) as (_, job):
        with s3.away():
            wait_until(lambda: job.status == "RESTARTING")
            job.stop()
            job.wait()
        assert job.status == "STOPPED"
        assert any("was not written" in warning for warning in job.warnings())


def test_a_job_that_waits_for_its_store_can_be_stopped_by_others(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    with started(bucket, tmp_path, LATE) as (session, job):
        with s3.away():
            wait_until(lambda: job.status == "RESTARTING")
        session.stop("both")
        job.wait()
        assert job.status == "STOPPED"


def test_a_lease_that_nobody_has_taken_is_renewed(bucket: str, s3: S3Server) -> None:
    warehouse = Warehouse(f"{bucket}/w")
    paths, fs = warehouse.job("j"), warehouse.fs
    assert isinstance(fs, StoreFilesystem)
    with SessionLock.open(warehouse) as lock:
        lease = Lease.take(fs, paths, lock, seconds=600.0)
        lease._valid_until = 0.0
        with s3.away(), pytest.raises(OutageError):
            check_held(paths)
        assert lease.is_lost
        check_held(paths)
        assert not lease.is_lost
        lease._valid_until = 0.0
        fs.write_text_atomic(paths.lock, sealed("{}"))
        with pytest.raises(JobError, match="was taken over, or might have been"):
            check_held(paths)
        lease.release()
        assert fs.read_text(paths.lock) == sealed("{}"), "what is another's stays"


def test_an_answer_that_breaks_off_is_an_outage(bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_RETRIES", 0)
    fs, root = open_store(bucket)
    path, text = f"{root}/a.json", "x" * 3_000_000
    fs.write_text_atomic(path, text)
    reads: list[Callable[[], object]] = [
        lambda: fs.read_text(path),
        lambda: fs.open_bytes(path).read(),
        lambda: fs.open_ranges(path).read(),
    ]
    for read in reads:
        assert read() in (text, text.encode())
        with s3.breaking_off(), pytest.raises(OutageError, match="cannot be read or written"):
            read()


@pytest.mark.parametrize("conf", [{"restart-strategy.type": "none"}, SOON])
def test_a_job_that_was_taken_over_leaves_its_status_alone(bucket: str, tmp_path: Path, conf: dict[str, str]) -> None:
    with started(bucket, tmp_path, conf) as (session, job):
        fs, paths = session.warehouse.fs, session.warehouse.job("both")
        before = read_status(fs, paths)
        assert before is not None
        # As another process does.
        fs.write_text_atomic(paths.lock, sealed("{}"))
        write_status(fs, paths, replace(before, pid=before.pid + 1))
        leases._held[paths.root]._valid_until = 0.0
        with pytest.raises(JobError, match="was taken over, or might have been"):
            job.wait()
        assert job.status == "FAILED"
        assert read_status(fs, paths) == replace(before, pid=before.pid + 1)
