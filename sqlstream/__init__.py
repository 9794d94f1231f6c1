"""Streaming SQL on Spark whose running state is a table that DuckDB reads."""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlstream.errors import SqlStreamError
    from sqlstream.functions.declare import udf
    from sqlstream.jobs.job import Job
    from sqlstream.session import Session

__all__ = ["Job", "Session", "SqlStreamError", "udf"]
__version__ = _version("sqlstream")

_HOMES = {
    "Job": "sqlstream.jobs.job",
    "Session": "sqlstream.session",
    "SqlStreamError": "sqlstream.errors",
    "udf": "sqlstream.functions.declare",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: a state query needs neither sqlglot nor Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
