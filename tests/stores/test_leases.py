"""Of all processes on all hosts one runs a job: its lease is taken when it is gone; who has lost it commits nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from sqlstream.errors import JobError, UsageError
from sqlstream.units import EPOCH
from sqlstream.warehouse import leases
from sqlstream.warehouse.commits import last_committed, write_commit
from sqlstream.warehouse.leases import Lease, check_held, read_lease
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import sealed
from sqlstream.warehouse.status import LOST, RUNNING, Status, effective_status, write_status
from sqlstream.warehouse.stores import PreconditionFailed, StoreFilesystem, Tag
from tests.processes import wait_until

pytestmark = pytest.mark.slow

# It takes the job for so many seconds, says so, and waits. Where its temporary files are is what a host is known by.
HOLDER = """
import sys
from sqlstream.warehouse.leases import Lease
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
warehouse = Warehouse(sys.argv[1])
Lease.take(warehouse.fs, warehouse.job("j"), SessionLock.open(warehouse), seconds=float(sys.argv[2]))
print("holds", flush=True)
sys.stdin.read()
"""


class Taking:
    def __init__(self, bucket: str):
        self.warehouse = Warehouse(f"{bucket}/w")
        self.job = self.warehouse.job("j")
        self.session = SessionLock.open(self.warehouse)

    @property
    def fs(self) -> StoreFilesystem:
        assert isinstance(self.warehouse.fs, StoreFilesystem)
        return self.warehouse.fs

    def take(self, seconds: float = 600.0, *, patience: float = 0.0, in_turn: bool = False) -> Lease:
        return Lease.take(self.fs, self.job, self.session, seconds=seconds, patience=patience, in_turn=in_turn)


@pytest.fixture
def taking(bucket: str) -> Iterator[Taking]:
    found = Taking(bucket)
    with found.session:
        yield found


def holder(taking: Taking, seconds: float, host: Path | None = None) -> subprocess.Popen[str]:
    environment = os.environ | ({"TMPDIR": str(host)} if host else {})
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, taking.warehouse.root, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_lease_is_had_by_one_and_given_back(taking: Taking) -> None:
    lease = taking.take()
    with pytest.raises(UsageError, match=f'job "j" is being run by process {os.getpid()}'):
        taking.take()
    with pytest.raises(UsageError, match="is being run by process"):
        taking.take(in_turn=True, patience=0.5)
    lease.release()
    again = taking.take()
    again.release()
    found, _ = read_lease(taking.fs, taking.job)
    assert found is None, "of a job that left nothing nothing stays"


def test_a_lease_that_is_deleted_is_not_that_of_another_process(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, looks, taken = taking.take(), list[str](), list[Lease]()
    delete, read = StoreFilesystem.delete, StoreFilesystem.read_tagged

    def counted(fs: StoreFilesystem, path: str) -> tuple[bytes, Tag]:
        looks.append(path)
        return read(fs, path)

    def overtaken(fs: StoreFilesystem, path: str) -> None:
        """Let another one want the job, and have it if it can, before the lease is deleted."""
        threading.Thread(target=lambda: taken.append(taking.take())).start()
        wait_until(lambda: taken or len(looks) >= 2)
        delete(fs, path)

    monkeypatch.setattr(StoreFilesystem, "read_tagged", counted)
    monkeypatch.setattr(StoreFilesystem, "delete", overtaken)
    lease.release()
    monkeypatch.undo()
    wait_until(lambda: taken)
    found, _ = read_lease(taking.fs, taking.job)
    assert found is not None
    assert (found.pid, found.goes) == (os.getpid(), False)
    taken[0].release()


def test_who_was_suspended_while_it_gave_a_lease_back_deletes_none(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, clock = taking.take(), iter([leases._clock(), leases._clock() + 1000.0])
    with monkeypatch.context() as patch:
        patch.setattr(leases, "_clock", lambda: next(clock))
        lease.release()
    found, tag = read_lease(taking.fs, taking.job)
    assert found is not None
    assert found.goes
    # It counts for nobody, and another one has it once it has been the same for long enough.
    assert not leases.is_being_run(taking.fs, taking.job)
    taking.fs.put_if(taking.job.lock, sealed(msgspec.json.encode(replace(found, seconds=0.5)).decode()), tag)
    taking.take().release()


def test_a_process_that_was_killed_here_is_seen_at_once(taking: Taking) -> None:
    process = holder(taking, 600.0)
    write_status(taking.fs, taking.job, Status(RUNNING, process.pid, os.uname().nodename, EPOCH, EPOCH))
    with pytest.raises(UsageError, match=f'job "j" is being run by process {process.pid}'):
        taking.take()
    status = effective_status(taking.fs, taking.job)
    assert status is not None
    assert status.state == RUNNING
    end(process)
    status = effective_status(taking.fs, taking.job)
    assert status is not None
    assert status.state == LOST
    taking.take().release()


def test_a_lease_of_another_host_is_taken_when_it_has_not_been_renewed(taking: Taking, tmp_path: Path) -> None:
    # On a busy machine the other process may not come to its turn for a second or two.
    process = holder(taking, 4.0, tmp_path)
    # It is renewed while this one looks.
    with pytest.raises(UsageError, match=f'job "j" is being run by process {process.pid}'):
        taking.take()
    end(process)
    started = time.monotonic()
    lease = taking.take()
    assert time.monotonic() - started >= 3.0
    lease.release()


def test_who_loses_a_lease_commits_nothing_more(taking: Taking) -> None:
    lease = taking.take(seconds=4.0)
    write_commit(taking.fs, taking.job, 0)
    check_held(taking.job)
    # Somebody else has written it: the next renewal finds that.
    taking.fs.write_text_atomic(taking.job.lock, sealed("{}"))
    wait_until(lambda: lease.is_lost)
    with pytest.raises(JobError, match='job "j" was taken over, or might have been'):
        write_commit(taking.fs, taking.job, 1)
    lease.release()
    assert last_committed(taking.fs, taking.job) == 0
    assert taking.fs.read_text(taking.job.lock) == sealed("{}"), "what is another's stays"


def damage(taking: Taking, path: str) -> None:
    with taking.fs.create(path) as file:
        file.write(b"\xff")


def test_a_damaged_lease_is_taken_when_nobody_renews_it(taking: Taking) -> None:
    damage(taking, taking.job.lock)
    found, tag = read_lease(taking.fs, taking.job)
    assert found is None
    assert tag is not None, "it is not missing: it must be replaced"
    lease = taking.take(seconds=0.5)
    found, _ = read_lease(taking.fs, taking.job)
    assert found is not None
    assert found.pid == os.getpid()
    # What is damaged afterwards may be another's.
    damage(taking, taking.job.lock)
    lease.release()
    with taking.fs.open_bytes(taking.job.lock) as file:
        assert file.read() == b"\xff"


def test_a_lease_that_another_process_deletes_meanwhile_is_free(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts, put = list[str](), StoreFilesystem.put_if

    def overtaken(fs: StoreFilesystem, path: str, text: str, before: Tag | None) -> Tag:
        """Refuse the first time: there is a lease, which its holder deletes before anybody reads it."""
        puts.append(path)
        if len(puts) == 1:
            raise PreconditionFailed
        return put(fs, path, text, before)

    monkeypatch.setattr(StoreFilesystem, "put_if", overtaken)
    taking.take().release()


def test_a_version_is_committed_once(taking: Taking) -> None:
    write_commit(taking.fs, taking.job, 0)
    # This process was suspended between the look at its lease and the commit, and another one has committed meanwhile.
    with pytest.raises(JobError, match="was taken over"):
        write_commit(taking.fs, taking.job, 0)
    damage(taking, f"{taking.job.commits}/1")
    with pytest.raises(JobError, match="was taken over"):
        write_commit(taking.fs, taking.job, 1)
