"""Temporary folders of checkpoints: they go with their processes, also with those that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sqlstream.errors import JobError
from sqlstream.jobs.launch import job_spec
from sqlstream.spark import scratch
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from tests.kinds import last_job

MAKER = """
import os, sys, tempfile
from sqlstream.spark import scratch
print(scratch._temporary_folder(), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_folders_of_processes_that_were_killed_go_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    of_another = tmp_path / "sqlstream-checkpoint-of-an-earlier-version"
    of_another.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert maker.stdout is not None
    theirs = Path(maker.stdout.readline().strip())
    own = Path(scratch._temporary_folder())
    assert sorted(tmp_path.iterdir()) == sorted([of_another, theirs, own])
    maker.kill()
    maker.wait()
    (theirs / "offsets").mkdir()
    next_one = Path(scratch._temporary_folder())
    assert sorted(tmp_path.iterdir()) == sorted([of_another, own, next_one])
    for root in (own, next_one):
        scratch.remove(scratch.SparkCheckpoint(f"{root}/checkpoint"))
    assert [*tmp_path.iterdir()] == [of_another]


def test_a_worker_that_sees_another_folder_says_so(tmp_path: Path) -> None:
    scratch.SparkCheckpoint(str(tmp_path)).check_seen()
    with pytest.raises(JobError, match=f'"{tmp_path}/jobs" on .* is not the folder that the driver has there'):
        scratch.SparkCheckpoint(f"{tmp_path}/jobs/scratch/1").check_seen()


def test_checkpoints_of_a_shared_folder_are_apart(tmp_path: Path) -> None:
    planned = last_job("CREATE TABLE t (k INT); SELECT k FROM t")
    jobs = [job_spec(planned, str(tmp_path / w), range(2), name=n) for w, n in (("a", "x"), ("a", "y"), ("b", "x"))]
    made = []
    for job in jobs:
        paths = Warehouse(job.warehouse).job(job.name)
        made.append(scratch.new_checkpoint(LocalFilesystem(), paths, job, None, None, str(tmp_path / "shared")))
        Path(made[-1].location).mkdir(parents=True)
    # A process that was killed leaves its own, which the next start of the job deletes.
    again = scratch.new_checkpoint(LocalFilesystem(), paths, job, None, None, str(tmp_path / "shared"))
    assert not Path(made[2].location).exists()
    assert Path(made[1].location).exists()
    scratch.remove(made[0])
    scratch.remove(made[1])
    scratch.remove(again)
    assert [p for p in (tmp_path / "shared").rglob("*") if p.parent.parent == tmp_path / "shared"] == []
