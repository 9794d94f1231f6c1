"""Sweeping deletes what nobody needs, and nothing that a reader, a recovery or Spark's state store may name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Column
from sqlstream.storage import retention
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.manifests import Manifest, batch_of, read_manifest
from sqlstream.storage.retention import GRACE, LEFTOVER, needed, sweep, sweep_directory
from sqlstream.units import SECOND, Duration, EventTime, ProcessingTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.filesystem import FileInfo, Filesystem, LocalFilesystem
from sqlstream.warehouse.paths import BucketedPaths, JobPaths

FS = LocalFilesystem()
TABLE = TableDeclaration("t", (Column("x", "BIGINT"), Column("e", "BIGINT")), time_column="e")


def manifests(*batches_and_times: tuple[int, int]) -> list[FileInfo]:
    return [
        FileInfo(f"{batch:010d}-{i}.json", 1, ProcessingTime(time)) for i, (batch, time) in enumerate(batches_and_times)
    ]


def kept(files: list[FileInfo], committed: int, now: int) -> list[int]:
    names = needed(files, committed, ProcessingTime(now))
    return [int(f.name[:10]) for f in files if f.name in names]


def test_manifests_around_the_last_commit_are_needed() -> None:
    files = manifests(*((batch, 0) for batch in range(10)))
    assert kept(files, 7, GRACE + 1) == [6, 7, 8, 9]


def test_an_idle_bucket_keeps_its_last_manifest() -> None:
    files = manifests((1, 0), (2, 0), (5, 0))
    # Version 6 of the state store is what batch 5 left.
    assert kept(files, 100, GRACE + 1) == [5]
    # Version 9 is still that of batch 5, when only batch 10 was the next.
    assert kept([*files, *manifests((10, 0))], 10, GRACE + 1) == [5, 10]
    assert kept([*files, *manifests((10, 0))], 11, GRACE + 1) == [10]


def test_all_attempts_of_a_batch_are_needed() -> None:
    assert kept(manifests((1, 0), (5, 0), (5, 0), (6, 0), (6, 0)), 7, GRACE + 1) == [6, 6]


def test_a_manifest_is_needed_until_its_successor_is_a_minute_old() -> None:
    """Its own age says nothing: a reader may have opened it just before the next one came."""
    files = manifests((1, 0), (2, 500 * SECOND), (3, 500 * SECOND), (8, 501 * SECOND))
    assert kept(files, 9, 510 * SECOND) == [1, 2, 3, 8]
    assert kept(files, 9, 500 * SECOND + GRACE + 1) == [3, 8]
    assert kept(files, 9, 501 * SECOND + GRACE + 1) == [8]


def fill(paths: BucketedPaths, batches: range, manifest: str | None = None) -> list[str]:
    """Commit a row per batch, of which the last twenty are not forgotten, and return the manifests."""
    made = []
    with duckdb.connect() as con:
        for batch in batches:
            bucket = Bucket.open(FS, paths.root, 0, [TABLE], manifest, Duration(0), 3)
            bucket.append("t", pa.table({"x": [batch], "e": [batch]}), batch)
            manifest = bucket.commit(con, batch, ProcessingTime(batch), EventTime(batch - 20))
            made.append(manifest)
    return made


def age(directory: Path, by: int) -> ProcessingTime:
    """Make all files older by microseconds, and return the present."""
    now = ProcessingTime(10**15)
    for path in directory.rglob("*"):
        if path.is_file():
            os.utime(path, ns=((now - by) * 1000,) * 2)
    return now


def names(directory: str) -> set[str]:
    return {f.name for f in FS.files(directory)}


def test_sweep_leaves_what_the_needed_manifests_name(tmp_path: Path) -> None:
    paths = BucketedPaths(str(tmp_path))
    made = fill(paths, range(40))
    assert len(names(paths.data(0))) > 40
    now = age(tmp_path, GRACE + 1)
    # Batch 39 was not committed; it may be tried again from the state of batch 38, or that of 37 if 38 has to be repeated.
    deleted = sweep_directory(FS, paths, 38, ProcessingTime(now))
    assert deleted > 60
    assert len(names(paths.manifests(0))) == 3
    needed_files = {s.name for text in made[37:] for s in Manifest.from_json(text).tables["t"]}
    assert needed_files <= names(paths.data(0))
    assert len(names(paths.data(0))) <= len(needed_files) + 4
    directory = paths.manifests(0)
    found = {batch_of(name): read_manifest(FS, f"{directory}/{name}") for name in FS.list(directory)}
    for version in (37, 38, 39):
        assert found[version] == Manifest.from_json(made[version])
    assert sorted(found) == [37, 38, 39]
    assert sweep_directory(FS, paths, 38, ProcessingTime(now)) == 0


def test_a_batch_can_be_repeated_after_a_sweep(tmp_path: Path) -> None:
    paths = BucketedPaths(str(tmp_path))
    made = fill(paths, range(20))
    sweep_directory(FS, paths, 18, age(tmp_path, GRACE + 1))
    again = fill(paths, range(19, 30), made[18])
    sweep_directory(FS, paths, 28, age(tmp_path, GRACE + 1))
    bucket = Bucket.open(FS, paths.root, 0, [TABLE], again[-1], Duration(0), 3)
    assert duckdb.execute(f"SELECT x FROM {bucket.relation('t')} ORDER BY x").fetchall() == [
        (x,) for x in range(10, 30)
    ]


@pytest.mark.parametrize(("old", "left"), [(GRACE - 1, True), (GRACE + 1, False)])
def test_files_that_no_manifest_names_go_after_a_while(tmp_path: Path, old: int, left: bool) -> None:
    """An attempt that died left a segment; one that is under way wrote one for a manifest to come."""
    paths = BucketedPaths(str(tmp_path))
    fill(paths, range(10))
    data = Path(paths.data(0))
    (data / "t-3-orphan.parquet").touch()
    (data / "t-10-next.parquet").touch()
    sweep_directory(FS, paths, 9, age(tmp_path, old))
    assert (data / "t-3-orphan.parquet").exists() == left
    assert (data / "t-10-next.parquet").exists()


def test_half_written_files_go_when_their_writer_must_be_dead(tmp_path: Path) -> None:
    paths = BucketedPaths(str(tmp_path))
    fill(paths, range(1))
    half = Path(paths.data(0)) / ".tmp-0123-t-0-x.parquet"
    half.touch()
    sweep_directory(FS, paths, 5, age(tmp_path, GRACE + 1))
    assert half.exists()
    sweep_directory(FS, paths, 5, age(tmp_path, LEFTOVER + 1))
    assert not half.exists()


def test_sweep_of_a_job_covers_all_operators_and_the_log(tmp_path: Path) -> None:
    job = JobPaths(str(tmp_path / "job"))
    for operator in ("a", "b c"):
        fill(job.operator(operator), range(10))
    log = JobLog(FS, job.log)
    for version in range(10):
        log.append(LogEntry(version, ProcessingTime(0), None))
    sweep(FS, job, 4, 9, age(tmp_path, GRACE + 1))
    assert [e.version for e in log.entries()] == [4, 5, 6, 7, 8, 9]
    for operator in ("a", "b c"):
        assert len(names(job.operator(operator).manifests(0))) == 2


def test_sweep_of_a_job_without_state_does_nothing(tmp_path: Path) -> None:
    assert sweep(FS, JobPaths(str(tmp_path / "job")), 0, 0, ProcessingTime(0)) == 0


@pytest.mark.slow
def test_few_manifests_are_read_to_know_what_nobody_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last minute stay for readers, hundreds for each bucket; the newest one names nearly all segments."""
    paths = BucketedPaths(str(tmp_path))
    fill(paths, range(100))
    now = age(tmp_path, GRACE + 1)
    sweep_directory(FS, paths, 98, now)
    for manifest in Path(paths.manifests(0)).iterdir():
        os.utime(manifest, ns=(now * 1000, now * 1000))
    # As if many batches had come in the last seconds, which wrote nothing.
    [*_, newest] = sorted(Path(paths.manifests(0)).iterdir())
    for batch in range(100, 160):
        shutil.copy2(newest, newest.with_name(f"{batch:010d}-{batch:016x}.json"))
    sweep_directory(FS, paths, 159, now)
    read: list[str] = []

    def counted(fs: Filesystem, path: str) -> Manifest:
        read.append(path)
        return read_manifest(fs, path)

    monkeypatch.setattr(retention, "read_manifest", counted)
    before = names(paths.data(0))
    assert sweep_directory(FS, paths, 159, now) == 0
    assert names(paths.data(0)) == before
    assert len(names(paths.manifests(0))) > 60
    assert 1 <= len(read) <= 4
