"""The commits of a job: a file for each committed version."""

from __future__ import annotations

import json
import re
from uuid import uuid4

from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.leases import check_held, taken_over
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import CHANGED, CUT, EMPTY, GONE, damage, digest
from sqlstream.warehouse.stores import PreconditionFailed, StoreFilesystem

# How many commits are kept. A power failure takes what was written in the last half minute; so many commits reach back further,
# so an intact one remains.
KEPT_COMMITS = 100
# How often the newest commit is looked for, while commits may be deleted one after the other.
_MOST_LOOKS = 2 * KEPT_COMMITS
# The first line of a commit. Commits that Spark wrote for earlier versions have no digest.
_COMMIT_VERSION = re.compile(r"v\d+(?: ([0-9a-f]{16}))?")


def newest_commit(fs: Filesystem, job: JobPaths) -> int | None:
    """Return the version of the newest commit, even of a damaged one; None before the first commit."""
    return max((int(name) for name in fs.entries(job.commits) if name.isdigit()), default=None)


def last_committed(fs: Filesystem, job: JobPaths) -> int | None:
    """Return the newest committed version, None before the first commit. Raises DamageError when the commit is damaged."""
    path, fault = job.commits, GONE
    for _ in range(_MOST_LOOKS):
        newest = newest_commit(fs, job)
        if newest is None:
            return None
        path = f"{job.commits}/{newest}"
        newest_fault = commit_fault(fs, path)
        if newest_fault is None:
            return newest
        # A commit that was listed and is gone was deleted in between: the job is being dropped, or goes back to a savepoint.
        if (fault := newest_fault) != GONE:
            break
    raise damage(path, fault)


def write_commit(fs: Filesystem, job: JobPaths, version: int, spark_millis: int = 0) -> None:
    """Commit a version; `spark_millis` is the watermark of the next batch on Spark's scale (see `runtime/times.py`).

    Raises JobError when another process may run the job by now, or has committed the version.
    """
    check_held(job)
    path = f"{job.commits}/{version}"
    if not isinstance(fs, StoreFilesystem):
        fs.write_text_atomic(path, _commit(spark_millis))
        return
    text = _commit(spark_millis, by=uuid4().hex)
    try:
        fs.put_if(path, text, None)
    except PreconditionFailed as changed:
        # The put was repeated because its answer was lost, if the file has this very text.
        if fs.read_tagged(path)[0] != text.encode():
            raise taken_over(job) from changed


def _commit(spark_millis: int, **more: str) -> str:
    body = json.dumps({"nextBatchWatermarkMs": spark_millis, **more})
    return f"v1 {digest(body)}\n{body}"


def committed_spark_millis(fs: Filesystem, job: JobPaths, version: int) -> int:
    """Return the watermark of the batch after a commit, on Spark's scale. Raises FileNotFoundError."""
    return int(json.loads(fs.read_text(f"{job.commits}/{version}").splitlines()[1])["nextBatchWatermarkMs"])


def commit_fault(fs: Filesystem, path: str) -> str | None:
    """Return what is wrong with a commit, such as GONE or CUT, else None. A commit without a digest can only be parsed."""
    try:
        version, _, body = fs.read_text(path).partition("\n")
    except FileNotFoundError:
        return GONE
    except UnicodeDecodeError:
        return CHANGED
    fault = CUT if (version + body).strip("\0") else EMPTY
    try:
        json.loads(body)
    except ValueError:
        return fault
    if not (match := _COMMIT_VERSION.fullmatch(version)):
        return fault
    return CHANGED if match[1] and match[1] != digest(body) else None
