"""Spark starts quietly, with our settings, and its JVM ends with us."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sqlstream.errors import UsageError
from sqlstream.spark import daemon, jvm
from sqlstream.spark.java import find_java
from tests.processes import SECONDS, await_end

# -- what the JVM is started with


def test_settings_survive_a_properties_file() -> None:
    text = jvm._properties({"spark.a": "C:\\x", "spark.b": "1\n2", "spark.c": "a=b:c #d"})
    assert text == "spark.a=C:\\\\x\nspark.b=1\\n2\nspark.c=a=b:c #d\n"


def test_the_users_java_options_come_last() -> None:
    conf = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": '-Da="b c" -XX:TieredStopAtLevel=4'}
    options = jvm._jvm_options(conf, "/log/spark.log")
    assert options[0] == "-Xmx3g"
    assert options[-2:] == ["-Da=b c", "-XX:TieredStopAtLevel=4"]


def test_workers_take_the_compiled_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = [p for p in sys.path if "zip" not in p]
    zips = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip"]
    monkeypatch.setattr(sys, "path", [*zips, *installed])
    daemon.prefer_installed_pyspark()
    assert sys.path == installed
    # Where PySpark comes with Spark only, the zip is all there is.
    monkeypatch.setattr(sys, "path", [*zips, "/nothing"])
    daemon.prefer_installed_pyspark()
    assert sys.path == [*zips, "/nothing"]


@pytest.mark.spark
@pytest.mark.thorough
def test_module_options_are_those_of_sparks_launcher() -> None:
    home = jvm._spark_home()
    launcher = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
    command = [find_java().path, "-cp", f"{home}/jars/*", *launcher]
    said = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.split("\0")
    options = [o.strip() for o in said if o.strip()]
    theirs = options[options.index("-XX:+IgnoreUnrecognizedVMOptions") : options.index(launcher[1])]
    assert theirs == jvm.MODULE_OPTIONS


# -- a session


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jvm")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Any]:
    with zipfile.ZipFile(folder / "extra.jar", "w") as jar:
        jar.writestr("sqlstream-test.txt", "from the jar")
    before = signal.getsignal(signal.SIGINT)
    conf = {
        "spark.jars": str(folder / "extra.jar"),
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": '-Dsqlstream.test="a b"',
        "spark.hadoop.fs.s3a.secret.key": "hush=\\hush",
        "spark.sql.streaming.numRecentProgressUpdates": "3",
    }
    spark = jvm.start_spark(master="local[2,4]", conf=conf, log_file=str(folder / "spark.log"))
    assert signal.getsignal(signal.SIGINT) is before
    yield spark
    process = jvm._running
    jvm.stop_spark(spark)
    assert process is not None
    assert process.process.returncode == 0
    assert not os.path.exists(process.temporary)


@pytest.mark.spark
def test_settings_arrive_and_secrets_do_not_show(session: Any) -> None:
    expected = {**jvm.DEFAULTS, "spark.driver.memory": "700m", "spark.sql.streaming.numRecentProgressUpdates": "3"}
    assert {k: session.sparkContext.getConf().get(k) for k in expected} == expected
    assert session.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == "hush=\\hush"
    assert session._jvm.java.lang.System.getProperty("sqlstream.test") == "a b"
    assert 600 << 20 < session._jvm.java.lang.Runtime.getRuntime().maxMemory() <= 700 << 20
    loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.getResource("sqlstream-test.txt") is not None
    assert jvm._running is not None
    assert "hush" not in " ".join(psutil.Process(jvm._running.process.pid).cmdline())
    # What is left of it when it is killed is deleted by the next process.
    assert session._jvm.java.lang.System.getProperty("java.io.tmpdir") == jvm._running.temporary
    assert any(name.startswith("blockmgr-") for name in os.listdir(jvm._running.temporary))


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_knows_the_settings_by_these_names(session: Any, folder: Path) -> None:
    # A name that Spark does not read would be accepted silently.
    find = session._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    unregistered = [k for k in jvm.DEFAULTS if find(k) is None]
    assert unregistered == [
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows",
        "spark.sql.streaming.checkpointFileManagerClass",
    ]
    rocksdb = session._jvm.org.apache.spark.sql.execution.streaming.state.RocksDBConf
    sql_conf = session._jsparkSession.sessionState().conf()
    nothing = session._jvm.PythonUtils.toScalaMap({})
    state = session._jvm.org.apache.spark.sql.execution.streaming.state.StateStoreConf(sql_conf, nothing)
    assert (rocksdb.apply(state).enableChangelogCheckpointing(), rocksdb.apply(state).trackTotalNumberOfRows()) == (
        True,
        False,
    )
    path = session._jvm.org.apache.hadoop.fs.Path(str(folder))
    managers = session._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager = managers.create(path, session._jsparkSession.sessionState().newHadoopConf())
    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


@pytest.mark.spark
def test_workers_are_forked_warm(session: Any) -> None:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import gc
        import os
        import sys

        import pyarrow as pa
        import pyspark

        for _ in batches:
            warm = all(m in sys.modules for m in ("duckdb", "pyarrow.parquet", "sqlstream.spark.worker"))
            path, frozen = str(pyspark.__file__), gc.get_freeze_count()
            traced = "PYTHON_FAULTHANDLER_DIR" in os.environ
            # A worker's main function: one that does not keep Spark waiting.
            prompt = sys.modules["pyspark.worker"].main.__module__ == "sqlstream.spark.prompt_reads"
            names = ["path", "frozen", "warm", "traced", "prompt", "parent"]
            values = (path, frozen, warm, traced, prompt, os.getppid())
            yield pa.RecordBatch.from_arrays([pa.array([v]) for v in values], names)

    schema = "path STRING, frozen BIGINT, warm BOOLEAN, traced BOOLEAN, prompt BOOLEAN, parent BIGINT"
    rows = [session.range(2, numPartitions=1).mapInArrow(look, schema).first() for _ in range(2)]
    assert all(r.warm and r.traced and r.prompt and r.frozen > 10_000 and ".zip" not in r.path for r in rows)
    forker = psutil.Process(rows[0].parent)
    assert "sqlstream.spark.daemon" in forker.cmdline()
    # A fork has only the thread that forks: no import may have started one, but for jemalloc's own, which survives it.
    assert forker.num_threads() <= 2
    assert rows[0].parent == rows[1].parent


@pytest.mark.spark
def test_one_session_at_a_time(session: Any, folder: Path) -> None:
    with pytest.raises(UsageError, match="a Spark session is running in this process"):
        jvm.start_spark(master="local[1]", conf={}, log_file=str(folder / "other.log"))


# -- whole processes, their terminal captured

TALK = """
import os, signal, sys, warnings
from sqlstream.errors import UsageError
from sqlstream.spark.jvm import start_spark, stop_spark

