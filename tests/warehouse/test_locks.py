"""One process runs a job; its lock is taken over when that process and its JVM are gone, and not before."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from sqlstream.errors import NotWritableError, UsageError
from sqlstream.units import EPOCH
from sqlstream.warehouse import locks
from sqlstream.warehouse.given_up import is_given_up
from sqlstream.warehouse.locks import JobLock, LockHolder, SessionLock, birth_of_process, process_is_alive, read_holder
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import write_sealed
from sqlstream.warehouse.status import LOST, RUNNING, Status, effective_status, write_status

# A driver: it takes the job, starts a child that stands for its JVM, says so, and waits.
DRIVER = """
import subprocess, sys
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.locks import JobLock, SessionLock
warehouse = Warehouse(sys.argv[1])
session = SessionLock.open(warehouse)
JobLock.acquire(warehouse.fs, warehouse.job("j"), session)
jvm = subprocess.Popen(["sleep", "600"], pass_fds=[session.descriptor]) if sys.argv[2] == "jvm" else None
print(jvm.pid if jvm else 0, flush=True)
sys.stdin.read()
"""

# It says whether it got the job, and keeps it until its input ends.
TAKER = """
import sys
from sqlstream.errors import UsageError
from sqlstream.units import EPOCH
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.locks import JobLock, SessionLock
warehouse = Warehouse(sys.argv[1])
session = SessionLock.open(warehouse)
print("ready", flush=True)
sys.stdin.readline()
try:
    JobLock.acquire(warehouse.fs, warehouse.job("j"), session)
    print("won", flush=True)
except UsageError as error:
    print(error.message, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path))


@pytest.fixture
def session(warehouse: Warehouse) -> Iterator[SessionLock]:
    with SessionLock.open(warehouse) as session:
        yield session


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def acquire(warehouse: Warehouse, session: SessionLock, patience: float = 0.0) -> JobLock:
    return JobLock.acquire(warehouse.fs, warehouse.job("j"), session, patience=patience)


def test_a_lock_is_given_back(warehouse: Warehouse, session: SessionLock) -> None:
    job = warehouse.job("j")
    acquire(warehouse, session).release()
    assert read_holder(warehouse.fs, job) is None
    acquire(warehouse, session)
    assert read_holder(warehouse.fs, job) == LockHolder(os.getpid(), os.uname().nodename, session.path)


def test_a_session_runs_different_jobs_and_no_job_twice(warehouse: Warehouse, session: SessionLock) -> None:
    acquire(warehouse, session)
    JobLock.acquire(warehouse.fs, warehouse.job("k"), session)
    with pytest.raises(UsageError, match=f'^error: job "j" is being run by process {os.getpid()}$'):
        acquire(warehouse, session)


def test_a_lock_is_not_given_back_for_somebody_else(warehouse: Warehouse, session: SessionLock) -> None:
    with SessionLock.open(warehouse) as earlier:
        lost = acquire(warehouse, earlier)
    acquire(warehouse, session)
    lost._session = earlier
    lost.release()
    assert read_holder(warehouse.fs, warehouse.job("j")) is not None


@pytest.mark.slow
def test_a_killed_process_loses_the_job(warehouse: Warehouse, session: SessionLock) -> None:
    driver = start(DRIVER, warehouse.root, "alone")
    line(driver)
    with pytest.raises(UsageError, match=f'job "j" is being run by process {driver.pid}'):
        acquire(warehouse, session, patience=60)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    acquire(warehouse, session)
    assert sorted(os.listdir(warehouse.sessions)) == sorted(sessions_of(warehouse))
    with SessionLock.open(warehouse):
        # The killed process's file is cleared away, ours is not.
        assert len(sessions_of(warehouse)) == 2
        assert Path(session.path).exists()


def sessions_of(warehouse: Warehouse) -> list[str]:
    return [name for name in os.listdir(warehouse.sessions) if name.endswith(".lock")]


@pytest.mark.slow
def test_a_jvm_that_outlives_its_driver_keeps_the_job_until_it_ends(warehouse: Warehouse, session: SessionLock) -> None:
    driver = start(DRIVER, warehouse.root, "jvm")
    jvm = int(line(driver))
    job = warehouse.job("j")
    status = Status(RUNNING, driver.pid, os.uname().nodename, EPOCH, EPOCH)
    write_status(warehouse.fs, job, status)
    try:
        assert effective_status(warehouse.fs, job) == status
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert effective_status(warehouse.fs, job) == replace(status, state=LOST)
        with pytest.raises(UsageError, match=f"by the Spark process that process {driver.pid} left behind"):
            acquire(warehouse, session)
    finally:
        # The JVM notices a moment later that its driver is gone; whoever waits gets the job then.
        waiting = start(TAKER, warehouse.root)
        line(waiting)
        assert waiting.stdin
        waiting.stdin.write("go\n")
        waiting.stdin.flush()
        os.kill(jvm, signal.SIGKILL)
    assert line(waiting) == "won"
    waiting.communicate("end\n")


def test_of_several_that_take_over_at_once_one_wins(warehouse: Warehouse) -> None:
    """A file lock belongs to the open file, so threads with a session each stand for processes."""
    with ThreadPoolExecutor(6) as threads:
        for _ in range(20):
            sessions = [SessionLock.open(warehouse) for _ in range(6)]
            attempts = [threads.submit(acquire, warehouse, session) for session in sessions]
            errors = [attempt.exception() for attempt in attempts]
            assert errors.count(None) == 1
            assert all("is being run by process" in str(error) for error in errors if error)
            for session in sessions:
                session.close()


