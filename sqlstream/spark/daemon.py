"""The process from which Spark forks its Python workers. It has already imported what a worker imports.

`spark.python.daemon.module` names it. Spark's own daemon imports nothing, so each worker spends half a second on the imports; and
if Spark puts its packages on the workers' path as a zip of sources, each worker compiles them, too.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder

from sqlstream.forking import ENVIRONMENT

# Importing these starts no thread, which a fork would lose: DuckDB starts threads per connection, Arrow with its first work.
# NumPy would, for linear algebra, but Spark sets OMP_NUM_THREADS to the cores of a task.
_NEEDED = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "duckdb",
    "pyspark.worker",
    "pyspark.sql.pandas.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "sqlstream.spark.worker",
)

# Python collects garbage each time that this many objects were made.
OBJECTS = 100_000


def prefer_installed_pyspark() -> None:
    """Remove the zip of PySpark's sources from the path if PySpark is installed, where it is compiled."""
    zips = [p for p in sys.path if os.path.basename(p) == "pyspark.zip" or "py4j-" in os.path.basename(p)]
    rest = [p for p in sys.path if p not in zips]
    if zips and PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest


def preload() -> None:
    """Import what workers need. A package that is missing here is reported by the worker that needs it."""
    os.environ.update(ENVIRONMENT)
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    # Workers collect garbage after every task. Frozen objects are not visited, so their pages stay shared. DuckDB's bindings
    # report a leak if they are still frozen when a process ends.
    gc.collect()
    gc.freeze()
    # Thousands of rows become Python objects and are no garbage: looking through them took a quarter of the time.
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.unfreeze)


def end_in_order() -> None:
    """Let workers close the resources of user functions before they end: Spark ends them by a signal or by the socket."""
    try:
        daemon = importlib.import_module("pyspark.daemon")
        worker = importlib.import_module("pyspark.worker")
        release: Callable[[], None] = importlib.import_module("sqlstream.runtime.worker").release_resources
    except ImportError:
        return
    task, main = daemon.worker, worker.main
    to_do = [release]

    def release_once() -> bool:
        # Spark's daemon sends SIGHUP twice, and also to a worker that already ends: the second must not interrupt the first. It
        # may come between any two steps of this function; if that held a lock, it would wait for itself.
        try:
            step = to_do.pop()
        except IndexError:
            return False
        step()
        return True

    def hung_up(number: int, frame: object) -> None:
        if release_once():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGHUP)

    def guarded_task(sock: object, authenticated: bool) -> int:
        signal.signal(signal.SIGHUP, hung_up)
        # Before each task the daemon resets the signal of this name to its default, which ends the worker at once.
        daemon.SIGHUP = signal.SIGWINCH  # type: ignore[attr-defined]
        code: int = task(sock, authenticated)
        return code

    def guarded_main(infile: object, outfile: object) -> None:
        try:
            main(infile, outfile)
        except SystemExit:
            release_once()
            raise

    daemon.worker, worker.main = guarded_task, guarded_main  # type: ignore[attr-defined]


def read_promptly() -> None:
    """Let workers acknowledge what Spark sends at once: Spark waits for that before it sends more (see `prompt_reads`)."""
    try:
        worker = importlib.import_module("pyspark.worker")
        prompt = importlib.import_module("sqlstream.spark.prompt_reads").prompt
    except ImportError:
        return
    worker.main = prompt(worker.main)  # type: ignore[attr-defined]


if __name__ == "__main__":
    prefer_installed_pyspark()
    preload()
    end_in_order()
    read_promptly()
    from pyspark.daemon import manager

    manager()
