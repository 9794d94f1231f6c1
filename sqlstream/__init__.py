"""Streaming SQL on Spark whose running state is a table that DuckDB reads."""

import typing as _typing
from importlib.metadata import version as _version

if _typing.TYPE_CHECKING:
    from sqlstream.errors import SqlStreamError
    from sqlstream.functions.decorators import udf, udtf
    from sqlstream.jobs.job import Job
    from sqlstream.jobs.progress import OperatorProgress, Progress, SourceProgress
    from sqlstream.session.changes import Change, Changes
    from sqlstream.session.session import Session

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
    "udtf",
]
__version__ = _version("sqlstream")

_HOMES = {
    "Change": "sqlstream.session.changes",
    "Changes": "sqlstream.session.changes",
    "Job": "sqlstream.jobs.job",
    "OperatorProgress": "sqlstream.jobs.progress",
    "Progress": "sqlstream.jobs.progress",
    "Session": "sqlstream.session.session",
    "SourceProgress": "sqlstream.jobs.progress",
    "SqlStreamError": "sqlstream.errors",
    "udf": "sqlstream.functions.decorators",
    "udtf": "sqlstream.functions.decorators",
}


def __getattr__(name: str) -> _typing.Any:
    # Loaded when first used: a state query needs neither sqlglot nor Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