log = sys.argv[1]
mine = lambda *a: 1

def fail(batches):
    print("worker says")
    raise ValueError("worker fails")
    yield

def die(batches):
    os.kill(os.getpid(), signal.SIGKILL)
    yield

def quietly(action):
    try:
        action()
    except Exception as e:
        return type(e).__name__

# One that cannot start.
quietly(lambda: start_spark(master="local[1]", conf={"spark.driver.memory": "much"}, log_file=log))
quietly(lambda: start_spark(master="nonsense", conf={}, log_file=log))
for number in range(2):
    signal.signal(signal.SIGINT, mine)
    spark = start_spark(master="local[2]", conf={"spark.app.name": f"run {number}"}, log_file=log)
    assert signal.getsignal(signal.SIGINT) is mine
    assert spark.sparkContext.appName == f"run {number}"
    assert spark.range(10).count() == 10
    for task in (fail, die):
        assert quietly(lambda: spark.range(2).mapInArrow(task, "id long").collect()) == "PythonException" or task is die
    def sink(batch, number):
        raise RuntimeError("sink fails")
    query = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream.foreachBatch(sink)
    assert quietly(lambda: query.start().awaitTermination()) == "StreamingQueryException"
    if number:
        # The JVM dies under us.
        from sqlstream.spark import jvm
        os.kill(jvm._running.process.pid, signal.SIGKILL)
        jvm._running.process.wait()
        quietly(lambda: spark.range(10).count())
    stop_spark(spark)
    stop_spark(spark)
