"""Spark as the engine of a session: the first job starts it, and all jobs share it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sqlstream.project import Project
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources
from sqlstream.runtime.worker import JobSpec
from sqlstream.spark.clusters import check_checkpoint, cluster_settings, is_cluster
from sqlstream.spark.java import find_java
from sqlstream.storage_errors import make_folder
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sqlstream.spark.jvm import Jvm
    from sqlstream.spark.run import SparkRun

# Executors register within seconds if there is room for them.
EXECUTOR_SECONDS = 30.0


class SparkEngine:
    """Runs jobs on Spark. Its JVM ends with `close`, and with this process, and inherits the file descriptor that `lock` returns.

    If the JVM has died, the next run of a job starts a new one.
    """

    can_run_again = True

    def __init__(self, project: Project, lock: Callable[[], int], notice: Callable[[str], None]):
        self.project, self.lock, self.notice = project, lock, notice
        self._session: SparkSession | None = None
        self._start: Callable[[], SparkSession] | None = None
        self._waiting: threading.Timer | None = None
        # Jobs that find the JVM dead would each start a new one.
        self._starting = threading.Lock()

    def layout(self, partitions: int) -> Layout:
        return Layout.of(partitions)

    def prepare(self, resources: Resources) -> None:
        with self._starting:
            if self._session is None:
                self._prepare(resources)

    def _prepare(self, resources: Resources) -> None:
        conf = dict(resources.conf)
        master = conf.pop("spark.master", f"local[{resources.parallelism},4]")
        # Faults of the machine are reported before anything is started.
        check_checkpoint(master, Warehouse(self.project.warehouse).fs, conf)
        conf = cluster_settings(master, conf) | conf
        find_java()
        self.notice("starting Spark ...")
        # Importing PySpark takes long: the user now knows why.
        from sqlstream.spark.jvm import start_spark

        make_folder(os.path.dirname(self.project.log_file))
        # Spark's application, which all jobs of a session share, is named after the first.
        self._start = partial(
            start_spark,
            master=master,
            conf=conf,
            log_file=self.project.log_file,
            pass_fds=(self.lock(),),
            app_name=resources.name,
        )
        self._session = self._start()
        if is_cluster(master):
            self._waiting = threading.Timer(EXECUTOR_SECONDS, self._ask_for_executors, (master,))
            self._waiting.daemon = True
            self._waiting.start()

    def _ask_for_executors(self, master: str) -> None:
        """Send a notice if a cluster has given no executor: all jobs wait for one, and Spark only logs that."""
        session = self._session
        # The session may be stopped at any moment.
        with contextlib.suppress(Exception):
            # The driver is one of them.
            if session is not None and session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2:
                self.notice(
                    f"{master} has given no executor in {EXECUTOR_SECONDS:.0f} s, and jobs wait for one: other applications"
                    " may have all cores (spark.cores.max), or no worker has so much memory free (spark.executor.memory)"
                )

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> SparkRun:
        from sqlstream.spark.run import SparkRun

        with self._starting:
            session, jvm = self._living()
        try:
            spark = session.newSession()
            spark.conf.set("spark.sql.shuffle.partitions", layout.partitions)
        except Exception as error:
            raise jvm.death() or error from error
        return SparkRun(spark, jvm, self.project.log_file, job, layout, pace, receivers)

    def _living(self) -> tuple[SparkSession, Jvm]:
        """Return the session and its JVM: new ones if the JVM has died or has lost its temporary files."""
        from sqlstream.spark.jvm import running_jvm, stop_spark

        if self._session is not None and (running_jvm().has_ended or running_jvm().loss()):
            stop_spark(self._session)
            self._session = None
        if self._session is None:
            assert self._start is not None, "prepare comes first"
            self._session = self._start()
        return self._session, running_jvm()

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._session is not None:
            from sqlstream.spark.jvm import stop_spark

            stop_spark(self._session)
            self._session = None
