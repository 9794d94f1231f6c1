"""The process that Spark forks its Python workers from, with everything that a worker imports already in it.

`spark.python.daemon.module` names it. Spark's own imports nothing, so each worker spends half a second on that again; and where
Spark puts its packages on the workers' path as a zip of sources, each worker compiles them, too.
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

# Importing these starts no thread that a fork would need: DuckDB's come with a connection, Arrow's with its first parallel work.
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

# So many objects are made before Python looks for garbage.
OBJECTS = 100_000


def prefer_installed_pyspark() -> None:
    """Take the zip of PySpark's sources off the path when PySpark is installed: it has the same, compiled."""
    zips = [p for p in sys.path if os.path.basename(p) == "pyspark.zip" or "py4j-" in os.path.basename(p)]
    rest = [p for p in sys.path if p not in zips]
    if zips and PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest


def preload() -> None:
    """Import what workers need; a package that is missing here is reported by the worker that misses it."""
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    # Workers collect garbage after every task: what is frozen is not looked at, and its pages stay shared. DuckDB's bindings
    # complain of a leak at the end of a process that keeps it frozen.
    gc.collect()
    gc.freeze()
    # Rows that become Python objects by the thousand are no garbage: to look through them that often took a quarter of the time.
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.unfreeze)


def end_in_order() -> None:
    """Let a worker close the resources of the user's functions before it ends: Spark hangs up on it, by signal or by socket."""
    try:
        daemon = importlib.import_module("pyspark.daemon")
        worker = importlib.import_module("pyspark.worker")
        release: Callable[[], None] = importlib.import_module("sqlstream.runtime.worker").release_resources
    except ImportError:
        return
    task, main = daemon.worker, worker.main
    to_do = [release]

    def release_once() -> bool:
        # Spark's daemon hangs up twice, and on a worker that is ending already: the second must not cut the first short. It may
        # come between any two steps of this function, and one that holds a lock would wait for itself.
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
        # Before each task the daemon sets the signal of this name back to its default, which is to end at once.
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


if __name__ == "__main__":
    prefer_installed_pyspark()
    preload()
    end_in_order()
    from pyspark.daemon import manager

    manager()
