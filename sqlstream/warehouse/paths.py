"""The paths of all files in a warehouse."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from urllib.parse import unquote

from sqlstream.names import path_name
from sqlstream.warehouse.filesystem import SESSIONS, open_filesystem

# The record of a savepoint, which is written last.
SAVEPOINT = "savepoint.json"


@dataclass(frozen=True, slots=True)
class BucketedPaths:
    """The directory of an operator's state, or of a job's rows in a table: per bucket, data files and manifests."""

    root: str

    def data(self, bucket: int) -> str:
        """Return the directory of a bucket's data files."""
        return f"{self.root}/data/{bucket}"

    def manifests(self, bucket: int) -> str:
        """Return the directory of a bucket's manifests."""
        return f"{self.root}/manifests/{bucket}"


@dataclass(frozen=True, slots=True)
class JobPaths:
    """A job's directory: the paths of its record, status, log, commits and state."""

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
        """The last results of the job's state checks."""
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
        """The file that says what the newest batch reads that has begun; only jobs on Spark have it."""
        return f"{self.root}/begun.json"

    @property
    def scratch(self) -> str:
        """The directory of Spark's checkpoint, which is not needed when the job does not run."""
        return f"{self.root}/scratch"

    @property
    def restoring(self) -> str:
        """The plan of a restore that has begun and is not complete."""
        return f"{self.root}/restoring.json"

    @property
    def splits(self) -> str:
        """The directory of descriptors, which say what batches read."""
        return f"{self.root}/splits"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    @property
    def state(self) -> str:
        return f"{self.root}/state"

    @property
    def output(self) -> str:
        """The directory of what the job stores about its sinks outside of the warehouse."""
        return f"{self.root}/output"

    def operator(self, name: str) -> BucketedPaths:
        """Return the directory of an operator's state."""
        return BucketedPaths(f"{self.state}/{path_name(name)}")


@dataclass(frozen=True, slots=True)
class TablePaths:
    """The directory of a warehouse table, with a directory for each job that writes into it."""

    root: str

    def job(self, name: str) -> BucketedPaths:
        """Return the directory of the rows that a job writes into the table."""
        return BucketedPaths(f"{self.root}/{path_name(name.lower())}")


class Warehouse:
    """A directory, or a URI such as `s3://bucket/path`, with jobs and tables. Their names ignore case."""

    def __init__(self, root: str):
        self.fs, self.root = open_filesystem(root)

    def uncached(self) -> Warehouse:
        """Return the warehouse without copies of files: everything is read from the storage itself."""
        warehouse = copy(self)
        warehouse.fs = self.fs.uncached()
        return warehouse

    def jobs(self) -> list[str]:
        """Return the names of the jobs, in lower case.

        Files that a job without a name has left beside the folders of jobs are ignored.
        """
        folder = f"{self.root}/jobs"
        names = self.fs.list(folder)
        if "job.json" in names:
            names = [name for name in names if self.fs.exists(f"{folder}/{name}/job.json")]
        return [unquote(name) for name in names]

    def job(self, name: str) -> JobPaths:
        """Return the directory of a job, which need not exist."""
        return JobPaths(f"{self.root}/jobs/{path_name(name.lower())}")

    def tables(self) -> list[str]:
        """Return the names of the tables that jobs wrote into, in lower case."""
        return [unquote(name) for name in self.fs.list(f"{self.root}/tables")]

    def table(self, name: str) -> TablePaths:
        """Return the directory of a table, which need not exist."""
        return TablePaths(f"{self.root}/tables/{path_name(name.lower())}")

    def published(self, table: str) -> str:
        """Return the folder of the published form of a table, where other engines read it."""
        return f"{self.root}/published/{path_name(table.lower())}"

    def writers(self, table: str) -> list[str]:
        """Return the names of the jobs that wrote into a table, in lower case."""
        return [unquote(name) for name in self.fs.list(self.table(table).root)]

    def savepoints(self) -> list[str]:
        """Return the names of the complete savepoints, in lower case."""
        folder = f"{self.root}/savepoints"
        return [unquote(n) for n in self.fs.list(folder) if self.fs.exists(f"{folder}/{n}/{SAVEPOINT}")]

    def savepoint(self, name: str) -> Warehouse:
        """Return the folder of a savepoint, as a warehouse with one job, and the tables that it wrote, at one version."""
        return self.below(f"savepoints/{path_name(name.lower())}")

    def below(self, folder: str) -> Warehouse:
        """Return a folder in the warehouse as a warehouse of its own."""
        warehouse = copy(self)
        warehouse.root = f"{self.root}/{folder}"
        return warehouse

    @property
    def checks(self) -> str:
        """The folder of the state checks of all jobs."""
        return f"{self.root}/checks"

    @property
    def sessions(self) -> str:
        return f"{self.root}/{SESSIONS}"
