"""Where everything in a warehouse lies."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from urllib.parse import unquote

from sqlstream.names import path_name
from sqlstream.warehouse.filesystem import SESSIONS, open_filesystem

# The record of a savepoint, which is there when all the rest is.
SAVEPOINT = "savepoint.json"


@dataclass(frozen=True, slots=True)
class BucketedPaths:
    """The directory of an operator's state, or of a job's rows in a table: per bucket, data files and manifests."""

    root: str

    def data(self, bucket: int) -> str:
        return f"{self.root}/data/{bucket}"

    def manifests(self, bucket: int) -> str:
        return f"{self.root}/manifests/{bucket}"


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where a job keeps its record, status, log, commits and state."""

    root: str

    @property
    def name(self) -> str:
        """The job's name, in lower case."""
        return unquote(self.root.rpartition("/")[2])

    @property
    def warehouse(self) -> str:
        """The root of the job's warehouse."""
        return self.root.rsplit("/", 2)[0]

    @property
    def record(self) -> str:
        return f"{self.root}/job.json"

    @property
    def status(self) -> str:
        return f"{self.root}/status.json"

    @property
    def lock(self) -> str:
        return f"{self.root}/lock"

    @property
    def restarts(self) -> str:
        return f"{self.root}/restarts.json"

    @property
    def checks(self) -> str:
        """What the last looks at the job's state checks found."""
        return f"{self.root}/checks.json"

    @property
    def stop(self) -> str:
        return f"{self.root}/stop"

    @property
    def checkpoint(self) -> str:
        return f"{self.root}/checkpoint"

    @property
    def commits(self) -> str:
        return f"{self.root}/checkpoint/commits"

    @property
    def begun(self) -> str:
        """What the last batch of a job on Spark reads that has begun."""
        return f"{self.root}/begun.json"

    @property
    def scratch(self) -> str:
        """Where Spark's checkpoint is while the job runs; nothing in it is needed after that."""
        return f"{self.root}/scratch"

    @property
    def restoring(self) -> str:
        """From which savepoint the job is being laid out, as long as it is."""
        return f"{self.root}/restoring.json"

    @property
    def splits(self) -> str:
        """What batches read, and how far they have read."""
        return f"{self.root}/splits"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    @property
    def state(self) -> str:
        return f"{self.root}/state"

    @property
    def output(self) -> str:
        """Where the job keeps what it knows of its sinks outside of the warehouse."""
        return f"{self.root}/output"

    def operator(self, name: str) -> BucketedPaths:
        return BucketedPaths(f"{self.state}/{path_name(name)}")


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Where a warehouse table keeps its rows: one directory per job that writes into it."""

    root: str

    def job(self, name: str) -> BucketedPaths:
        return BucketedPaths(f"{self.root}/{path_name(name.lower())}")


class Warehouse:
    """A directory, or a URI such as `s3://bucket/path`, with jobs and tables. Case does not matter in their names."""

    def __init__(self, root: str):
        self.fs, self.root = open_filesystem(root)

    def uncached(self) -> Warehouse:
        """Return the warehouse as one of which no copies are believed."""
        found = copy(self)
        found.fs = self.fs.uncached()
        return found

    def jobs(self) -> list[str]:
        """Return the names of the jobs, in lower case.

        What a job without a name has left lies beside their folders; it is none of them.
        """
        folder = f"{self.root}/jobs"
        names = self.fs.list(folder)
        if "job.json" in names:
            names = [name for name in names if self.fs.exists(f"{folder}/{name}/job.json")]
        return [unquote(name) for name in names]

    def job(self, name: str) -> JobPaths:
        return JobPaths(f"{self.root}/jobs/{path_name(name.lower())}")

    def tables(self) -> list[str]:
        """Return the names of the tables that jobs wrote into, in lower case."""
        return [unquote(name) for name in self.fs.list(f"{self.root}/tables")]

    def table(self, name: str) -> TablePaths:
        return TablePaths(f"{self.root}/tables/{path_name(name.lower())}")

    def published(self, table: str) -> str:
        """Return the folder in which other engines find a table that is published."""
        return f"{self.root}/published/{path_name(table.lower())}"

    def writers(self, table: str) -> list[str]:
        """Return the names of the jobs that wrote into a table, in lower case."""
        return [unquote(name) for name in self.fs.list(self.table(table).root)]

    def savepoints(self) -> list[str]:
        """Return the names of the savepoints, in lower case: those that are complete."""
        folder = f"{self.root}/savepoints"
        return [unquote(n) for n in self.fs.list(folder) if self.fs.exists(f"{folder}/{n}/{SAVEPOINT}")]

    def savepoint(self, name: str) -> Warehouse:
        """Return the folder of a savepoint: it is a warehouse of one job and what that wrote, at one version."""
        return self.below(f"savepoints/{path_name(name.lower())}")

    def below(self, folder: str) -> Warehouse:
        """Return a folder in the warehouse as a warehouse of its own."""
        found = copy(self)
        found.root = f"{self.root}/{folder}"
        return found

    @property
    def checks(self) -> str:
        """The folder of the state checks of all jobs."""
        return f"{self.root}/checks"

    @property
    def sessions(self) -> str:
        return f"{self.root}/{SESSIONS}"
