"""Temporary folders of checkpoints: they go with their processes, also with those that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sqlstream.spark import scratch

MAKER = """
import os, sys, tempfile
from sqlstream.spark import scratch
print(scratch._temporary_folder(), flush=True)
sys.stdin.read()
"""


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
