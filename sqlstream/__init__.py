"""Streaming SQL on Spark whose running state is a table that DuckDB reads."""

import typing as _typing
from importlib.metadata import version as _version

if _typing.TYPE_CHECKING:
    from sqlstream.changes import Change, Changes
    from sqlstream.errors import SqlStreamError
    from sqlstream.functions.declare import udf
    from sqlstream.jobs.job import Job
    from sqlstream.progress import OperatorProgress, Progress, SourceProgress
    from sqlstream.session import Session

__all__ = [
    "Change",
    "Changes",
    "Job",
    "OperatorProgress",
    "Progress",
    "Session",
    "SourceProgress",
    "SqlStreamError",
    "udf",
]
__version__ = _version("sqlstream")

_HOMES = {
    "Change": "sqlstream.changes",
    "Changes": "sqlstream.changes",
    "Job": "sqlstream.jobs.job",
    "OperatorProgress": "sqlstream.progress",
    "Progress": "sqlstream.progress",
    "Session": "sqlstream.session",
    "SourceProgress": "sqlstream.progress",
    "SqlStreamError": "sqlstream.errors",
    "udf": "sqlstream.functions.declare",
}


def __getattr__(name: str) -> _typing.Any:
    # Loaded when first used: a state query needs neither sqlglot nor Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
