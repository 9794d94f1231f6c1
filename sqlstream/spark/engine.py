"""Spark as the engine of a session: started with its first job, and shared by all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlstream.compiler.project import Project
from sqlstream.errors import UsageError
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.java import find_java
from sqlstream.spark.labels import spread_labels
from sqlstream.warehouse.filesystem import make_folder
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sqlstream.spark.run import SparkRun


class SparkEngine:
    """Runs jobs on Spark. Its JVM ends with `close`, and with this process, whose `lock` (a file descriptor) it holds, too."""

    can_run_again = True

    def __init__(self, project: Project, lock: Callable[[], int], notice: Callable[[str], None]):
        self.project, self.lock, self.notice = project, lock, notice
        self._session: SparkSession | None = None

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, spread_labels(partitions, partitions))

    def prepare(self, resources: Resources) -> None:
        if self._session is not None:
            return
        conf = dict(resources.conf)
        master = conf.pop("spark.master", f"local[{resources.parallelism},4]")
        # What is wrong with the machine is said before anything is started.
        if not Warehouse(self.project.warehouse).fs.local:
            _check_master(master)
        find_java()
        self.notice("starting Spark ...")
        # PySpark is imported by then, while the user knows what for.
        from sqlstream.spark.jvm import start_spark

        make_folder(os.path.dirname(self.project.log_file))
        self._session = start_spark(master=master, conf=conf, log_file=self.project.log_file, pass_fds=(self.lock(),))

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> SparkRun:
        from sqlstream.spark.run import SparkRun

        assert self._session is not None, "prepare comes first"
        spark = self._session.newSession()
        spark.conf.set("spark.sql.shuffle.partitions", layout.partitions)
        return SparkRun(spark, self.project.log_file, job, layout, pace, receivers)

    def close(self) -> None:
        if self._session is not None:
            from sqlstream.spark.jvm import stop_spark

            stop_spark(self._session)
            self._session = None


def _check_master(master: str) -> None:
    """Raise UsageError when the tasks of a job would not all see a folder on this machine."""
    if not master.startswith("local"):
        raise UsageError(
            f'a job with its warehouse in an object store runs on this machine, not on "{master}" (spark.master)',
            hint="Use a warehouse that all machines of the cluster see as a folder.",
        )
