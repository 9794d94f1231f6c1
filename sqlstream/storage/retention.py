"""Deletion of files that are no longer needed: superseded manifests, and files that no manifest names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from sqlstream.storage.joblog import JobLog
from sqlstream.storage.manifests import batch_of, read_manifest
from sqlstream.units import SECOND, Duration, ProcessingTime
from sqlstream.warehouse.filesystem import FileInfo, Filesystem
from sqlstream.warehouse.paths import BucketedPaths, JobPaths

# A reader lists, opens and reads within this time, or starts over.
GRACE: Final = Duration(60 * SECOND)
# A file being written grows all the time, but a process may be suspended.
LEFTOVER: Final = Duration(3600 * SECOND)
# A recovery may ask for this many versions before the last one.
KEPT_STATES: Final = 2


def sweep(fs: Filesystem, job: JobPaths, oldest_version: int, newest_committed: int, now: ProcessingTime) -> int:
    """Delete what neither a reader of a retained version nor a recovery needs; return the number of deleted files of state.

    Only the process that runs the job may call this. `oldest_version` is the oldest one to keep in the log; manifests decide how
    long rows are kept.
    """
    log = JobLog(fs, job.log)
    log.prune(oldest_version)
    operators = [BucketedPaths(f"{job.state}/{operator}") for operator in fs.list(job.state)]
    deleted = sum(sweep_directory(fs, paths, newest_committed, now) for paths in operators)
    return deleted + _sweep_old_buckets(fs, log, operators, newest_committed, now)


def _sweep_old_buckets(
    fs: Filesystem, log: JobLog, operators: Iterable[BucketedPaths], newest_committed: int, now: ProcessingTime
) -> int:
    """Delete the old buckets of a rescaled job, once no reader and no recovery asks for them."""
    # The newest entry of all tells where the state is: the last committed version's differs while a job is rescaled.
    last = log.last()
    labels = set(last.labels) if last is not None else set()
    buckets = [(paths, int(bucket)) for paths in operators for bucket in fs.list(f"{paths.root}/manifests")]
    leftovers = [
        (paths, bucket) for paths, bucket in buckets if bucket not in labels and fs.list(paths.manifests(bucket))
    ]
    if not labels or not leftovers:
        return 0
    entries = log.entries(faults=[])
    since = [e for e in entries if set(e.labels) != labels]
    after = [e for e in entries if e.version <= newest_committed and (not since or e.version > since[-1].version)]
    if len(after) <= KEPT_STATES or after[KEPT_STATES].committed_at >= now - GRACE:
        return 0
    gone = [
        f"{directory}/{name}"
        for paths, bucket in leftovers
        for directory in (paths.manifests(bucket), paths.data(bucket))
        for name in fs.list(directory)
    ]
    fs.delete_all(gone)
    return len(gone)


def sweep_directory(fs: Filesystem, paths: BucketedPaths, newest_committed: int, now: ProcessingTime) -> int:
    """Delete unneeded files of one operator, or of what the job wrote into one table; return their number."""
    buckets = {*fs.list(f"{paths.root}/data"), *fs.list(f"{paths.root}/manifests")}
    return sum(_sweep_bucket(fs, paths, int(bucket), newest_committed, now) for bucket in sorted(buckets))


def _sweep_bucket(fs: Filesystem, paths: BucketedPaths, bucket: int, newest_committed: int, now: ProcessingTime) -> int:
    manifests, data = paths.manifests(bucket), paths.data(bucket)
    # The data is listed first: a file that is written and named after this is not looked at.
    segments = fs.files(data)
    files = fs.files(manifests)
    needed_names = needed(files, newest_committed, now)
    gone = [f"{manifests}/{f.name}" for f in files if f.name not in needed_names]
    # Those that an attempt of this batch may still be about to name are left alone.
    old = [s for s in segments if batch_of(s.name) < newest_committed - 2 and s.modified < now - GRACE]
    if old:
        unnamed = (
            _unnamed(fs, manifests, needed_names, {s.name for s in old}) if needed_names else {s.name for s in old}
        )
        gone += [f"{data}/{name}" for name in sorted(unnamed)]
    for directory in (manifests, data):
        gone += [f"{directory}/{f.name}" for f in fs.leftovers(directory) if f.modified < now - LEFTOVER]
    fs.delete_all(gone)
    return len(gone)


def needed(manifests: Iterable[FileInfo], newest_committed: int, now: ProcessingTime) -> set[str]:
    """Return the names of the manifests that must stay, of all manifests of a bucket.

    Spark's state store refers to states of the versions newest_committed - 1 to newest_committed + 1. The state of a version is
    the last manifest up to it; which attempt wrote it is not known here. A reader may have opened a manifest as long as there was
    no newer one, and needs it for GRACE after that.
    """
    by_batch = [(batch, list(files)) for batch, files in groupby(sorted(manifests, key=_batch), key=_batch)]
    names: set[str] = set()
    for i, (_, files) in enumerate(by_batch):
        following = by_batch[i + 1] if i + 1 < len(by_batch) else None
        replaced = following is not None and following[0] < newest_committed
        unread = following is not None and max(f.modified for f in following[1]) < now - GRACE
        if not (replaced and unread):
            names.update(f.name for f in files)
    return names


def _batch(file: FileInfo) -> int:
    return batch_of(file.name)


def _unnamed(fs: Filesystem, directory: str, manifests: Iterable[str], segments: set[str]) -> set[str]:
    """Return the segments that no manifest names.

    The newest manifest names current segments, the oldest ones name segments replaced lately: the others are seldom read.
    """
    *older, newest = sorted(manifests)
    for manifest in (newest, *older):
        if not segments:
            break
        segments = segments - set(_named(fs, f"{directory}/{manifest}"))
    return segments


def _named(fs: Filesystem, path: str) -> Iterable[str]:
    return (segment.name for segments in read_manifest(fs, path).tables.values() for segment in segments)
