"""A standalone Spark cluster on this machine: a master, and workers whose executors are processes of their own.

All its processes are in one process group with a keeper, which kills the group when the process that has started the cluster is
gone, however that ended. Their environment is not that of the tests: what executors need must come with a job.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from sqlstream.spark.class_data import class_data
from sqlstream.spark.java import find_java
from sqlstream.spark.jvm import MODULE_OPTIONS, spark_jars
from tests.processes import await_end, children_of, wait_until

_KEEPER = "import os, signal, sys; sys.stdin.read(); os.killpg(0, signal.SIGKILL)"
_SMALL = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WEB = re.compile(r"MasterWebUI .* started at (http://\S+)")
_REGISTERED = "Successfully registered with master"
# What starts fast and takes little memory, for the executors of a job.
SMALL_EXECUTORS: Mapping[str, str] = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # This machine is asked for by its address, whatever its name server knows.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class StandaloneCluster:
    """A master and its workers: `master` is its address for jobs, `web` that of its page. They log into a folder."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g"):
        self.folder, self.cores, self.memory = folder, cores, memory
        folder.mkdir(parents=True, exist_ok=True)
        self._java = _java()
        self._keeper = subprocess.Popen(
            [sys.executable, "-S", "-c", _KEEPER], stdin=subprocess.PIPE, process_group=0, cwd=folder
        )
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            self._master = self._started("master", "--port", "0")
            self.master, self.web = self._said("master", _MASTER), self._said("master", _WEB)
            for _ in range(workers):
                self.start_worker()
            for number in range(workers):
                self._said(f"worker-{number}", re.compile(f"({_REGISTERED})"))
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, str]:
        """What a job sets to run on this cluster."""
        return {"spark.master": self.master, **SMALL_EXECUTORS}

    @property
    def arguments(self) -> list[str]:
        """The same as arguments of `sqlstream run`."""
        return [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]

    def start_worker(self) -> None:
        """Start one more worker. It asks the master for work when it is up."""
        name = f"worker-{len(self.workers)}"
        capacity = ("--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self.folder / name))
        self.workers.append(self._started(name, "--port", "0", *capacity, self.master))

    def executors(self) -> list[psutil.Process]:
        """Return the processes in which tasks run now."""
        living = [w for w in self.workers if w.poll() is None]
        return [found for w in living for found in children_of(w.pid, "CoarseGrainedExecutorBackend")]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the cluster, also those that run Python for an executor."""
        found: list[psutil.Process] = []
        for process in (self._keeper, self._master, *self.workers):
            with suppress(psutil.NoSuchProcess):
                one = psutil.Process(process.pid)
                found += [one, *one.children(recursive=True)]
        return found

    def close(self) -> None:
        """End all processes, and wait for their ends."""
        left = self.processes() if hasattr(self, "_master") else []
        # The keeper is in the group, which exists as long as the keeper has not been waited for.
        with suppress(ProcessLookupError):
            os.killpg(self._keeper.pid, signal.SIGKILL)
        for process in left:
            # Spark's Python workers lead a group of their own.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for started in (self._keeper, *([self._master] if hasattr(self, "_master") else []), *self.workers):
            started.wait()
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        await_end(left)

    def _started(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        kind = name.partition("-")[0]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [
                    *self._java,
                    f"org.apache.spark.deploy.{kind}.{kind.title()}",
                    "--host",
                    "127.0.0.1",
                    *_WEB_PORT,
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                process_group=self._keeper.pid,
            )

    def _said(self, name: str, what: re.Pattern[str]) -> str:
        """Wait for a line in a log, and return the first group of it."""
        process = self._master if name == "master" else self.workers[int(name.partition("-")[2])]
        log = self.folder / f"{name}.log"

        def found() -> re.Match[str] | None:
            text = log.read_text(errors="replace")
            assert process.poll() is None, f"{name} has ended:\n{text}"
            return what.search(text)

        wait_until(found)
        said = found()
        assert said is not None
        return said[1]


_WEB_PORT = ("--webui-port", "0")


def _java() -> list[str]:
    java, jars = find_java().path, spark_jars()
    classes = class_data(java, jars)
    # Only an archive that is there: what these processes load is not what a job's JVM does.
    archive = classes.options if classes is not None and classes.record is None else []
    return [java, *MODULE_OPTIONS, "-cp", ":".join(jars), *archive, *_SMALL]


def _environment() -> dict[str, str]:
    """Return the environment that somebody who knows nothing of a job would start a cluster in."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "TMPDIR") if name in os.environ}
    home = Path(spark_jars()[0]).parents[1]
    scala = next(home.glob("jars/spark-core_*.jar")).name.split("_")[1].split("-")[0]
    spark = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**kept, **spark, "LC_ALL": "C.UTF-8"}


@contextmanager
def standalone_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g"
) -> Iterator[StandaloneCluster]:
    """Yield a cluster, which ends with the block."""
    cluster = StandaloneCluster(folder, workers=workers, cores=cores, memory=memory)
    try:
        yield cluster
    finally:
        cluster.close()