def test_a_lock_of_another_host_is_told_by_its_session_file(warehouse: Warehouse, session: SessionLock) -> None:
    """A container that starts again has a new name; the file lock tells whether the old one is gone."""
    job = warehouse.job("j")
    with SessionLock.open(warehouse) as other:
        write_sealed(warehouse.fs, job.lock, f'{{"pid": 1, "host": "elsewhere", "session": "{other.path}"}}')
        with pytest.raises(UsageError, match='job "j" is being run by process 1 on elsewhere'):
            acquire(warehouse, session, patience=60)
    acquire(warehouse, session)


def test_a_process_that_ended_is_not_alive() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process_is_alive(process.pid)
    process.wait()
    assert not process_is_alive(process.pid)
    assert process_is_alive(os.getpid())


def test_the_name_of_a_command_may_be_any_bytes(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path / "a) Z ") + b"\xff"
    os.symlink(str(shutil.which("sleep")), program)
    with subprocess.Popen([program, b"600"]) as process:
        try:
            assert process_is_alive(process.pid)
            assert birth_of_process(process.pid).isdigit()
            assert birth_of_process(process.pid) != birth_of_process(os.getpid())
        finally:
            process.kill()


def test_guards_of_killed_sessions_are_cleared_away(warehouse: Warehouse, session: SessionLock) -> None:
    left = Path(warehouse.sessions) / "select_1.guard"
    held = Path(warehouse.sessions) / "busy.guard"
    left.touch()
    with open(held, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with SessionLock.open(warehouse):
            assert not left.exists()
            assert held.exists()


def test_one_at_a_time_although_the_guard_is_deleted(warehouse: Warehouse) -> None:
    # Sessions take a lock and give it back again and again: one that waited for a deleted guard must not get in.
    inside: list[str] = []

    def work(name: str) -> None:
        with SessionLock.open(warehouse) as session:
            for _ in range(50):
                try:
                    lock = acquire(warehouse, session, patience=0)
                except UsageError:
                    continue
                inside.append(name)
                assert inside == [name]
                inside.remove(name)
                lock.release()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, f"session {i}") for i in range(4)]:
            done.result()


def test_the_lock_of_a_copied_warehouse_is_not_that_of_the_original(tmp_path: Path) -> None:
    original = Warehouse(str(tmp_path / "original"))
    with SessionLock.open(original) as session:
        JobLock.acquire(original.fs, original.job("j"), session)
        write_status(original.fs, original.job("j"), Status(RUNNING, os.getpid(), "here", EPOCH, EPOCH))
        copied = Warehouse(str(shutil.copytree(tmp_path / "original", tmp_path / "copy")))
        status = effective_status(copied.fs, copied.job("j"))
        assert status is not None
        assert status.state == LOST
        with SessionLock.open(copied) as other:
            JobLock.acquire(copied.fs, copied.job("j"), other, patience=0.0).release()
        # Mounted in a second place, it is the same.
        (tmp_path / "mounted").symlink_to(tmp_path / "original")
        mounted = Warehouse(str(tmp_path / "mounted"))
        with SessionLock.open(mounted) as other, pytest.raises(UsageError, match="is being run"):
            JobLock.acquire(mounted.fs, mounted.job("j"), other, patience=0.0)


def test_a_lock_that_could_not_be_released_can_be_taken(
    warehouse: Warehouse, session: SessionLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, fs = warehouse.job("j"), warehouse.fs
    lock = JobLock.acquire(fs, job, session)
    with monkeypatch.context() as broken:
        broken.setattr(type(fs), "delete", _unwritable)
        lock.release()
    holder = read_holder(fs, job)
    assert holder is not None
    assert holder.session == session.path
    # Other processes know it from the session's file, which says nothing about other jobs.
    monkeypatch.setattr(locks, "_abandoned", set())
    assert not is_given_up(session.path, "k")
    with SessionLock.open(warehouse) as other:
        taken = JobLock.acquire(fs, job, other)
        with pytest.raises(UsageError, match="is being run by process"):
            JobLock.acquire(fs, job, session, patience=0.0)
        taken.release()
        # Taken again, it is the session's as any other.
        again = JobLock.acquire(fs, job, session)
        with pytest.raises(UsageError, match="is being run by process"):
            JobLock.acquire(fs, job, other, patience=0.0)
        again.release()


@pytest.mark.slow
def test_another_process_takes_a_lock_that_could_not_be_released(
    warehouse: Warehouse, session: SessionLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = acquire(warehouse, session)
    with monkeypatch.context() as broken:
        broken.setattr(type(warehouse.fs), "delete", _unwritable)
        lock.release()
    with start(TAKER, warehouse.root) as taker:
        assert line(taker) == "ready"
        assert taker.stdin
        taker.stdin.write("\n")
        taker.stdin.flush()
        assert line(taker) == "won"
        with pytest.raises(UsageError, match=f"is being run by process {taker.pid}"):
            acquire(warehouse, session)
        taker.stdin.close()


def _unwritable(*_: object) -> None:
    raise NotWritableError("the folder cannot be written")
