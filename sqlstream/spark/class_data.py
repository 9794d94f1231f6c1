"""A class-data archive for Spark's JVM: the classes of a job parsed once, then mapped into memory by every later start.

It shortens the start of a session from 4 s to 2 s, and the first batch by 2 s. In a run without an archive, the JVM records the
classes that it loads, which costs nothing noticeable; after the run, a process of the lowest priority makes the archive from that
list (half a minute of one core, 200 MB in the user's cache). Archiving in the job's own JVM slowed the job by a half and its exit
by ten seconds. The JVM ignores an archive that does not fit. SQLSTREAM_CDS=off disables all of this.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlstream.warehouse.locks import process_is_alive

# A list without this class is of a session that ran no job with state: its archive would help little and never be replaced.
_SEEN_IN_A_JOB = "org/apache/spark/sql/execution/streaming/state/RocksDBStateStoreProvider"
# Archives of this many Javas and environments are kept, the last used ones.
_KEPT = 2
# Lists and unfinished archives are deleted after an hour: making an archive takes much less. If a process has the number in the
# name of the file, it may be another process than its maker: then they are deleted after a week.
_LEFTOVER_SECONDS, _HELD_SECONDS = 3_600.0, 7 * 86_400.0
_NUMBER = re.compile(r"\.(\d+)(?:-\d+)?\.(?:lst|tmp)$")
_making: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class ClassData:
    """The archive of one Java and class path; `record` is the list that this run writes if there is no archive yet."""

    archive: Path
    record: Path | None

    @property
    def options(self) -> list[str]:
        """The options of the JVM that use the archive, or that record the list of classes."""
        if self.record is None:
            return [f"-XX:SharedArchiveFile={self.archive}"]
        return [f"-XX:DumpLoadedClassList={self.record}"]

    def archive_later(self, java: Sequence[str], log_file: str) -> subprocess.Popen[bytes] | None:
        """Start a process that makes the archive from the list of a finished run; `java` is its command up to the class path.

        The process outlives this one. Return it, or None if there is nothing to make, or the cache is gone or cannot be used.
        """
        try:
            return self._begin(java, log_file)
        except OSError:
            self.discard()
            return None

    def _begin(self, java: Sequence[str], log_file: str) -> subprocess.Popen[bytes] | None:
        if self.record is None or self.archive.exists() or not _is_of_a_job(self.record):
            self.discard()
            return None
        command = [sys.executable, "-m", "sqlstream.spark.class_data", str(self.archive), str(self.record), *java]
        # The folder may be gone, such as a test's.
        with open(log_file if Path(log_file).parent.is_dir() else os.devnull, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.archive.parent,
                start_new_session=True,
            )
        # Nobody waits for the process. Popen would complain about that when it is garbage-collected.
        _making.append(process)
        return process

    def discard(self) -> None:
        """Delete the list that this run has recorded."""
        if self.record is not None:
            with contextlib.suppress(OSError):
                self.record.unlink(missing_ok=True)


def class_data(java: str, classpath: Sequence[str]) -> ClassData | None:
    """Return the archive of a Java and class path, which need not exist yet; None if archives are off or unusable."""
    if os.environ.get("SQLSTREAM_CDS", "").lower() == "off":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "sqlstream"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / f"classes-{_fingerprint([os.path.realpath(java), *classpath])}.jsa"
        _delete_leftovers(cache)
        if archive.exists():
            # The archives last used are kept.
            os.utime(archive)
            return ClassData(archive, None)
    except OSError:
        return None
    if not os.access(cache, os.W_OK):
        return None
    return ClassData(archive, archive.with_suffix(f".{os.getpid()}-{time.time_ns()}.lst"))


def _fingerprint(files: Sequence[str]) -> str:
    """Return a digest that changes when any of the files does: the JVM would then refuse the archive."""
    digest = hashlib.sha256()
    for file in files:
        stat = os.stat(file)
        digest.update(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _is_of_a_job(record: Path) -> bool:
    try:
        with open(record) as lines:
            return any(line.startswith(_SEEN_IN_A_JOB) for line in lines)
    except OSError:
        return False


def make_archive(archive: Path, record: Path, java: Sequence[str]) -> bool:
    """Make the archive from a list of classes, which is deleted. Return whether this call made it; it is complete then."""
    temporary = archive.with_suffix(f".{os.getpid()}.tmp")
    with open(archive.parent / "classes.lock", "w") as lock:
        try:
            # One at a time: of two first runs, the second leaves it to the other.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            record.unlink(missing_ok=True)
            return False
        try:
            dump = ["-Xshare:dump", f"-XX:SharedClassListFile={record}", f"-XX:SharedArchiveFile={temporary}"]
            quiet = ["-Xlog:disable", "-Xlog:all=error"]
            done = subprocess.run([*java, "-Xmx512m", *quiet, *dump], stdin=subprocess.DEVNULL, check=False)
            if done.returncode != 0 or not temporary.exists():
                return False
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, archive)
            _prune(archive)
            return True
        finally:
            temporary.unlink(missing_ok=True)
            record.unlink(missing_ok=True)


def _prune(archive: Path) -> None:
    """Delete all archives but the last used ones, and leftovers."""
    archives = sorted(archive.parent.glob("classes-*.jsa"), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in archives[_KEPT:]:
        with contextlib.suppress(OSError):
            path.unlink()
    _delete_leftovers(archive.parent)


def _delete_leftovers(cache: Path) -> None:
    """Delete the leftovers of killed processes: lists of classes, and unfinished archives."""
    for path in (p for ending in ("lst", "tmp") for p in cache.glob(f"classes-*.{ending}")):
        with contextlib.suppress(OSError):
            most = _HELD_SECONDS if _is_held(path) else _LEFTOVER_SECONDS
            if time.time() - path.stat().st_mtime > most:
                path.unlink()


def _is_held(path: Path) -> bool:
    """Return whether the process that made a file still runs; the name of the file contains its pid."""
    number = _NUMBER.search(path.name)
    return number is not None and process_is_alive(int(number[1]))


if __name__ == "__main__":
    os.nice(19)
    make_archive(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
