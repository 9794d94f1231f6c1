"""Files appear whole or not at all, names fit into paths, and errors say what is wrong with which path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.fs
import pytest

from sqlstream.errors import JobError, NotWritableError, UsageError
from sqlstream.storage_errors import storage_error, storage_errors
from sqlstream.warehouse.filesystem import (
    ArrowFilesystem,
    Filesystem,
    LocalFilesystem,
    open_filesystem,
)
from sqlstream.warehouse.paths import Warehouse
from tests.forked import run_python
from tests.users import OTHER, home, unwritable


@pytest.fixture(params=["local", "arrow"])
def fs(request: pytest.FixtureRequest) -> Filesystem:
    return LocalFilesystem() if request.param == "local" else ArrowFilesystem(pyarrow.fs.LocalFileSystem(), "file://")


def test_text_is_written_read_and_replaced(fs: Filesystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/c.json"
    fs.write_text_atomic(path, "one")
    fs.write_text_atomic(path, "zwei ü")
    assert fs.read_text(path) == "zwei ü"
    assert os.listdir(tmp_path / "a" / "b") == ["c.json"]
    assert fs.exists(path)
    assert not fs.exists(f"{path}x")


def test_a_file_that_is_being_written_has_no_name_yet(fs: Filesystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/x"
    with fs.create(path) as file:
        file.write(b"half")
        assert fs.list(str(tmp_path)) == []
        assert fs.files(str(tmp_path)) == []
        assert len(fs.leftovers(str(tmp_path))) == 1
    assert [(f.name, f.bytes) for f in fs.files(str(tmp_path))] == [("x", 4)]
    assert fs.leftovers(str(tmp_path)) == []


def test_a_failed_write_leaves_the_old_file(fs: Filesystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/x"
    fs.write_text_atomic(path, "old")

    def write_half() -> None:
        with fs.create(path) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert fs.read_text(path) == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_what_is_missing_lists_as_nothing_and_deletes_without_a_word(fs: Filesystem, tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    assert fs.list(missing) == []
    assert fs.files(missing) == []
    fs.delete(missing)
    fs.delete_tree(missing)
    with pytest.raises(FileNotFoundError):
        fs.read_text(missing)


def test_deleting(fs: Filesystem, tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/3"):
        fs.write_text_atomic(f"{tmp_path}/{name}", "")
    fs.delete(f"{tmp_path}/a/1")
    fs.delete_tree(f"{tmp_path}/b")
    assert fs.list(str(tmp_path)) == ["a"]
    assert fs.list(f"{tmp_path}/a") == ["2"]


def test_a_full_disk_is_named() -> None:
    with pytest.raises(JobError) as caught, storage_errors("/w/x"), open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")
    assert str(caught.value) == (
        'job failed: no space is left to write "/w/x"\n'
        "hint: Free some space and run the job again; it continues after its last committed batch."
    )


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_path_without_permission_is_named(code: int, writes: bool, tmp_path: Path) -> None:
    # All that this process sees is that it may write there.
    error = storage_error(f"{tmp_path}/x", OSError(code, os.strerror(code)), writes=writes)
    assert type(error) is UsageError
    assert error.message == f'no permission to use "{tmp_path}/x"'


def test_a_file_system_that_is_read_only_is_named(tmp_path: Path) -> None:
    error = storage_error(str(tmp_path), OSError(errno.EROFS, os.strerror(errno.EROFS)))
    assert isinstance(error, NotWritableError)
    assert error.render() == (
        f'error: the folder "{tmp_path}" cannot be written\n'
        "It is on a file system that is mounted read-only.\n"
        "hint: Mount it so that it can be written, or choose another folder (--warehouse names the warehouse)."
    )


OPERATIONS = """
import sys

from sqlstream.errors import SqlStreamError
from sqlstream.warehouse.filesystem import LocalFilesystem, make_folder

fs, w = LocalFilesystem(), sys.argv[1]
for operation in (
    lambda: fs.write_text_atomic(f"{w}/new/file", ""),
    lambda: fs.write_text_atomic(f"{w}/file", ""),
    lambda: fs.claim(f"{w}/claimed"),
    lambda: fs.delete(f"{w}/file"),
    lambda: fs.delete_tree(f"{w}/folder"),
    lambda: fs.move(f"{w}/file", f"{w}/new"),
    lambda: fs.link(f"{w}/file", f"{w}/linked"),
    lambda: fs.move_tree(f"{w}/folder", f"{w}/new"),
    lambda: make_folder(f"{w}/some/folders"),
    lambda: fs.delete(f"{w}/missing"),
    lambda: make_folder(f"{w}/folder"),
):
    try:
        operation()
    except SqlStreamError as error:
        print(type(error).__name__, error.message)
    else:
        print("done")
"""


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named_whatever_is_done_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    (folder / "folder" / "below").mkdir(parents=True)
    (folder / "file").touch()
    (tmp_path / "program.py").write_text(OPERATIONS)
    with unwritable(folder):
        done = run_python("program.py", str(folder), cwd=tmp_path, environment=home(tmp_path / "home"), user=OTHER)
    refused = f'NotWritableError the folder "{folder}" cannot be written'
    assert (done.stdout.splitlines(), done.stderr) == ([refused] * 9 + ["done"] * 2, "")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="lies below a file, not a folder"):
        LocalFilesystem().write_text_atomic(f"{tmp_path}/file/x", "")


def test_names_become_single_path_components_and_case_does_not_matter(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    for name in ("Counts", "hot items/2", "..", ".hidden", "a=b%"):
        warehouse.fs.write_text_atomic(warehouse.job(name).record, name)
        warehouse.fs.write_text_atomic(f"{warehouse.table(name).job(name).data(0)}/x", name)
    assert sorted(warehouse.jobs()) == sorted(["counts", "hot items/2", "..", ".hidden", "a=b%"])
    assert warehouse.jobs() == warehouse.tables()
    assert warehouse.writers("COUNTS") == ["counts"]
    assert warehouse.fs.read_text(warehouse.job("COUNTS").record) == "Counts"
    assert sorted(os.listdir(tmp_path)) == ["jobs", "tables"]
    assert warehouse.job("Hot Items/2").name == "hot items/2"


def test_layout(tmp_path: Path) -> None:
    job = Warehouse(str(tmp_path)).job("j")
    state = job.operator("hot items")
    paths = [job.record, job.status, job.lock, job.commits, job.log, state.data(3), state.manifests(3)]
    assert [p.removeprefix(f"{tmp_path}/jobs/j/") for p in paths] == [
        *("job.json", "status.json", "lock", "checkpoint/commits", "log"),
        *("state/hot%20items/data/3", "state/hot%20items/manifests/3"),
    ]


def test_warehouses_by_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Warehouse("w").root == f"{tmp_path}/w"
    assert Warehouse(f"file://{tmp_path}/w").root == f"{tmp_path}/w"
    assert Warehouse(f"file://{tmp_path}/w").fs.local
    fs, path = open_filesystem("s3://bucket/some/where?region=eu-west-1")
    assert path == "s3://bucket/some/where"
    assert fs.path_for_duckdb(f"{path}/x").endswith("://some/where/x")
    with pytest.raises(UsageError, match='"nowhere://x" cannot be opened'):
        Warehouse("nowhere://x")


def test_paths_for_duckdb_are_no_patterns() -> None:
    assert LocalFilesystem().path_for_duckdb("/a[1]/*?/it's") == "/a[[]1]/[*][?]/it's"
