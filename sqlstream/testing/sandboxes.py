"""Sandboxes for the queries of streams. Idle ones are kept, because opening one takes longer than a query of a test."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache

from sqlstream.catalog import DuckFunction, Function
from sqlstream.functions.registration import register_for_queries
from sqlstream.queries.query import Sandbox
from sqlstream.warehouse.paths import Warehouse

# The most idle sandboxes that a process keeps.
IDLE = 2
# Idle sandboxes, with the process that opened each: a forked process never uses its parent's.
_idle: list[tuple[int, Sandbox]] = []


class StreamSandbox:
    """The sandbox of a stream, with the functions that its queries may call.

    A sandbox without functions suits any stream, and is kept when its stream closes. A sandbox with functions is closed then,
    and so are the resources of the functions.
    """

    def __init__(self, warehouse: str, functions: tuple[DuckFunction, ...]):
        self.functions = functions
        idle = [] if functions else [(process, box) for process, box in _idle if process == os.getpid()]
        if idle:
            _idle.remove(idle[-1])
            self.sandbox = idle[-1][1]
            self.sandbox.warehouse = Warehouse(warehouse)
            return
        self.sandbox = Sandbox(
            Warehouse(warehouse),
            functions=[lambda con: register_for_queries(con, functions)] if functions else [],
            table_functions=[f.name for f in functions if isinstance(f, Function) and f.kind == "table"],
            allowed_paths=[] if functions else [projects(os.getpid())],
        )

    def close(self) -> None:
        """Close the sandbox, or keep it for another stream."""
        if self.functions or len(_idle) >= IDLE:
            self.sandbox.close()
        else:
            _idle.append((os.getpid(), self.sandbox))


@cache
def _projects(process: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sqlstream-test-")


def projects(process: int) -> str:
    """Return the folder for the files of all streams of a process, which is deleted when the process ends."""
    return _projects(process).name


@atexit.register
def _close_idle() -> None:
    """Close idle sandboxes: DuckDB prints messages about functions of sandboxes that are open when Python ends."""
    while _idle:
        process, sandbox = _idle.pop()
        if process == os.getpid():
            sandbox.close()
