"""Streams whose jobs go by savepoints: back to them, as forks beside themselves, and into another warehouse."""

from __future__ import annotations

import shutil
from dataclasses import replace as data_replace
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.parallelism import newest_entry
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.jobs.savepoints.restore_plans import Restore, Restorer
from sqlstream.jobs.savepoints.restored_files import complete, forget_completed
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.sql.statements import parse_script
from sqlstream.storage.caches import forget_all
from sqlstream.storage.joblog import labels_of
from sqlstream.testing import Stream
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord, read_record, write_record
from sqlstream.warehouse.paths import JobPaths, Warehouse
from tests.kinds import of_type

# What a stepped job has read of tables and of sources that feed themselves; other engines keep it where savepoints take it.
_FEEDS = ("tables", "sources", "files")


class SavedStream(Stream):
    """A stream with savepoints; rows that came after one are gone when a job has gone back to it, unless they are fed again."""

    def __enter__(self) -> SavedStream:
        return self

    def savepoint(self, job: str, name: str, folder: Path | None = None) -> None:
        """Take a savepoint of a job, in the warehouse or in a folder."""
        target = None if folder is None else Warehouse(str(folder))
        savepoint_folders.take(Warehouse(self.warehouse), job, name, target)

    def go_back(self, job: str, savepoint: str) -> None:
        """Let a job go on from a savepoint of its own, by its name or its folder."""
        release(self.runs[job].job)
        self._restore(self.planned(job), Restore(savepoint))

    def fork(self, name: str, script: str, savepoint: str) -> None:
        """Run the last statement of a script from a savepoint, under a name, beside the job that this is of."""
        [*_, planned] = [self.compile(statement) for statement in parse_script(SourceText("fork", script))]
        job = data_replace(of_type(PlannedJob, planned), name=name)
        self._planned[name] = job
        self._restore(job, Restore(savepoint, is_fork=True))

    def move(self, parallelism: int | None = None) -> None:
        """Take all jobs into a new warehouse, each by a savepoint in a folder that is moved, too; the old warehouse goes."""
        old, number = self.warehouse, uuid4().hex
        self.warehouse = f"{self._directory.name}/warehouse-{number}"
        self._parallelism = self._parallelism if parallelism is None else parallelism
        if self._sandbox is not None:
            # It may read files of the old warehouse only.
            self._sandbox.close()
            self._sandbox = None
        for name, run in self.runs.items():
            release(run.job)
            before, after = Warehouse(old).job(name), Warehouse(self.warehouse).job(name)
            if last_committed(Warehouse(old).fs, before) is None:
                record = of_type(JobRecord, read_record(Warehouse(old).fs, before))
                write_record(Warehouse(self.warehouse).fs, after, record)
                self._go_on(self.planned(name))
                continue
            taken = Path(f"{self._directory.name}/taken-{number}")
            savepoint_folders.take(Warehouse(old), name, "moving", Warehouse(str(taken)))
            moved = taken.rename(f"{taken}-moved")
            self._restore(self.planned(name), Restore(str(moved)), before)
            shutil.rmtree(moved)
        shutil.rmtree(old)

    def start_again(self, job: str) -> None:
        """Start a job as the next process does, after one that was killed; a restore that had begun is completed."""
        self._forget()
        warehouse = Warehouse(self.warehouse)
        forget_completed(warehouse, job)
        complete(warehouse, job, _nowhere)
        self._go_on(self.planned(job))

    def _restore(self, planned: PlannedJob, asked: Restore, fed: JobPaths | None = None) -> None:
        warehouse = Warehouse(self.warehouse)

        def made(planned: PlannedJob, saved: JobRecord) -> JobRecord:
            record = job_record(planned, self._spec(planned, saved.bucket_labels), saved.partitions)
            return replace(record, versions=saved.versions)

        Restorer(warehouse, planned, made, _nowhere, lambda _: None).run(asked)
        if fed is not None:
            for feed in _FEEDS:
                if Path(f"{fed.root}/{feed}").exists():
                    shutil.copytree(f"{fed.root}/{feed}", f"{warehouse.job(planned.name).root}/{feed}")
        self._go_on(planned)

    def _go_on(self, planned: PlannedJob) -> None:
        """Run a job on from what the warehouse has of it."""
        self._forget()
        warehouse, name = Warehouse(self.warehouse), planned.name.lower()
        record = of_type(JobRecord, read_record(warehouse.fs, warehouse.job(name)))
        labels = self._engine.layout(self._parallelism).labels
        spec = self._spec(planned, labels_of(record, newest_entry(warehouse, name)))
        self._run(name, self._spread(spec, labels))

    def _spec(self, planned: PlannedJob, labels: tuple[int, ...]) -> JobSpec:
        return job_spec(planned, self.warehouse, labels, project=self._directory.name)

    def _forget(self) -> None:
        forget_all()


def _nowhere(_: object) -> None:
    raise AssertionError("no source begins elsewhere")
