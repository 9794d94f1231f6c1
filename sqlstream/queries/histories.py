"""Cached histories of jobs, for a process that asks for them often: read again when a job has committed or changed."""

from __future__ import annotations

from typing import NamedTuple

from sqlstream.storage.joblog import JobLog
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.commits import newest_commit
from sqlstream.warehouse.paths import Warehouse


class _CachedHistory(NamedTuple):
    """A history, and the version tags of the files that it was read from."""

    files: tuple[object, ...]
    history: JobHistory


class JobHistories:
    """The histories of the jobs of a warehouse, cached while the version tags of a job's files stay the same.

    In an object store version tags take requests, as many as reading the files does: nothing is cached.
    """

    def __init__(self, warehouse: Warehouse):
        self._warehouse = warehouse
        self._cache: dict[str, _CachedHistory] = {}

    def of(self, name: str) -> JobHistory:
        """Return the current history of a job."""
        entry, files = self._cache.get(name), self._files(name)
        if files is None:
            self._cache.pop(name, None)
            return JobHistory(self._warehouse, name)
        if entry is None:
            history = JobHistory(self._warehouse, name)
        elif entry.files == files:
            return entry.history
        else:
            # The record is long, and mostly stays the same.
            is_same_record = entry.files[0] == files[0]
            history = JobHistory(self._warehouse, name, entry.history.record if is_same_record else None)
        self._cache[name] = _CachedHistory(files, history)
        return history

    def forget(self, name: str) -> None:
        """Drop the cached history of a job: the next `of` reads its files."""
        self._cache.pop(name, None)

    def _files(self, name: str) -> tuple[object, ...] | None:
        """Return the version tags of the files of a history, the record first; None where files cannot be identified."""
        fs, paths = self._warehouse.fs, self._warehouse.job(name)
        if not fs.local or (newest := newest_commit(fs, paths)) is None:
            return None
        entry = JobLog(fs, paths.log).path(newest)
        version_tags = [fs.version_tag(path) for path in (paths.record, f"{paths.commits}/{newest}", entry)]
        # A job that is stepped by hand has no status.
        return None if None in version_tags else (*version_tags, newest, fs.version_tag(paths.status))
