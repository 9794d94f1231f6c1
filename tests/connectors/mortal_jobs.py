"""A job for every kind of source and sink, which take turns in one process: it is killed after so many points.

`mortal_jobs.py PROJECT` reads a number of points, and that of the job whose turn comes first, a line each time. It runs a
process with them, and prints how it has ended; with 0 points it comes to the end of all jobs. The processes are forks: what
costs most is to import everything.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText
from sqlstream.local import batches as local_batches
from sqlstream.options import Options
from sqlstream.warehouse.commits import write_commit
from tests.connectors.mortal_connectors import point
from tests.connectors.two_jobs import PARALLELISM, batches
from tests.kinds import jobs_of

SOURCES = ("Kept", "Gone")
SINKS = ("AnySink", "IdempotentSink", "Ahead", "TwoPhases")
CELLS = [(source, sink) for source in SOURCES for sink in SINKS]
ROWS = 40
CLASS = "'connector' = 'python', 'class' = 'tests.connectors.mortal_connectors"


def script(project: str) -> str:
    statements = []
    for source, sink in CELLS:
        cell = f"{source}_{sink}"
        statements += [
            f"CREATE TABLE from_{cell} (k BIGINT) WITH ({CLASS}.{source}', 'folder' = '{project}/{cell}', 'count' = '{ROWS}');",
            f"CREATE TABLE {cell} (k BIGINT) WITH ({CLASS}.{sink}', 'folder' = '{project}/{cell}');",
            f"INSERT INTO {cell} SELECT k FROM from_{cell};",
        ]
    return "\n".join(statements)


def main(project: str, points: int, first: int) -> None:
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=project)
    planned = jobs_of(compiler.scripts([SourceText("mortal_jobs", script(project))]))

    def committed(*arguments: Any) -> None:
        point()
        write_commit(*arguments)
        point()

    setattr(local_batches, "write_commit", committed)  # noqa: B010
    os.environ["POINTS_LEFT"] = str(points)
    jobs = [batches(project, job) for job in (*planned[first:], *planned[:first])]
    running = [True]
    while any(running):
        running = [next(job) for job in jobs]
    compiler.close()


if __name__ == "__main__":
    # DuckDB imports it when it registers a table.
    importlib.import_module("pandas")
    for line in sys.stdin:
        if not (child := os.fork()):
            main(sys.argv[1], *map(int, line.split()))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
