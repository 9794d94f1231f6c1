"""Sandboxes for the queries of streams, kept for the next stream: to open one takes longer than a query of a test."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache

from sqlstream.catalog import DuckFunction, Function
from sqlstream.functions.registration import register_for_queries
from sqlstream.queries.query import Sandbox
from sqlstream.warehouse.paths import Warehouse

# How many sandboxes a process keeps that nobody uses.
IDLE = 2
# With the process that opened each: a forked one never uses its parent's.
_idle: list[tuple[int, Sandbox]] = []


class StreamSandbox:
    """The sandbox of a stream, with the functions that its queries may call.

    One without functions can be anybody's, and is kept when it is given back. Those with functions are closed, and with them
    the resources of the functions.
    """

    def __init__(self, warehouse: str, functions: tuple[DuckFunction, ...]):
        self.functions = functions
        kept = [] if functions else [(process, box) for process, box in _idle if process == os.getpid()]
        if kept:
            _idle.remove(kept[-1])
            self.sandbox = kept[-1][1]
            self.sandbox.warehouse = Warehouse(warehouse)
            return
        self.sandbox = Sandbox(
            Warehouse(warehouse),
            functions=[lambda con: register_for_queries(con, functions)] if functions else [],
            table_functions=[f.name for f in functions if isinstance(f, Function) and f.kind == "table"],
            allowed_paths=[] if functions else [projects(os.getpid())],
        )

    def close(self) -> None:
        if self.functions or len(_idle) >= IDLE:
            self.sandbox.close()
        else:
            _idle.append((os.getpid(), self.sandbox))


@cache
def _projects(process: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sqlstream-test-")


def projects(process: int) -> str:
    """Return the folder of the projects of all streams of a process, which goes when the process ends."""
    return _projects(process).name


@atexit.register
def _close_idle() -> None:
    """Close the sandboxes that nobody uses. DuckDB prints about functions of those still open when Python ends."""
    while _idle:
        process, sandbox = _idle.pop()
        if process == os.getpid():
            sandbox.close()
