"""Streaming SQL on Spark whose running state is a table that DuckDB reads."""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from sqlstream.errors import SqlStreamError
    from sqlstream.functions.aggregates.api import udaf
    from sqlstream.functions.decorators import udf, udtf
    from sqlstream.functions.process.api import Row, SideOutput, process, side_output, state, table
    from sqlstream.functions.process.context import Context, Timer
    from sqlstream.functions.process.states import AggregatingState, ListState, MapState, ReducingState, ValueState
    from sqlstream.jobs.job import Job
    from sqlstream.jobs.progress import OperatorProgress, Progress, SinkProgress, SourceProgress
    from sqlstream.session.changes import Change, Changes
    from sqlstream.session.session import Session

    __version__: str

__all__ = [
    "AggregatingState",
    "Change",
    "Changes",
    "Context",
    "Job",
    "ListState",
    "MapState",
    "OperatorProgress",
    "Progress",
    "ReducingState",
    "Row",
    "Session",
    "SideOutput",
    "SinkProgress",
    "SourceProgress",
    "SqlStreamError",
    "Timer",
    "ValueState",
    "process",
    "side_output",
    "state",
    "table",
    "udaf",
    "udf",
    "udtf",
]

_HOMES = {
    "AggregatingState": "sqlstream.functions.process.states",
    "Change": "sqlstream.session.changes",
    "Changes": "sqlstream.session.changes",
    "Context": "sqlstream.functions.process.context",
    "Job": "sqlstream.jobs.job",
    "ListState": "sqlstream.functions.process.states",
    "MapState": "sqlstream.functions.process.states",
    "OperatorProgress": "sqlstream.jobs.progress",
    "Progress": "sqlstream.jobs.progress",
    "ReducingState": "sqlstream.functions.process.states",
    "Row": "sqlstream.functions.process.api",
    "Session": "sqlstream.session.session",
    "SideOutput": "sqlstream.functions.process.api",
    "SinkProgress": "sqlstream.jobs.progress",
    "SourceProgress": "sqlstream.jobs.progress",
    "SqlStreamError": "sqlstream.errors",
    "Timer": "sqlstream.functions.process.context",
    "ValueState": "sqlstream.functions.process.states",
    "process": "sqlstream.functions.process.api",
    "side_output": "sqlstream.functions.process.api",
    "state": "sqlstream.functions.process.api",
    "table": "sqlstream.functions.process.api",
    "udaf": "sqlstream.functions.aggregates.api",
    "udf": "sqlstream.functions.decorators",
    "udtf": "sqlstream.functions.decorators",
}


def __getattr__(name: str) -> _typing.Any:
    # Loaded when first used: a state query needs neither sqlglot nor Spark.
    if name == "__version__":
        return _import_module("sqlstream.distribution").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
