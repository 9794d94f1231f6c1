"""Jobs over lakehouse tables, until their input ends: what tests run in processes of its own, which kill themselves on the way.

`jobs.py PROJECT SCRIPT [WHEN NUMBER]..` runs a process for each pair, which kills itself with SIGKILL before or after its nth
commit to a table of a lakehouse: behind that of a batch in the table, and before that of the job. The last one comes to the end.
It prints how each has ended. The processes are forks: what costs most is to import everything.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.errors import SourceText
from sqlstream.options import Options
from tests.connectors.two_jobs import PARALLELISM, batches
from tests.kinds import jobs_of


def run(project: str, script: str, within: tuple[str, ...] = ()) -> None:
    """Run the jobs of a script batch by batch in turns, first what earlier processes left, until none has a batch.

    The files of its tables must lie `within` some folders, if there are any.
    """
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=project)
    compiler.table_options.within = within
    try:
        jobs = [batches(project, planned) for planned in jobs_of(compiler.scripts([SourceText("jobs", script)]))]
        while any(list(map(next, jobs))):
            pass
    finally:
        compiler.close()


def kill_at(when: str, number: int) -> None:
    commits = iter(range(1, 1_000_000))

    def killing(commit: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*arguments: Any) -> Any:
            last = next(commits) == number
            if last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = commit(*arguments)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return killed

    LakeCommits.commit = killing(LakeCommits.commit)  # type: ignore[method-assign]


def main(project: str, path: str, *points: str) -> None:
    for name in ("pandas", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.table"):
        importlib.import_module(name)
    with open(path) as text:
        script = text.read()
    for when, number in [*zip(points[::2], map(int, points[1::2]), strict=True), ("", 0)]:
        if not (child := os.fork()):
            if when:
                kill_at(when, number)
            run(project, script)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("ended with", os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
