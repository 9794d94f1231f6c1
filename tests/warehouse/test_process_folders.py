"""What DuckDB wrote to disk for want of memory does not stay when its process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pytest

from sqlstream.warehouse import process_folders
from sqlstream.warehouse.process_folders import SPILL, process_folder

# A process that has its own numbers for processes, as in a container: another one cannot ask after it.
_CHILD = """
import os, sys
os.getpid = lambda: int(sys.argv[1])
from sqlstream.warehouse.process_folders import SPILL, process_folder
print(process_folder(SPILL), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all processes, in which this one has none yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(process_folders, "_owned", {})
    return tmp_path / f"sqlstream-{os.getuid()}" / "spill"


def child(folder: Path, pid: int) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that takes itself for another one, and return it with its folder, in which it has written."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    one = Path(process.stdout.readline().strip())
    one.mkdir()
    (one / "duckdb_temp_storage.tmp").write_text("rows")
    return process, one.parent


@pytest.mark.slow
def test_the_next_process_deletes_what_a_killed_one_has_left(tmp_path: Path, root: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    living, kept = child(tmp_path, ended.pid)
    try:
        # Its number is given anew, here to this process.
        killed, left = child(tmp_path, os.getpid())
        killed.kill()
        killed.communicate()
        assert (kept.parent, left.parent) == (root, root)
        own = process_folder(SPILL)
        assert sorted(root.iterdir()) == sorted([kept, Path(own).parent])
        assert list(kept.rglob("*.tmp"))
    finally:
        living.communicate("")
    with duckdb.connect() as con:
        con.execute(f"SET temp_directory = '{own}'; SET memory_limit = '20MB'; SET threads = 1")
        con.execute("CREATE TABLE t AS SELECT range AS a, hash(range)::VARCHAR AS b FROM range(1000000)")
        assert os.listdir(own)
    assert not os.path.exists(own)
    shared = process_folder(SPILL, shared=True)
    assert shared == process_folder(SPILL, shared=True) == f"{os.path.dirname(own)}/shared"


def test_a_process_that_ends_leaves_nothing(tmp_path: Path, root: Path) -> None:
    process, own = child(tmp_path, 1)
    for path in own.iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    process.communicate("")
    assert not own.exists()


def test_a_folder_of_somebody_else_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    # As for another user, for whom this one has made it.
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    left = root.parent.with_name(f"sqlstream-{own + 1}") / "spill" / "1234"
    left.mkdir(parents=True)
    folder = process_folder(SPILL)
    assert left.exists()
    assert not folder.startswith(str(left.parent))
    assert os.path.isdir(os.path.dirname(folder))
