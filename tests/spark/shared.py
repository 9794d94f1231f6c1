"""One JVM for the tests of a process that want nothing of their own of it: to start one takes ten seconds of a core.

Tests take it with the fixture `shared_jvm` (`tests/conftest.py`). All others start their own, when the shared one has ended.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from sqlstream.runtime.engine import Resources
from sqlstream.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_shared: SparkSession | None = None


def shared_spark() -> SparkSession:
    """Return the Spark session of the shared JVM, which starts when the first one asks."""
    from sqlstream.spark.jvm import running_jvm, start_spark

    global _shared
    if _shared is not None and running_jvm().has_ended:
        stop_shared()
    if _shared is None:
        log_file = os.path.join(tempfile.mkdtemp(prefix="sqlstream-shared-"), "spark.log")
        _shared = start_spark(master="local[2,4]", conf={}, log_file=log_file)
    return _shared


def stop_shared() -> None:
    """Stop the shared JVM, if it runs."""
    global _shared
    if _shared is not None:
        from sqlstream.spark.jvm import stop_spark

        stop_spark(_shared)
        _shared = None


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions run their jobs on the shared JVM, and leave it running."""

    def prepare(engine: SparkEngine, resources: Resources) -> None:
        engine._session = shared_spark()

    def close(engine: SparkEngine) -> None:
        engine._session = None

    monkeypatch.setattr(SparkEngine, "_prepare", prepare)
    monkeypatch.setattr(SparkEngine, "close", close)
