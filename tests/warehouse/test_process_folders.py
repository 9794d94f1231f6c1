"""What DuckDB wrote to disk for want of memory does not stay when its process is killed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import duckdb
import pytest

from sqlstream.warehouse import process_folders
from sqlstream.warehouse.process_folders import SPILL, process_folder


def test_the_next_process_deletes_what_a_killed_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(process_folders, "_looked", {})
    root = tmp_path / f"sqlstream-{os.getuid()}" / "spill"
    ended = subprocess.Popen(["true"])
    ended.wait()
    living = subprocess.Popen(["sleep", "60"])
    try:
        for name in (f"{ended.pid}", f"{ended.pid}-a1", f"{living.pid}-b2", "other"):
            (root / name).mkdir(parents=True)
            (root / name / "duckdb_temp_storage.tmp").write_text("rows")
        own = process_folder(SPILL)
        assert sorted(path.name for path in root.iterdir()) == sorted([f"{living.pid}-b2", "other"])
    finally:
        living.kill()
        living.wait()
    with duckdb.connect() as con:
        con.execute(f"SET temp_directory = '{own}'; SET memory_limit = '20MB'; SET threads = 1")
        con.execute("CREATE TABLE t AS SELECT range AS a, hash(range)::VARCHAR AS b FROM range(1000000)")
        assert os.listdir(own)
    assert not os.path.exists(own)
    assert process_folder(SPILL, shared=True) == f"{root}/{os.getpid()}"