warnings.warn("mine to see")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.one_in(4, of="JVMs of their own")
def test_nothing_of_sparks_reaches_the_terminal(tmp_path: Path) -> None:
    script, log = tmp_path / "talk.py", tmp_path / "spark.log"
    script.write_text(TALK)
    done = subprocess.run([sys.executable, str(script), str(log)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == ""
    # The user's own warnings do: their place, and the line.
    assert [line.strip() for line in done.stderr.splitlines()] == [
        f"{script}:{TALK.count(chr(10))}: UserWarning: mine to see",
        'warnings.warn("mine to see")',
    ]
    assert done.returncode == 0
    text = log.read_text()
    # All of it is in the log: the JVM's start, a worker's output and failure, the sink's traceback, the lost JVM.
    for part in ("Invalid maximum heap size", "worker says", "worker fails", "sink fails", "the JVM was gone"):
        assert part in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spark.log", "talk.py"]


BROKEN_CONNECTION = """
import logging, os, sys
import py4j
from sqlstream.spark import chatter

chatter.divert(sys.argv[1])
# py4j says on the root logger that the JVM reset a connection; only chance has it do so in the test above.
for place in (os.path.join(os.path.dirname(py4j.__file__), "java_gateway.py"), "mine.py"):
    exec(compile(f"import logging; logging.error('said in {os.path.basename(place)}')", place, "exec"))
"""


def test_what_py4j_says_on_the_root_logger_goes_to_the_log(tmp_path: Path) -> None:
    script, log = tmp_path / "talk.py", tmp_path / "spark.log"
    script.write_text(BROKEN_CONNECTION)
    done = subprocess.run([sys.executable, str(script), str(log)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == "ERROR:root:said in mine.py\n"
    assert "said in java_gateway.py" in log.read_text()


HOLD = """
import os, signal, sys
from sqlstream.spark import jvm

lock, running = int(sys.argv[2]), sys.argv[3]
spark = jvm.start_spark(master="local[2]", conf={}, log_file=sys.argv[1], pass_fds=(lock,))
os.close(lock)
def forever(batches):
    open(running, "w").close()
    signal.pause()
    yield from batches
print(jvm._running.process.pid, flush=True)
spark.range(2).mapInArrow(forever, "id long").collect()
"""


class Holder:
    """A driver in a process group of its own whose JVM holds a lock while a task never ends."""

    def __init__(self, folder: Path):
        (folder / "hold.py").write_text(HOLD)
        self.lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        held = os.open(folder / "lock", os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
        os.mkfifo(folder / "running")
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "hold.py"), str(folder / "spark.log"), str(held), str(folder / "running")],
            stdout=subprocess.PIPE,
            pass_fds=(held,),
            start_new_session=True,
        )
        os.close(held)
        assert self.process.stdout is not None
        self.jvm = psutil.Process(int(self.process.stdout.readline()))
        # Opens when a task has.
        open(folder / "running").close()

    def workers(self) -> list[psutil.Process]:
        return list(self.jvm.children(recursive=True))

    def is_locked(self) -> bool:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def await_lock(self) -> bool:
        taken = threading.Thread(target=fcntl.flock, args=(self.lock, fcntl.LOCK_EX), daemon=True)
        taken.start()
        taken.join(SECONDS)
        return not taken.is_alive()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.one_in(4, of="JVMs of their own")
@pytest.mark.parametrize(
    "whole_group", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["driver", "group"]
)
def test_the_jvm_ends_with_its_driver(tmp_path: Path, whole_group: bool) -> None:
    holder = Holder(tmp_path)
    try:
        assert holder.is_locked()
        # Ctrl-C goes to the terminal's group, of which the JVM is not.
        assert os.getpgid(holder.jvm.pid) != os.getpgid(holder.process.pid)
        workers = holder.workers()
        if whole_group:
            os.killpg(holder.process.pid, signal.SIGKILL)
        else:
            holder.process.kill()
        holder.process.wait()
        assert holder.await_lock()
        await_end([holder.jvm, *workers])
    finally:
        os.close(holder.lock)
        for process in (holder.process, holder.jvm):
            if process.poll() is None if isinstance(process, subprocess.Popen) else process.is_running():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
