"""Starts and stops Spark: its JVM, which is quiet and fast, and the session in it.

The JVM is started as by `spark-submit`, without its two scripts and the JVM that they start to build a command line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlstream.errors import OutageError, UsageError
from sqlstream.spark import chatter
from sqlstream.spark.class_data import ClassData, class_data
from sqlstream.spark.java import find_java
from sqlstream.warehouse.process_folders import SPARK, process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 120.0
STOP_SECONDS = 20.0
DEATH_SECONDS = 2.0

DEFAULTS: dict[str, str] = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark retains data for the UI although it is off: in a job of many batches most of the heap.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.session.timeZone": "UTC",
    # It does not work with state, and every query would warn of that.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    # Spark only moves a few frames: compiling code for that takes longer than interpreting it (64 of 440 ms in a small batch).
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Otherwise every batch waits until RocksDB has flushed and copied its files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Otherwise every write first reads, for a count that nobody uses.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The default forks a chmod for every file of the checkpoint: 40-50 ms a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Nothing in the checkpoint outlives the job's process: a repeated batch needs the batch before it, no older ones.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # State changes stay until they are in a snapshot and maintenance runs: with Spark's 60 s the changes of many batches stay.
    "spark.sql.streaming.stateStore.maintenanceInterval": "15s",
    # Otherwise each file of the checkpoint has a second checksum file, besides Hadoop's on local disks.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # As many rows as fit into the bytes; without the second limit a batch of large frames failed at 2 GB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64MB",
    "spark.python.daemon.module": "sqlstream.spark.daemon",
    # Otherwise both kinds of tasks differ in an environment variable, and each kind gets its own daemon and workers.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # A worker that crashes in native code leaves its Python stack in the error.
    "spark.python.worker.faulthandler.enabled": "true",
}
# On one machine nothing needs the network, nor a name server that may take seconds to resolve this host.
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_LOCAL_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}

# Equal to JavaModuleOptions of Spark's launcher; a test compares them.
_OPENED = (
    "java.base/java.lang java.base/java.lang.invoke java.base/java.lang.reflect java.base/java.io java.base/java.net "
    "java.base/java.nio java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic "
    "java.base/jdk.internal.ref java.base/sun.nio.ch java.base/sun.nio.cs java.base/sun.security.action "
    "java.base/sun.util.calendar java.security.jgss/sun.security.krb5"
)
MODULE_OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED.split()),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
]
# Only the fast compiler. The optimizing one takes the second core during a start (6.6 s instead of 4.8 s to the first result).
# For moving bytes and planning batches the JVM was no faster with it after 200 batches, with large frames or small ones.
_COMPILER = "-XX:TieredStopAtLevel=1"
# What Spark logs if no master of a standalone cluster answers for a minute; it then ends its JVM.
_SILENT = "All masters are unresponsive"


@dataclass(slots=True)
class Jvm:
    """A JVM with Spark: `java` is its command up to the class path, `before` the gateway that PySpark had at its start.

    `temporary` is the folder for its temporary files: libraries that it unpacks, shuffle files. `blocks` are the folders in it
    that Spark has made for shuffle files.
    """

    process: subprocess.Popen[bytes]
    java: list[str]
    classes: ClassData | None
    log_file: str
    before: tuple[Any, Any]
    temporary: str
    gateway: Any = None
    blocks: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def death(self) -> OutageError | None:
        """Return the error for a JVM that ended while it was in use; None if it runs. Waits for its end up to DEATH_SECONDS."""
        try:
            # The connection breaks a moment before the process ends.
            code = self.process.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        how = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        detail = None
        if code == -signal.SIGKILL:
            detail = "The system kills the largest process when memory runs out: SET 'spark.driver.memory' to less if that is it."
        hint = "Run the job again: it continues after its last committed batch."
        message = f"Spark's JVM ended: {how}" if code < 0 else f"Spark's JVM ended {how}"
        return OutageError(message, detail=detail, hint=hint)

    def loss(self) -> OutageError | None:
        """Return the error for a JVM whose temporary folders others have deleted; None if they exist.

        It makes no new ones: it must be replaced by another JVM.
        """
        gone = next((folder for folder in (self.temporary, *self.blocks) if not os.path.isdir(folder)), None)
        if gone is None:
            return None
        detail = "Something has deleted it: another process, or what cleans the machine's folder for temporary files."
        return OutageError(f"Spark's folder for temporary files is gone: {gone}", detail=detail)


_running: Jvm | None = None


def start_spark(
    *, master: str, conf: Mapping[str, str], log_file: str, pass_fds: Sequence[int] = (), app_name: str = "sqlstream"
) -> SparkSession:
    """Start a JVM with a Spark session; settings in `conf` (spark.*) override DEFAULTS.

    The output of Spark, its JVM and its Python workers is appended to `log_file`. The JVM keeps the descriptors `pass_fds` open
    until it ends. It has its own process session, so Ctrl-C does not reach it, and it ends when this process ends, in any way.
    The handler of SIGINT stays the same. Raises UsageError if a session runs already, if Java is missing, or if Spark does not
    start.
    """
    global _running
    java = find_java()
    local = master.startswith("local")
    settings = {**DEFAULTS, **(_LOCAL if local else {}), "spark.app.name": app_name, **conf, "spark.master": master}
    chatter.divert(log_file)
    if _running is not None or _has_context():
        raise UsageError("a Spark session is running in this process", hint="Stop it first.")
    begins = os.path.getsize(log_file) if os.path.exists(log_file) else 0
    jvm = _launch(java.path, settings, log_file, pass_fds)
    try:
        with _connected(jvm, settings):
            session = _new_session(jvm)
            jvm.blocks = _block_folders(jvm.temporary)
    except BaseException as e:
        _end(jvm)
        if not isinstance(e, Exception) or isinstance(e, UsageError):
            raise
        detail = f"{master} does not answer." if _log_contains(log_file, begins, _SILENT) else _first_line(e)
        raise UsageError("Spark did not start", detail=detail, hint=f"More is in {log_file}.") from e
    _running = jvm
    return session


def _log_contains(log_file: str, begins: int, what: str) -> bool:
    """Return whether a log contains a text after its first `begins` bytes."""
    with open(log_file, errors="replace") as log:
        log.seek(begins)
        return any(what in line for line in log)


def _first_line(error: Exception) -> str:
    try:
        # The text of a Java exception comes from the JVM, which may be gone.
        return str(getattr(error, "java_exception", None) or error).strip().split("\n")[0]
    except OSError:
        return "its JVM ended"


def stop_spark(session: SparkSession) -> None:
    """Stop the session and wait until its JVM has ended; no error if it has already."""
    global _running
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _running is None:
        return
    jvm, _running = _running, None
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    try:
        # PySpark waits up to a second for this thread; it can end while the JVM does.
        session.sparkContext._accumulatorServer = None  # type: ignore[assignment]
        session.stop()
    except Exception as e:
        chatter.note("the JVM was gone before the session was stopped", error=e)
    finally:
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SparkContext._active_spark_context = None
        closing = threading.Thread(target=server.shutdown if server else lambda: None, daemon=True)
        closing.start()
        clean = _end(jvm)
        closing.join(STOP_SECONDS)
    if jvm.classes is not None and clean:
        jvm.classes.archive_later(jvm.java, jvm.log_file)


def running_jvm() -> Jvm:
    """Return the JVM of the running session. AssertionError if there is none."""
    assert _running is not None, "start_spark comes first"
    return _running


def _has_context() -> bool:
    # This must not import PySpark, which takes as long as the start of the JVM.
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _launch(java: str, settings: Mapping[str, str], log_file: str, pass_fds: Sequence[int]) -> Jvm:
    spark_home = _spark_home()
    extra = _extra_classpath(settings)
    jars = spark_jars()
    # Archives do not work with folders, and nobody else would have the user's class path.
    classes = None if extra else class_data(java, jars)
    prefix = [java, *MODULE_OPTIONS, "-cp", ":".join([*extra, *jars])]
    temporary = process_folder(SPARK)
    os.mkdir(temporary, 0o700)
    folder = tempfile.mkdtemp(dir=temporary)
    try:
        properties = os.path.join(folder, "spark.properties")
        Path(properties).write_text(_properties(settings))
        info = os.path.join(folder, "gateway")
        command = [
            *prefix,
            *(classes.options if classes else []),
            f"-Djava.io.tmpdir={temporary}",
            *_jvm_options(settings, log_file),
            *("org.apache.spark.deploy.SparkSubmit", "--properties-file", properties, "--load-spark-defaults"),
            "pyspark-shell",
        ]
        environment = _environment(settings, spark_home) | {"_PYSPARK_DRIVER_CONN_INFO_PATH": info}
        with open(log_file, "ab") as log:
            begins = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        jvm = Jvm(process, prefix, classes, log_file, (None, None), temporary)
        try:
            # While the JVM starts: import what runs jobs, with PySpark, and pandas, which PySpark requires.
            for name in ("sqlstream.spark.run", "pandas"):
                importlib.import_module(name)
            from pyspark import SparkContext

            jvm.before = (SparkContext._gateway, SparkContext._jvm)
            _await_gateway(jvm, info, begins)
        except BaseException:
            _end(jvm)
            raise
        return jvm
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError("PySpark is not installed", hint="Install it with `pip install pyspark`.")
    return Path(spec.origin).parent


def spark_jars() -> list[str]:
    """Return the jar files of PySpark, its class path, in order."""
    return sorted(str(p) for p in (_spark_home() / "jars").glob("*.jar"))


def _extra_classpath(settings: Mapping[str, str]) -> list[str]:
    paths = [settings.get("spark.driver.extraClassPath", "")]
    paths += [os.environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    return [p for p in paths if p]


def _jvm_options(settings: Mapping[str, str], log_file: str) -> list[str]:
    """Return the options that must be on the JVM's command line; the user's come last and override ours."""
    folder = os.path.dirname(os.path.abspath(log_file))
    library_path = settings.get("spark.driver.extraLibraryPath")
    return [
        f"-Xmx{settings['spark.driver.memory']}",
        _COMPILER,
        f"-XX:ErrorFile={os.path.join(folder, 'hs_err_pid%p.log')}",
        f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
        *([f"-Djava.library.path={library_path}"] if library_path else []),
        *shlex.split(settings.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
    ]


def _properties(settings: Mapping[str, str]) -> str:
    """Return settings as a Java properties file: everybody can read a command line, and some settings are secret."""

    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

    return "".join(f"{key}={escaped(str(value))}\n" for key, value in settings.items())


def _environment(settings: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Return the environment of the JVM, which its Python workers inherit."""
    unwanted = ("SPARK_HOME", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS")
    environment = {k: v for k, v in os.environ.items() if k not in unwanted}
    environment |= _language()
    environment |= {"SPARK_CONNECT_MODE": "0", "PYTHONHASHSEED": "0", "PYSPARK_PYTHON": _python(settings)}
    master = settings["spark.master"]
    if master.startswith("local"):
        environment = _LOCAL_ENVIRONMENT | environment
    if not master.startswith("local") or master.startswith("local-cluster"):
        # Executor processes are started from this folder. Without it Spark leaves the zip of PySpark's sources off its workers'
        # path, and they import the installed PySpark, which is compiled.
        environment["SPARK_HOME"] = str(spark_home)
        # The launcher needs the Scala version of the jars.
        names = [p.name for p in (spark_home / "jars").glob("spark-core_*.jar")]
        environment["SPARK_SCALA_VERSION"] = names[0].split("_")[1].split("-")[0] if names else "2.13"
    return environment


def _language() -> dict[str, str]:
    """Return variables that set a UTF-8 locale if there is none: with the locale C, Java reads non-ASCII letters as "?"."""
    named = next((v for name in ("LC_ALL", "LC_CTYPE", "LANG") if (v := os.environ.get(name))), "C")
    return {"LC_ALL": "C.UTF-8"} if named in ("C", "POSIX") and sys.platform != "darwin" else {}


def _python(settings: Mapping[str, str]) -> str:
    return settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _await_gateway(jvm: Jvm, info: str, begins: int) -> None:
    """Wait until the JVM writes where its gateway listens, then connect to it. Raises UsageError if it does not."""
    deadline = time.monotonic() + START_SECONDS
    while not os.path.exists(info):
        if jvm.process.poll() is not None or time.monotonic() > deadline:
            with open(jvm.log_file, errors="replace") as log:
                log.seek(begins)
                lines = [line.strip() for line in log if line.strip()]
            detail = lines[-1] if lines else f"It ended with code {jvm.process.poll()}."
            raise UsageError("Spark's JVM did not start", detail=detail, hint=f"More is in {jvm.log_file}.")
        time.sleep(0.005)
    with open(info, "rb") as file:
        port, length = struct.unpack("!ii", file.read(8))
        secret = file.read(length).decode()
    from pyspark.java_gateway import launch_gateway

    with _variables(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        jvm.gateway = launch_gateway()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _connected(jvm: Jvm, settings: Mapping[str, str]) -> Iterator[None]:
    """Let PySpark use this JVM, and restore the SIGINT handler, which a SparkContext replaces."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if in_main else None
    try:
        with _variables(PYSPARK_PYTHON=_python(settings)):
            yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _new_session(jvm: Jvm) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext(gateway=jvm.gateway)
    chatter.quiet_server(context._accumulatorServer)
    return SparkSession(context)


def _block_folders(temporary: str) -> tuple[str, ...]:
    """Return Spark's folders for shuffle files; none if its settings name another place."""
    return tuple(f"{temporary}/{name}" for name in os.listdir(temporary) if name.startswith("blockmgr-"))


def _end(jvm: Jvm) -> bool:
    """Close the JVM's standard input, which ends it, and wait. Return whether it ended by itself, with code 0."""
    from pyspark import SparkContext

    if jvm.gateway is not None:
        with contextlib.suppress(Exception):
            jvm.gateway.shutdown()
    SparkContext._gateway, SparkContext._jvm = jvm.before
    with contextlib.suppress(OSError):
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()
    try:
        return jvm.process.wait(STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        jvm.process.kill()
        jvm.process.wait()
        return False
    finally:
        shutil.rmtree(jvm.temporary, ignore_errors=True)


@contextlib.contextmanager
def _variables(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
